"""Removing what hostile programs left, and what killed processes left."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import psutil
import pytest

from polarproxy.rollout.runtimes.census import ENDLESS, size_of
from polarproxy.rollout.runtimes.clearing import FOLDER, clear
from polarproxy.rollout.runtimes.folder import OwnFolder, Purpose, sweep
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Spec, StoppedBy
from tests.rollout.left import folders
from tests.rollout.runtimes.place import KINDS, PYTHON, Starter, gone, mark, marked, python, started

DEEP = "import os\nfor n in range(3000):\n  open('f' * 20, 'w').close(); os.mkdir('d' * 20); os.chdir('d' * 20)"
HOLD = """
import sys, time
from polarproxy.rollout.runtimes.folder import OwnFolder
held = OwnFolder(sys.argv[1])
(held.path / "home").mkdir()
print(held.path, flush=True)
time.sleep(600)
"""


def cleared(folder: Path, but: str | None = None) -> bool:
    at = os.open(folder, FOLDER)
    try:
        return clear(at, but=but)
    finally:
        os.close(at)


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (outside / "below").mkdir(parents=True)
    (outside / "file").write_text("mine")
    outside.chmod(0o1777)
    (folder / "a" / "b").mkdir(parents=True)
    for place in (folder, folder / "a", folder / "a" / "b"):
        (place / "folder").symlink_to(outside, target_is_directory=True)
        (place / "file").symlink_to(outside / "file")
        os.link(outside / "file", place / "hard")
        os.mkfifo(place / "pipe")
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    (folder / "kept").write_text("")
    assert cleared(folder, but="kept")
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert sorted(path.name for path in outside.iterdir()) == ["below", "file"]
    assert outside.stat().st_mode & 0o7777 == 0o1777
    assert (outside / "file").read_text() == "mine"


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a program had put it there after the folder was seen."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (outside / "below").mkdir(parents=True)
    (folder / "a").mkdir(parents=True)
    outside.chmod(0o1777)
    unlink = os.unlink

    def swapped(name: str, *, dir_fd: int) -> None:
        try:
            unlink(name, dir_fd=dir_fd)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=dir_fd)
            os.symlink(outside, name, dir_fd=dir_fd)
            raise

    monkeypatch.setattr("os.unlink", swapped)
    monkeypatch.setattr("os.geteuid", lambda: 1)
    assert not cleared(folder)
    assert (outside / "below").is_dir()
    assert outside.stat().st_mode & 0o7777 == 0o1777


async def test_a_folder_deeper_than_any_path_is_counted_and_removed(start: Starter) -> None:
    runtime = await start()
    folder: Path = runtime.folder  # type: ignore[attr-defined]
    ended = await python(runtime, DEEP + "\nimport time; time.sleep(60)")
    assert ended.stopped_by is StoppedBy.DISK
    assert await asyncio.to_thread(size_of, [folder]) == ENDLESS
    await runtime.stop()
    assert not folder.exists()  # noqa: ASYNC240


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders of runs are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("purpose", get_args(Purpose))
async def test_what_a_killed_process_left_is_removed_by_the_next(place: Path, purpose: Purpose) -> None:
    env = os.environ | {"TMPDIR": str(place)}
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, purpose, env=env, stdout=subprocess.PIPE)
    assert killed.stdout is not None
    left = Path((await killed.stdout.readline()).decode().strip())
    mine, unlocked = OwnFolder("run"), place / "polarproxy-run-of-somebody"
    unlocked.mkdir()
    async with Runtimes().running("local", Spec()):
        assert (left / "home").is_dir()
    killed.kill()
    await killed.wait()
    async with Runtimes().running("local", Spec()):
        assert not left.exists()  # noqa: ASYNC240
    assert {*place.iterdir()} == {mine.path, unlocked}  # noqa: ASYNC240
    mine.remove()
    mine.release()
    mine.remove()
    assert {*place.iterdir()} == {unlocked}  # noqa: ASYNC240


def test_a_half_removed_folder_is_removed_and_a_link_is_not_followed(place: Path) -> None:
    half, real = OwnFolder("run"), OwnFolder("run")
    half.release()
    real.release()
    aside = place / "aside"
    real.path.rename(aside)
    real.path.symlink_to(aside)
    odd = place / "polarproxy-run-odd"
    odd.mkdir()
    os.mkfifo(odd / "lock")
    sweep()
    assert not half.path.exists()
    assert [path.name for path in aside.iterdir()] == ["lock"]


def test_a_folder_that_lost_its_maker_before_its_lock_is_removed_once_it_is_old(place: Path) -> None:
    shells = [place / f"polarproxy-judge-{name}" for name in ("bare", "new", "young", "full")]
    for one in shells:
        one.mkdir()
    (shells[1] / "lock.new").touch()
    (shells[3] / "file").touch()
    for one in (shells[0], shells[1], shells[3]):
        os.utime(one, (0, 0))
    sweep()
    assert [one.exists() for one in shells] == [False, False, True, True]


def test_a_folder_that_cannot_have_a_lock_is_not_left(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr("fcntl.flock", full)
    before = psutil.Process().num_fds()
    with pytest.raises(OSError, match="no locks here"):
        OwnFolder("run")
    assert list(place.iterdir()) == []
    assert psutil.Process().num_fds() == before


ORPHAN = """
import asyncio, os, sys
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Spec

async def main(kind, *command):
    async with Runtimes().running(kind, Spec()) as runtime:
        await runtime.exec(command, env={}, budget=Budget(600))

asyncio.run(main(*sys.argv[1:], os.environ["MARK"]))
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keeper", [True, False])
async def test_a_killed_process_leaves_no_other(kind: str, keeper: bool, place: Path) -> None:
    """Not even when the keeper of its command was killed before: then the sandbox ends it, or the next who sweeps."""
    name = mark()
    env = os.environ | {"TMPDIR": str(place), "MARK": name}
    spawn = "import os, sys, time\nif os.fork() == 0: os.setsid()\ntime.sleep(600)"
    runner = await asyncio.create_subprocess_exec(sys.executable, "-c", ORPHAN, kind, PYTHON, "-c", spawn, env=env)
    await started(name, 3 if kind == "local" else 5)
    if not keeper:
        runner.send_signal(signal.SIGSTOP)
        (own,) = (one for one in marked(name) if one.ppid() == runner.pid)
        own.kill()
    runner.kill()
    await runner.wait()
    if not keeper:
        await asyncio.to_thread(sweep)
    await gone(name)
    await asyncio.to_thread(sweep)
    assert folders(place) == []


async def test_a_keeper_that_is_killed_costs_what_it_kept(place: Path) -> None:
    name = mark()
    async with Runtimes().running("local", Spec()) as runtime:
        spawn = "import os, time\nif os.fork() == 0:\n  os.setsid(); time.sleep(600)\nos.kill(os.getppid(), 9); time.sleep(600)"
        ended = await python(runtime, spawn, name, seconds=600)
    assert ended.exit_code == 137
    assert marked(name) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_no_descriptor_stays_open(kind: str, place: Path) -> None:
    before = psutil.Process().num_fds()
    for _ in range(3):
        async with Runtimes().running(kind, Spec()):
            pass
    assert psutil.Process().num_fds() <= before + 1
