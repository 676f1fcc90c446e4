"""Working copies: from folders, commits and archives, and what changed in them as a patch."""

import asyncio
import io
import os
import shutil
import subprocess
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest

from polarproxy.errors import RuntimeFailed
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Archive, Folder, GitCommit, Image, Limits, Spec
from tests.rollout.left import folders, processes
from tests.rollout.runtimes.place import KINDS, Starter, python

needs_filter = pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="needs Python 3.11.4")


def git(folder: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{who}_{what}": "t@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout.strip()


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_text("a = 1\n")
    (folder / "data").write_bytes(bytes(range(256)))
    (folder / "gone").write_text("x\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "link").symlink_to("pkg/a.py")
    return folder


CHANGE = """
import os, pathlib
pathlib.Path("pkg/a.py").write_text("a = 2\\n")
pathlib.Path("pkg/new é.py").write_text("b\\n")
pathlib.Path("data").write_bytes(bytes(range(255, -1, -1)))
pathlib.Path("noise.log").write_text("n")
os.unlink("gone")
"""


@pytest.mark.parametrize("kind", ["folder", "commit", pytest.param("tar", marks=needs_filter), "zip"])
async def test_a_patch_holds_what_changed(start: Starter, original: Path, tmp_path: Path, kind: str) -> None:
    if kind == "zip":
        (original / "link").unlink()
    if kind == "commit":
        git(original, "init", "-q")
        git(original, "add", ".")
        git(original, "commit", "-q", "-m", "one")
    plain = tmp_path / "plain"
    shutil.copytree(original, plain, symlinks=True)
    source = await asyncio.to_thread(packed, kind, original, tmp_path)
    runtime = await start(source=source)
    assert tree(runtime._folders["work"]) == tree(plain)  # type: ignore[attr-defined]
    assert await runtime.diff() == b""
    assert (await python(runtime, CHANGE)).stderr == ""
    patch = await runtime.diff()
    assert await runtime.diff() == patch
    (tmp_path / "patch").write_bytes(patch)
    git(plain, "apply", "--whitespace=nowarn", str(tmp_path / "patch"))
    changed = tree(runtime._folders["work"])  # type: ignore[attr-defined]
    assert changed.pop("noise.log") == b"n"
    assert tree(plain) == changed
    assert set(changed) >= {"pkg/a.py", "pkg/new é.py", "data"}
    assert "gone" not in changed


def packed(kind: str, original: Path, folder: Path) -> Folder | GitCommit | Archive:
    if kind == "folder":
        return Folder(original)
    if kind == "commit":
        commit = git(original, "rev-parse", "HEAD")
        (original / "pkg" / "a.py").write_text("the answer\n")
        git(original, "commit", "-q", "-a", "-m", "later")
        return GitCommit(str(original), commit)
    archive = folder / f"a.{kind}"
    if kind == "tar":
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(original, ".")
    else:
        with zipfile.ZipFile(archive, "w") as opened:
            for name, content in tree(original).items():
                opened.writestr(name, content)
    return Archive(archive)


async def test_a_commit_comes_without_what_was_before_and_after(start: Starter, original: Path) -> None:
    git(original, "init", "-q")
    git(original, "add", ".")
    for message in ("one", "two"):
        git(original, "commit", "-q", "--allow-empty", "-m", message)
    commit = git(original, "rev-parse", "HEAD")
    git(original, "commit", "-q", "--allow-empty", "-m", "later")
    runtime = await start(source=GitCommit(str(original), commit))
    ended = await runtime.exec(["git", "log", "--all", "--format=%s"], env={}, budget=Budget(60))
    assert ended.stdout == "two\n", ended.stderr
    assert (await runtime.exec(["git", "status", "--porcelain"], env={}, budget=Budget(60))).stdout == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("source", "what"),
    [
        (Folder(Path("/nonexistent/folder")), "nonexistent"),
        (Archive(Path(__file__)), r"cannot be made|3\.11\.4"),
        (GitCommit("/nonexistent/repository", "main"), "git fetch"),
        (Image(), "containers"),
    ],
)
async def test_a_source_that_cannot_be_had_leaves_nothing(
    kind: str, source: Folder | Archive | GitCommit | Image, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeFailed, match=what):
        await Runtimes().start(kind, Spec(source=source))
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


@needs_filter
async def test_a_hostile_archive_stays_inside(tmp_path: Path, start: Starter) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("../../escaped"))
    with pytest.raises(RuntimeFailed, match="escaped"):
        await start(source=Archive(archive))


