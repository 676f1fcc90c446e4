"""What every runtime that works here does: commands, files, patches, limits, and a sure end."""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from polarproxy.errors import BadSettings, InvalidValue, RuntimeFailed
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.process import KEPT
from polarproxy.rollout.runtimes.protocol import Archive, Folder, GitCommit, Image, Limits, Runtime, Spec, StoppedBy
from tests.rollout.runtimes.place import KINDS, PYTHON, mark, marked, python, started

needs_filter = pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="needs Python 3.11.4")
Starter = Callable[..., Awaitable[Runtime]]
SPAWN = """
import os, subprocess, sys, time
# One child in this group, one in a session of its own whose parent is gone.
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(params=KINDS)
async def start(request: pytest.FixtureRequest) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:

        async def started(**spec: object) -> Runtime:
            return await stack.enter_async_context(Runtimes().running(request.param, Spec(**spec)))  # type: ignore[arg-type]

        yield started


async def test_output_and_exit_code(start: Starter) -> None:
    runtime = await start()
    ended = await python(runtime, "import sys; print('out é'); print('err', file=sys.stderr); sys.exit(3)")
    assert (ended.exit_code, ended.stdout, ended.stderr, ended.stopped_by) == (3, "out é\n", "err\n", None)
    assert ended.seconds > 0
    ended = await python(runtime, "import os; os.write(1, bytes([255]))")
    assert ended.stdout == "�"


async def test_exit_codes_are_a_shell_s(start: Starter) -> None:
    runtime = await start()
    assert (await python(runtime, "import os; os.kill(os.getpid(), 15)")).exit_code == 128 + 15
    missing = await runtime.exec(["no-such-program"], env={}, budget=Budget(60))
    assert (missing.exit_code, missing.stdout) == (127, "")
    assert missing.stderr == "no-such-program cannot be started: No such file or directory\n"
    await runtime.put("data", b"text")
    assert (await runtime.exec(["./data"], env={}, budget=Budget(60))).exit_code == 126


async def test_only_what_is_given_is_in_the_environment(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the user's own")
    runtime = await start()
    listed = "[dict(os.environ), os.getcwd(), os.listdir(), os.listdir(os.environ['HOME'])]"
    program = f"import os, json; print(json.dumps({listed}))"
    ended = await python(runtime, program, MODEL="demo")
    seen, folder, work, home = json.loads(ended.stdout)
    assert set(seen) - {"LC_CTYPE", "PWD"} == {"PATH", "HOME", "TMPDIR", "LANG", "MODEL"}
    assert (seen["HOME"], seen["TMPDIR"], folder) == (runtime.home, runtime.temporary, runtime.work)
    assert len({runtime.home, runtime.temporary, runtime.work}) == 3
    assert (work, home) == ([], [])


async def test_input_arrives_whole(start: Starter) -> None:
    runtime = await start()
    given = os.urandom(300_000)
    program = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    command = [PYTHON, "-c", program]
    ended = await runtime.exec(command, env={}, budget=Budget(60), stdin=given)
    assert ended.stdout.strip() == hashlib.sha256(given).hexdigest()
    assert (await python(runtime, "import sys; print(len(sys.stdin.read()))")).stdout == "0\n"


async def test_files_go_in_and_out(start: Starter) -> None:
    runtime = await start()
    await runtime.put("deep/er/täxt", b"one")
    await runtime.put(f"{runtime.home}/.config/a.toml", b"\0two")
    await runtime.put("tool", b"#!/bin/sh\necho ran\n", executable=True)
    assert (await runtime.exec(["./tool"], env={}, budget=Budget(60))).stdout == "ran\n"
    program = (
        "import pathlib; print(pathlib.Path('deep/er/täxt').read_text()); pathlib.Path('new').write_bytes(b'\\xff')"
    )
    assert (await python(runtime, program)).stdout == "one\n"
    assert await runtime.get("new") == b"\xff"
    assert await runtime.get(f"{runtime.home}/.config/a.toml") == b"\0two"
    await runtime.put("deep/er/täxt", b"three")
    assert await runtime.get(f"{runtime.work}/deep/er/täxt") == b"three"
    with pytest.raises(FileNotFoundError):
        await runtime.get("none")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", ".", "/"])
async def test_paths_outside_are_refused(start: Starter, path: str) -> None:
    runtime = await start()
    with pytest.raises(RuntimeFailed):
        await runtime.get(path)
    with pytest.raises(RuntimeFailed):
        await runtime.put(path, b"")


async def test_links_are_not_followed_out(start: Starter, tmp_path: Path) -> None:
    runtime = await start()
    (tmp_path / "secret").write_text("secret")
    program = (
        "import os, sys; os.symlink(sys.argv[1], 'folder'); os.symlink(sys.argv[1] + '/secret', 'file'); os.mkfifo('fifo');"
        "os.mkdir('directory')"
    )
    assert (await python(runtime, program, str(tmp_path))).exit_code == 0
    for path in ("folder/secret", "file", "fifo", "directory"):
        with pytest.raises(RuntimeFailed):
            await runtime.get(path)
    with pytest.raises(RuntimeFailed):
        await runtime.put("folder/new", b"")
    await runtime.put("file", b"mine")
    assert (tmp_path / "secret").read_text() == "secret"
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]  # noqa: ASYNC240


async def test_long_output_loses_its_middle(start: Starter) -> None:
    runtime = await start()
    ended = await python(runtime, "print('begin'); print('x' * 5_000_000); print('end')")
    assert ended.stopped_by is None
    assert ended.stdout.startswith("begin\nxxx")
    assert ended.stdout.endswith("xxx\nend\n")
    assert f"[{5_000_011 - 2 * KEPT:,} bytes are left out here]" in ended.stdout


@pytest.mark.parametrize("wait", ["600", "0"])
async def test_nothing_outlives_its_command(start: Starter, wait: str) -> None:
    runtime, name = await start(), mark()
    ended = await python(runtime, SPAWN, name, wait, seconds=3)
    assert ended.stopped_by is (StoppedBy.TIME if wait == "600" else None)
    assert ended.exit_code == (137 if wait == "600" else 0)
    assert marked(name) == []


async def test_cancelling_kills_everything(start: Starter) -> None:
    runtime, name = await start(), mark()
    running = asyncio.create_task(python(runtime, SPAWN, name, "600", seconds=600))
    await started(name, 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert marked(name) == []
    assert (await python(runtime, "print(1)")).stdout == "1\n"


async def test_stopping_kills_everything_and_leaves_no_folder(start: Starter) -> None:
    runtime, names = await start(source=None), [mark(), mark()]
    folder = runtime.folder  # type: ignore[attr-defined]
    running = [asyncio.create_task(python(runtime, SPAWN, name, "600", seconds=600)) for name in names]
    for name in names:
        await started(name, 3)
    await runtime.stop()
    assert [name for name in names if marked(name)] == []
    assert not folder.exists()
    for task in running:
        with pytest.raises(RuntimeFailed, match="stopped"):
            await task
    with pytest.raises(RuntimeFailed, match="stopped"):
        await python(runtime, "")
    await runtime.stop()


async def test_folders_without_rights_are_removed(start: Starter) -> None:
    runtime = await start()
    await python(runtime, "import os; os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)")
    folder: Path = runtime.folder  # type: ignore[attr-defined]
    above = folder.parent.stat().st_mode
    for _ in range(2):
        await runtime.stop()
        assert not folder.exists()  # noqa: ASYNC240
    assert folder.parent.stat().st_mode == above


LIMITS = Limits(memory_mb=300, file_mb=3, disk_mb=8, output_mb=2)
PASSED = {
    "memory": (
        "import os, time\nfor _ in range(4): os.fork()\ndata = b'x' * (60 << 20)\ntime.sleep(600)",
        StoppedBy.MEMORY,
    ),
    "disk": (
        "import time\nfor n in range(5): open(str(n), 'wb').write(bytes(2 << 20))\ntime.sleep(600)",
        StoppedBy.DISK,
    ),
    "output": ("while True: print('x' * 1000)", StoppedBy.OUTPUT),
}


@pytest.mark.parametrize("limit", PASSED)
async def test_a_limit_that_is_passed_ends_the_command(start: Starter, limit: str) -> None:
    program, reason = PASSED[limit]
    runtime = await start(limits=LIMITS)
    ended = await python(runtime, program)
    assert (ended.stopped_by, ended.exit_code) == (reason, 137)


async def test_a_process_is_refused_what_is_beyond_its_limits(start: Starter) -> None:
    runtime = await start(limits=LIMITS)
    ended = await python(runtime, "b'x' * (400 << 20)")
    assert ended.stderr.splitlines()[-1] == "MemoryError"
    ended = await python(runtime, "open('large', 'wb').write(bytes(4 << 20))")
    assert "File too large" in ended.stderr


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


async def test_unknown_kinds_and_impossible_limits_are_refused() -> None:
    with pytest.raises(BadSettings, match="there is no runtime 'vm'; there are bubblewrap, local"):
        await Runtimes().start("vm", Spec())
    with pytest.raises(InvalidValue, match="memory_mb is 0"):
        replace(Limits(), memory_mb=0)
