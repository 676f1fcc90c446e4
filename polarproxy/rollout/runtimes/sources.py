"""Filling a new working copy from a folder, a commit or an archive, on this machine, before anything runs in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
import zipfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import TYPE_CHECKING

from polarproxy.errors import RuntimeFailed
from polarproxy.rollout.runtimes.protocol import Archive, Folder, GitCommit, Image

if TYPE_CHECKING:
    from polarproxy.rollout.runtimes.protocol import Source

_GIT_S = 600.0
_GIT_ENV = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
"""Nothing of the user's configuration, and no question that nobody would answer."""


async def fill(source: Source | None, folder: Path) -> None:
    """Puts the source into an empty folder; raises `RuntimeFailed` when it cannot be had."""
    try:
        if isinstance(source, Folder):
            await asyncio.to_thread(shutil.copytree, source.path, folder, symlinks=True, dirs_exist_ok=True)
        elif isinstance(source, Archive):
            await asyncio.to_thread(_unpack, source.path, folder)
        elif isinstance(source, GitCommit):
            await _fetch(source, folder)
        elif isinstance(source, Image):
            raise RuntimeFailed(
                "a working copy from an image needs a runtime of containers: docker, podman or apptainer"
            )
    except (OSError, shutil.Error, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise RuntimeFailed(f"the working copy cannot be made from {source}: {error}") from error


def _unpack(archive: Path, folder: Path) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)
        return
    if not hasattr(tarfile, "data_filter"):
        raise RuntimeFailed(
            "a working copy from a tar file needs Python 3.11.4 or newer, which knows how to unpack it safely"
        )
    with tarfile.open(archive) as tar:
        # Absolute names, names above the folder, devices and set-user-id bits are refused or dropped.
        tar.extractall(folder, filter="data")


async def _fetch(source: GitCommit, folder: Path) -> None:
    # Alone, so that no later commit, which may hold the answer, comes with it.
    repository = await asyncio.to_thread(_address, source.repository)
    for arguments in (
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", "--no-tags", "--", repository, source.commit],
        ["checkout", "-q", "--detach", "FETCH_HEAD"],
    ):
        await _git(arguments, folder)


def _address(repository: str) -> str:
    """A path from here is none from the new folder."""
    return str(Path(repository).resolve()) if Path(repository).exists() else repository


async def _git(arguments: list[str], folder: Path) -> None:
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), **_GIT_ENV}
    try:
        process = await asyncio.create_subprocess_exec(
            "git", *arguments, cwd=folder, env=env, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
        )
    except FileNotFoundError as error:
        raise RuntimeFailed("a working copy from a commit needs git, which is not installed") from error
    try:
        async with asyncio.timeout(_GIT_S):
            _, said = await process.communicate()
    except TimeoutError as error:
        raise RuntimeFailed(f"git {arguments[0]} took longer than {_GIT_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise RuntimeFailed(f"git {' '.join(arguments)} failed: {said.decode(errors='replace').strip()[-500:]}")
