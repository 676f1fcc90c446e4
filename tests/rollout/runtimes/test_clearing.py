"""Removing what hostile programs left, and what killed processes left."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from polarproxy.rollout.runtimes.census import ENDLESS, size_of
from polarproxy.rollout.runtimes.clearing import FOLDER, clear
from polarproxy.rollout.runtimes.folder import RunFolder, sweep
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Spec, StoppedBy
from tests.rollout.runtimes.place import KINDS, Starter, python

DEEP = "import os\nfor n in range(3000):\n  open('f' * 20, 'w').close(); os.mkdir('d' * 20); os.chdir('d' * 20)"
HOLD = """
import sys, time
from polarproxy.rollout.runtimes.folder import RunFolder
held = RunFolder()
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


async def test_what_a_killed_process_left_is_removed_by_the_next(place: Path) -> None:
    env = os.environ | {"TMPDIR": str(place)}
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, env=env, stdout=subprocess.PIPE)
    assert killed.stdout is not None
    left = Path((await killed.stdout.readline()).decode().strip())
    mine, unlocked = RunFolder(), place / "polarproxy-run-of-somebody"
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
    half, real = RunFolder(), RunFolder()
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


@pytest.mark.parametrize("kind", KINDS)
async def test_no_descriptor_stays_open(kind: str, place: Path) -> None:
    before = psutil.Process().num_fds()
    for _ in range(3):
        async with Runtimes().running(kind, Spec()):
            pass
    assert psutil.Process().num_fds() <= before + 1
