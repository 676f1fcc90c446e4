"""What every runtime that works here does: commands, files, patches, limits, and a sure end."""

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from polarproxy.errors import BadSettings, InvalidValue, RuntimeFailed
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.process import KEPT
from polarproxy.rollout.runtimes.protocol import Limits, Spec, StoppedBy
from tests.rollout.runtimes.place import PYTHON, Starter, mark, marked, python, started

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


@pytest.mark.parametrize("word", ["a\0b", "\ud800", "x" * 3_000_000])
async def test_what_no_command_line_can_hold_is_told(start: Starter, word: str) -> None:
    runtime = await start()
    with pytest.raises(RuntimeFailed, match="echo cannot be"):
        await runtime.exec(["echo", word], env={}, budget=Budget(60))
    assert (await python(runtime, "print(1)")).stdout == "1\n"


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
    "disk, by files without a name": (
        "import os, time\nkept = []\nfor n in range(5):\n"
        "    kept.append(open(str(n), 'wb', 0)); os.unlink(str(n)); kept[n].write(bytes(2 << 20))\ntime.sleep(600)",
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


async def test_unknown_kinds_and_impossible_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BadSettings, match="there is no runtime 'vm'; there are bubblewrap, local"):
        await Runtimes().start("vm", Spec())
    with pytest.raises(RuntimeFailed, match="podman cannot be used: podman is not installed"):
        await Runtimes().start("podman", Spec())
    with pytest.raises(InvalidValue, match="memory_mb is 0"):
        Limits(memory_mb=0)
    with pytest.raises(InvalidValue, match="file_mb is 2147483648"):
        Limits(file_mb=2**31)
