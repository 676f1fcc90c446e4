"""The katas on a Ray cluster of two nodes on this machine, of which one is killed while they run.

    python -m tests.rollout.jobs.ray_show [--katas 8] [--samples 4]

Run with a Python that has Ray (`.ci/setup-ray` makes one). Exit code 1 when anything is not as it should be afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from polarproxy.cli.cluster import RESOURCE
from polarproxy.rollout.runtimes.folder import sweep
from polarproxy.rollout.scripted.engine import ScriptedEngine
from tests.rollout.jobs.katas import Model
from tests.rollout.jobs.show import Show, done, faults


async def play(show: Show, cluster: Any, victim: Any) -> list[str]:
    """Runs the job, and kills a node once a third of it has ended."""
    async with ScriptedEngine(Model(), context=1_000_000) as engine:
        running = asyncio.create_task(show.generate(engine.url))
        while not running.done() and show.ended() < show.wanted // 3:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        before = done(show)
        await asyncio.to_thread(cluster.remove_node, victim, allow_graceful=False)
        print(f"a node was killed after {len(before)} of {show.wanted} rollouts", flush=True)
        code = await running
    # What the dead node left is the next one's to remove.
    await asyncio.to_thread(sweep)
    return [*([f"exit code {code}"] if code else []), *faults(show, before)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.rollout.jobs.ray_show", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--katas", type=int, default=8)
    parser.add_argument("--samples", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="polarproxy-ray-") as folder:
        show = Show(Path(folder), ("small-agent",), asked.katas, asked.samples, rollouts=2, runtime="local")
        show.write()
        # Of the nodes too, which are started from here. Ray's own paths must be short.
        os.environ |= {"TMPDIR": str(show.temporary), "RAY_TMPDIR": tempfile.gettempdir()}
        tempfile.tempdir = str(show.temporary)
        found = run(show)
    print(*(found or ["all as it should be"]), sep="\n")
    return bool(found)


def run(show: Show) -> list[str]:
    """Faults of the job on a new cluster; empty: none."""
    cluster = import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        nodes = [cluster.add_node(num_cpus=1, resources={RESOURCE: 2}) for _ in range(2)]
        show = replace(show, more=f"--runner ray --ray-address {cluster.address}")
        started = time.monotonic()
        found = asyncio.run(play(show, cluster, nodes[0]))
        print(f"{show.wanted} rollouts in {time.monotonic() - started:.0f} s")
        return found
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
