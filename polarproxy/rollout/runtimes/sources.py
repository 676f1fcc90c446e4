"""Filling a new working copy from a folder, a commit or an archive, on this machine, before anything runs in it."""

from __future__ import annotations

import asyncio
import lzma
import os
import shutil
import tarfile
import threading
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from polarproxy.errors import RuntimeFailed
from polarproxy.rollout.runtimes.protocol import Archive, Folder, GitCommit, Image
from polarproxy.rollout.runtimes.shim import NOT_FOUND
from polarproxy.rollout.supervised import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.rollout.runtimes.protocol import Source

_BLOCK = 4096
_UNREADABLE = (shutil.Error, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError)
"""What is said of archives that are broken; the last, of those that want a password or another decompression."""
_GIT_S = 600.0
_GIT_ENV = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
"""Nothing of the user's configuration, and no question that nobody would answer."""


async def fill(source: Source | None, folder: Path, most_mb: int) -> None:
    """Puts the source into an empty folder; raises `RuntimeFailed` when it cannot be had, or has more than so many MiB.

    Cancelled, it writes nothing any more when it ends.
    """
    room = _Room(most_mb)
    try:
        if isinstance(source, Folder):
            await _in_thread(room, lambda: _copy(source.path, folder, room))
        elif isinstance(source, Archive):
            await _in_thread(room, lambda: _unpack(source.path, folder, room))
        elif isinstance(source, GitCommit):
            await _in_thread(room, lambda: _fetch(source, folder, room))
        elif isinstance(source, Image):
            raise RuntimeFailed(
                "a working copy from an image needs a runtime of containers: docker, podman or apptainer"
            )
    except (OSError, ValueError, EOFError, *_UNREADABLE) as error:
        raise RuntimeFailed(f"the working copy cannot be made from {source}: {error}") from error


class _Room:
    """How much may still be written; nothing, once nobody wants it."""

    def __init__(self, most_mb: int) -> None:
        self.unwanted = threading.Event()
        self._most_mb, self._left = most_mb, most_mb << 20

    def take(self, size: int) -> None:
        """For one more file, folder or link. Raises `RuntimeFailed`."""
        if self.unwanted.is_set():
            raise RuntimeFailed("the working copy is not wanted any more")
        # However many are empty, each takes its place on the disk.
        self._left -= max(size, _BLOCK)
        if self._left < 0:
            raise RuntimeFailed(f"the working copy is larger than the limit disk_mb, {self._most_mb} MiB")


async def _in_thread(room: _Room, work: Callable[[], None]) -> None:
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        room.unwanted.set()
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((working,))
        with suppress(Exception):  # what went wrong with it is of no interest now
            working.result()
        raise


def _copy(original: Path, folder: Path, room: _Room) -> None:
    def copy(source: str, target: str) -> str:
        room.take(os.lstat(source).st_size)
        return shutil.copy2(source, target)

    def look(_folder: str, _names: list[str]) -> set[str]:
        room.take(_BLOCK)
        return set()

    shutil.copytree(original, folder, symlinks=True, dirs_exist_ok=True, copy_function=copy, ignore=look)


def _unpack(archive: Path, folder: Path, room: _Room) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            # What a file is said to have is the most that is read of it.
            for entry in opened.infolist():
                room.take(entry.file_size)
                opened.extract(entry, folder)
        return
    if not hasattr(tarfile, "data_filter"):
        raise RuntimeFailed(
            "a working copy from a tar file needs Python 3.11.4 or newer, which knows how to unpack it safely"
        )

    def allowed(member: tarfile.TarInfo, to: str) -> tarfile.TarInfo | None:
        room.take(member.size)
        # Absolute names, names above the folder, devices and set-user-id bits are refused or dropped.
        return tarfile.data_filter(member, to)

    with tarfile.open(archive) as tar:
        # One by one: to list them all, the whole file would have to be read.
        for member in tar:
            tar.extract(member, folder, filter=allowed)


def _fetch(source: GitCommit, folder: Path, room: _Room) -> None:
    # Alone, so that no later commit, which may hold the answer, comes with it.
    for arguments in (
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", "--no-tags", "--", _address(source.repository), source.commit],
        ["checkout", "-q", "--detach", "FETCH_HEAD"],
    ):
        _git(arguments, folder, room)


def _address(repository: str) -> str:
    """A path from here is none from the new folder."""
    return str(Path(repository).resolve()) if Path(repository).exists() else repository


def _git(arguments: list[str], folder: Path, room: _Room) -> None:
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), **_GIT_ENV}
    done = run(["git", *arguments], seconds=_GIT_S, folder=folder, env=env, unwanted=room.unwanted)
    if done.code == NOT_FOUND:
        raise RuntimeFailed("a working copy from a commit needs git, which is not installed")
    if done.code is None:
        raise RuntimeFailed(f"git {arguments[0]} took longer than {_GIT_S:g} s")
    if done.code != 0:
        raise RuntimeFailed(f"git {' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