def bomb(kind: str, file: Path, count: int, size: int) -> Archive:
    """So many files of zeros."""
    if kind == "zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
            for number in range(count):
                opened.writestr(f"{number}", bytes(size))
    else:
        with tarfile.open(file, "w:gz") as tar:
            for number in range(count):
                member = tarfile.TarInfo(f"{number}")
                member.size = size
                tar.addfile(member, io.BytesIO(bytes(size)))
    return Archive(file)


@pytest.mark.parametrize(("count", "size"), [(1, 3 << 20), (3, 900 << 10), (600, 0)])
@pytest.mark.parametrize("kind", ["zip", pytest.param("tar", marks=needs_filter), "folder"])
async def test_more_than_the_limit_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int, size: int
) -> None:
    source: Folder | Archive
    if kind == "folder":
        source = Folder(tmp_path / "original")
        source.path.mkdir()
        for number in range(count):
            (source.path / str(number)).write_bytes(bytes(size))
    else:
        source = bomb(kind, tmp_path / "bomb", count, size)
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with pytest.raises(RuntimeFailed, match="larger than the limit disk_mb, 2 MiB"):
        await Runtimes().start("local", Spec(source=source, limits=Limits(disk_mb=2)))
    assert list(place.iterdir()) == []
    async with Runtimes().running("local", Spec(source=source, limits=Limits(disk_mb=5))):
        pass


@pytest.mark.parametrize("what", ["password", "broken", "name"])
async def test_an_archive_that_cannot_be_read_is_told(tmp_path: Path, what: str) -> None:
    archive = bomb("zip", tmp_path / "a.zip", 1, 100_000).path
    content = bytearray(archive.read_bytes())
    if what == "password":
        central = content.index(b"PK\1\2")
        content[6] |= 1
        content[central + 8] |= 1
    elif what == "broken":
        content[40:60] = bytes(range(200, 220))
    archive.write_bytes(content)
    given = Folder(Path("a\0b")) if what == "name" else Archive(archive)
    with pytest.raises(RuntimeFailed, match="cannot be made from"):
        await Runtimes().start("local", Spec(source=given))


async def test_a_copy_that_is_not_wanted_any_more_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, place = tmp_path / "original", tmp_path / "place"
    for number in range(300):
        (original / f"{number}" / "below").mkdir(parents=True)
        (original / f"{number}" / "below" / "file").write_text("x")
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    copy, begun = shutil.copy2, threading.Event()

    def slow(source: str, target: str) -> str:
        begun.set()
        time.sleep(0.05)
        return str(copy(source, target))

    monkeypatch.setattr("shutil.copy2", slow)
    starting = asyncio.create_task(Runtimes().start("local", Spec(source=Folder(original))))
    assert await asyncio.to_thread(begun.wait, 30)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert list(place.iterdir()) == []
    begun.clear()
    await asyncio.sleep(0.3)
    assert not begun.is_set()
    assert list(place.iterdir()) == []


async def test_a_fetch_that_is_broken_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git leaves what it started to itself when it is killed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "git").write_text("#!/bin/sh\nsetsid sleep 600 &\nsleep 600\n")
    (tmp_path / "git").chmod(0o755)
    starting = asyncio.create_task(Runtimes().start("local", Spec(source=GitCommit("ssh://host/it", "main"))))
    async with asyncio.timeout(30):
        while len([line for line in processes(tmp_path) if line == "sleep 600"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (processes(tmp_path), folders(tmp_path)) == ([], [])
