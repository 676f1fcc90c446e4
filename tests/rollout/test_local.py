"""Local harness processes: their environment, their end, and nothing left behind."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from polarproxy.rollout.local import run_harness

SPAWN_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1], sys.argv[2])
time.sleep(float(sys.argv[3]))
"""


def runs(pid: int) -> bool:
    """Whether a process runs under the id; an orphan that nobody has reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def listed(file: Path) -> list[int]:
    """The process ids that SPAWN_CHILD wrote: its own and its child's."""
    return [int(pid) for pid in file.read_text().split()]


async def all_gone(pids: list[int]) -> bool:
    """Whether every process ends; waits five seconds at most."""
    assert len(pids) == 2
    for _ in range(500):
        if not any(runs(pid) for pid in pids):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_output_and_exit_code() -> None:
    program = "import sys; print('out é'); print('err', file=sys.stderr); sys.exit(3)"
    result = await run_harness([sys.executable, "-c", program], {}, timeout_s=30)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out é\n", "err\n")
    assert not result.timed_out
    assert result.seconds > 0


async def test_only_path_home_and_what_is_given_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the user's own")
    program = "import os, json; print(json.dumps([dict(os.environ), os.getcwd(), os.listdir()]))"
    result = await run_harness([sys.executable, "-c", program], {"MODEL": "demo"}, timeout_s=30)
    seen, folder, entries = json.loads(result.stdout)
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "HOME", "TMPDIR", "LANG", "MODEL"}
    assert seen["MODEL"] == "demo"
    assert seen["HOME"] == seen["TMPDIR"] == folder
    assert seen["HOME"] != os.environ.get("HOME")
    assert entries == []
    assert folder not in [entry.path for entry in os.scandir(tempfile.gettempdir())]


async def test_a_timeout_kills_the_whole_tree(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPAWN_CHILD, str(tmp_path / "new"), str(tmp_path / "pids"), "600"]
    result = await run_harness(command, {}, timeout_s=5)
    assert result.timed_out
    assert result.exit_code == -9
    assert await all_gone(listed(tmp_path / "pids"))


async def test_what_the_harness_leaves_running_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPAWN_CHILD, str(tmp_path / "new"), str(tmp_path / "pids"), "0"]
    result = await run_harness(command, {}, timeout_s=60)
    assert result.exit_code == 0
    assert not result.timed_out
    assert await all_gone(listed(tmp_path / "pids"))


async def test_cancelling_kills_the_whole_tree(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPAWN_CHILD, str(tmp_path / "new"), str(tmp_path / "pids"), "600"]
    running = asyncio.create_task(run_harness(command, {}, timeout_s=600))
    for _ in range(3000):
        if (tmp_path / "pids").exists():
            break
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await all_gone(listed(tmp_path / "pids"))


async def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(FileNotFoundError):
        await run_harness(["/nonexistent/harness"], {}, timeout_s=5)


async def test_a_signal_is_a_negative_exit_code() -> None:
    result = await run_harness([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"], {}, timeout_s=30)
    assert result.exit_code == -15
    assert not result.timed_out
