"""A job on a Ray cluster of two nodes, of which one dies."""

import asyncio
import os
from pathlib import Path

import pytest

PYTHON = os.environ.get("POLARPROXY_TEST_RAY")
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="needs Ray: export $(.ci/setup-ray)")
async def test_a_node_dies_and_the_job_is_done() -> None:
    assert PYTHON is not None
    command = [PYTHON, "-m", "tests.rollout.jobs.ray_show", "--katas", "4", "--samples", "4"]
    # Its Python has Ray and no polarproxy; what the job starts, the nodes' workers among it, runs in folders of its own.
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(300):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-2000:]
    assert b"a node was killed after" in said
    assert b"all as it should be" in said
