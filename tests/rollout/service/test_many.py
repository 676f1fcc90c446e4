"""Two hundred rollouts at once leave nothing behind, also when they are cancelled together."""

import asyncio
import gc
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from polarproxy.rollout.service.ports import Pools
from tests.fakes import always, compose
from tests.rollout.left import folders, processes
from tests.rollout.service.shop import Service, service, until

MANY = 200
POOLS = Pools(init=16, ready=MANY, run=MANY, post=16)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


def look(folder: Path) -> dict[str, int]:
    """What this process has, and what its rollouts have."""
    gc.collect()
    me = psutil.Process()
    return {
        "processes": len(processes(folder)),
        "folders": len(folders(folder)),
        "files": me.num_fds(),
        "sockets": sum(one.status == psutil.CONN_ESTABLISHED for one in me.net_connections("tcp")),
        "threads": me.num_threads(),
        "tasks": len(asyncio.all_tasks()),
        "memory": me.memory_info().rss >> 20,
    }


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runtimes are made in a folder of this test, in which nobody else makes any."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


async def rounds(made: Service, program: str, count: int) -> None:
    task = made.submit(program, num_samples=count)
    await made.done(task, seconds=240)
    assert {one.outcome and one.outcome.status.value for one in made.store.rollouts(task)} == {"completed"}


async def test_nothing_is_left_of_them(tmp_path: Path) -> None:
    # Only when all are there does any of them end: they are two hundred at once.
    program = f"""ask('hi')
open({str(tmp_path / "here")!r}, 'a').write('x')
import os, time
while os.path.getsize({str(tmp_path / "here")!r}) < {MANY}: time.sleep(0.2)
"""
    async with service(tmp_path, always(compose("Hello")), POOLS) as made:
        (tmp_path / "here").write_text("x" * MANY)
        await rounds(made, program, 10)
        looks = [look(tmp_path)]
        for _ in range(2):
            (tmp_path / "here").write_text("")
            await rounds(made, program, MANY)
            await until(lambda: look(tmp_path)["processes"] == 0)
            looks.append(look(tmp_path))
        few, once, twice = looks
        assert once["folders"] == twice["folders"] == few["folders"] == 0
        # Pools of threads and connections fill up to their bounds in the first round, and caches; the second adds nothing.
        # How many connections are kept at the moment of a look differs: few, beside one for each rollout.
        few_kept = MANY // 5
        for name, more in (("files", few_kept), ("sockets", few_kept), ("threads", 8), ("tasks", 16), ("memory", 32)):
            assert twice[name] - once[name] <= more, (name, looks)


async def test_cancelling_frees_everything(tmp_path: Path) -> None:
    async with service(tmp_path, always(compose("Hello")), POOLS) as made:
        task = made.submit("ask('hi')\nimport time; time.sleep(600)", num_samples=MANY)
        await until(lambda: len(made.rig.received) == MANY, seconds=240)
        assert look(tmp_path)["processes"] >= MANY
        began = time.monotonic()
        made.store.cancel(task)
        made.runner.wake()
        await until(lambda: made.runner.active == 0)
        print(f"{MANY} rollouts were gone after {time.monotonic() - began:.2f} s")
        left = look(tmp_path)
        assert (left["processes"], left["folders"]) == (0, 0)
        # Each of them had one to the proxy, and the proxy one to the engine for it.
        await until(lambda: look(tmp_path)["sockets"] < MANY // 2)
        assert {one.state.value for one in made.store.rollouts(task)} == {"skipped"}
