"""Programs that are run from a thread, and that nothing of them is left, whatever they and those who run them do."""

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from polarproxy.rollout.supervised import run
from tests.rollout.runtimes.place import PYTHON, gone, mark, marked, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is killed")

LEAVE = """
import os, signal, sys, time
for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    for n in (0, 1, 2): os.close(n)
    if os.fork() == 0: time.sleep(600)
    os._exit(0)
if sys.argv[2] == "stop": os.kill(os.getppid(), signal.SIGSTOP)
time.sleep(float(sys.argv[3]))
"""
"""A program whose child leaves its session and its parent."""


def leaving(name: str, how: str = "", seconds: float = 0.0) -> list[str]:
    return [PYTHON, "-c", LEAVE, name, how, str(seconds)]


def test_how_it_ends() -> None:
    done = run(["sh", "-c", "cat; echo bad >&2; exit 3"], seconds=60, stdin="für".encode())
    assert (done.code, done.stdout, done.stderr) == (3, "für", "bad\n")
    for number in (9, 11, 15):
        assert run(["sh", "-c", f"kill -{number} $$"], seconds=60).code == -number
    assert run(["no-such-program"], seconds=60).code == 127


@pytest.mark.parametrize("how", ["", "stop"])
def test_nothing_of_it_is_left_when_its_time_is_up(how: str) -> None:
    name = mark()
    assert run(leaving(name, how, 600), seconds=1.5).code is None
    assert marked(name) == []


def test_nothing_of_it_is_left_when_it_ends() -> None:
    name = mark()
    assert run(leaving(name), seconds=60).code == 0
    assert marked(name) == []


async def test_it_ends_when_it_is_not_wanted_any_more() -> None:
    name, unwanted = mark(), threading.Event()
    running = asyncio.create_task(asyncio.to_thread(run, leaving(name, seconds=600), seconds=600, unwanted=unwanted))
    await started(name, 2)
    unwanted.set()
    assert (await running).code is None
    assert marked(name) == []


async def test_it_ends_with_the_process_that_runs_it(tmp_path: Path) -> None:
    name = mark()
    runs = f"from polarproxy.rollout.supervised import run\nrun({leaving(name, seconds=600)!r}, seconds=600)"
    runner = await asyncio.create_subprocess_exec(sys.executable, "-c", runs, cwd=tmp_path)
    await started(name, 2)
    runner.kill()
    await runner.wait()
    await gone(name)
