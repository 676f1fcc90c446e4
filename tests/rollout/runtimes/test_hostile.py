"""A task that wants out of bubblewrap: each way is tried by a program that reports how far it came."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from polarproxy.rollout.runtimes.bubblewrap import BubblewrapRuntime
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Runtime, Spec, StoppedBy
from tests.rollout.runtimes.place import CONNECT, LIMITS, PYTHON, mark, marked, python, reports, started

pytestmark = pytest.mark.skipif(
    (reason := BubblewrapRuntime.why_not()) is not None, reason=f"needs bubblewrap: {reason}"
)


@pytest.fixture
async def sandbox() -> AsyncIterator[Runtime]:
    async with Runtimes().running("bubblewrap", Spec(limits=LIMITS)) as runtime:
        yield runtime


BOMB = """
import json, os, sys, time
made, refused = 0, 0
while refused < 20:
    try:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
    except OSError:
        refused += 1
print(json.dumps(made), flush=True)
time.sleep(float(sys.argv[1]))
"""


async def test_a_fork_bomb_is_refused_processes_and_dies_with_its_command(sandbox: Runtime) -> None:
    name = mark()
    made = await reports(sandbox, BOMB, "0", name)
    assert 10 <= made <= LIMITS.processes + 4
    assert marked(name) == []
    ended = await python(sandbox, BOMB, "600", name, seconds=3)
    assert ended.stopped_by in (StoppedBy.TIME, StoppedBy.PROCESSES)
    assert marked(name) == []


async def test_ten_gigabytes_do_not_reach_the_disk(sandbox: Runtime, tmp_path: Path) -> None:
    for place in ("/", "/usr", "/etc", "/dev", "/run/polarproxy", "/var"):
        ended = await python(sandbox, "import sys; open(sys.argv[1] + '/x', 'wb').write(bytes(1 << 20))", place)
        assert ended.exit_code == 1, place
    shared = await python(sandbox, "open('/dev/shm/a', 'wb').write(bytes(30 << 20)); print('written')")
    assert shared.stdout == "written\n"
    one_file = "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))"
    ended = await python(sandbox, one_file)
    assert "File too large" in ended.stderr
    many = """
n = 0
while n < 2000:
    n += 1
    for folder in ('.', '/tmp', '/home/agent'):
        with open(f'{folder}/{n}', 'wb') as file: file.write(bytes(5 << 20))
"""
    ended = await python(sandbox, many)
    assert ended.stopped_by is StoppedBy.DISK


LOOK = """
import json, os
found = {}
for place in ('/etc/shadow', '/etc/passwd', '/etc/hostname', '/etc/hosts', '/etc/resolv.conf', '/home', '/var', '/opt',
              '/srv', '/mnt', '/media', '/sys', '/boot', '/run', '/tmp', '/proc/1/environ', '/proc/kcore',
              '/proc/sys/kernel/core_pattern'):
    try:
        if os.path.isdir(place):
            found[place] = sorted(os.listdir(place))
        else:
            mode = 'r+b' if place.startswith('/proc/sys') else 'rb'
            with open(place, mode) as file:
                found[place] = file.read(4096).decode(errors='replace')
    except OSError as error:
        found[place] = None
print(json.dumps([found, sorted(os.listdir('/etc')), sorted(os.listdir('/'))]))
"""


async def test_nothing_of_this_machine_s_etc_and_homes_is_there(
    sandbox: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "planted-credential")
    found, etc, root = await reports(sandbox, LOOK)
    assert [line.split(":")[0] for line in found["/etc/passwd"].splitlines()] == ["root", "agent"]
    for place in ("/etc/shadow", "/etc/hostname", "/var", "/opt", "/srv", "/mnt", "/media", "/sys", "/boot"):
        assert found[place] is None, place
    # Where it may be read at all.
    assert "planted-credential" not in (found["/proc/1/environ"] or "")
    for place in ("/proc/kcore", "/proc/sys/kernel/core_pattern"):
        assert not found[place], place
    assert found["/etc/resolv.conf"] == ""
    assert found["/home"] == ["agent"]
    assert found["/run"] == ["polarproxy"]
    assert found["/tmp"] == []
    assert {"shadow", "ssh", "sudoers", "environment", "machine-id", "gitconfig"}.isdisjoint(etc)
    system = {"bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr"}
    assert set(root) - system <= {"dev", "etc", "home", "proc", "run", "tmp", "workspace", Path(PYTHON).parts[1]}


async def test_other_runs_can_neither_be_seen_nor_read_nor_signalled(sandbox: Runtime) -> None:
    secret, name = "sk-polar-other-session", mark()
    async with Runtimes().running("bubblewrap", Spec(limits=LIMITS)) as other:
        await other.put("key", secret.encode())
        program = ["-c", "import time; time.sleep(600)", name]
        running = asyncio.create_task(other.exec([PYTHON, *program], env={"KEY": secret}, budget=Budget(600)))
        await started(name, 1)
        victim = marked(name)[0].pid
        spy = """
import json, os, sys
seen = []
for top in ('/tmp', '/home', '/workspace', '/run', '/dev', '/proc'):
    for folder, _, files in os.walk(top):
        for file in files:
            if folder.count('/') > 3 and top == '/proc': continue
            try:
                with open(os.open(os.path.join(folder, file), os.O_RDONLY | os.O_NONBLOCK), 'rb') as opened:
                    if b'sk-polar-other' in (opened.read(1 << 16) or b''): seen.append(os.path.join(folder, file))
            except OSError: pass
try:
    os.kill(int(sys.argv[1]), 9); killed = True
except OSError: killed = False
print(json.dumps([seen, killed, len([n for n in os.listdir('/proc') if n.isdigit()])]))
"""
        # Its own command line has no key in it: the word is put together inside.
        seen, killed, processes = await reports(
            sandbox, spy.replace("sk-polar-other", "sk-polar-' b'other"), str(victim)
        )
        assert (seen, killed) == ([], False)
        assert processes <= 5
        assert marked(name)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_there_is_no_network(sandbox: Runtime, tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener, socket.socket(socket.AF_UNIX) as unix:
        port = listener.getsockname()[1]
        unix.bind(str(tmp_path / "unix"))
        unix.listen()
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0{tmp_path}")
        abstract.listen()
        own = [address.address for addresses in psutil.net_if_addrs().values() for address in addresses]
        hosts = ["127.0.0.1", "192.0.2.1", "169.254.169.254", *(host for host in own if host.count(".") == 3)]
        targets: list[object] = [[host, port] for host in hosts]
        found = await reports(sandbox, CONNECT, json.dumps([*targets, str(tmp_path / "unix"), f"\0{tmp_path}"]))
        abstract.close()
    assert "connected" not in found.values()
    assert {"name", "udp"}.isdisjoint(found)


SURVIVE = """
import os, signal, subprocess, sys, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork() == 0:
    os.setsid()
    os.close(0); os.close(1); os.close(2)
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
# And the process that would clean up.
os.kill(os.getppid(), 19)
time.sleep(600)
"""


async def test_what_ignores_every_signal_and_stops_its_keeper_dies(sandbox: Runtime) -> None:
    name = mark()
    running = asyncio.create_task(python(sandbox, SURVIVE, name, seconds=600))
    await started(name, 2)
    asked = time.monotonic()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert marked(name) == []
    assert time.monotonic() - asked < 30
    ended = await python(sandbox, SURVIVE, name, seconds=2)
    assert ended.stopped_by is StoppedBy.TIME
    assert marked(name) == []


async def test_it_cannot_become_another_user_or_get_rights(sandbox: Runtime) -> None:
    program = """
import json, os
tried = {}
for name, act in (('setuid', lambda: os.setuid(0)), ('chroot', lambda: os.chroot('/')), ('chown', lambda: os.chown('.', 0, 0)),
                  ('mknod', lambda: os.mknod('disk', 0o60600, os.makedev(254, 0))), ('nice', lambda: os.nice(-10))):
    try: act(); tried[name] = True
    except OSError: tried[name] = False
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
print(json.dumps([tried, status['CapEff'].strip(), status['CapPrm'].strip(), status['NoNewPrivs'].strip(), os.getuid() == 0]))
"""
    tried, effective, permitted, no_new, is_root = await reports(sandbox, program)
    assert tried == {"setuid": False, "chroot": False, "chown": False, "mknod": False, "nice": False}
    assert (int(effective, 16), int(permitted, 16), no_new, is_root) == (0, 0, "1", False)


NAMESPACE = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
new_user = 0x10000000
tried = {"unshare": libc.unshare(new_user), "unshare more": libc.unshare(new_user | 0x20000)}
if os.uname().machine == "x86_64":
    tried["clone"] = libc.syscall(56, new_user | 17, 0, 0, 0, 0)
    if tried["clone"] == 0: os._exit(0)
    tried["clone3"] = libc.syscall(435, 0, 0)
import threading
thread = threading.Thread(target=lambda: tried.update(thread=True)); thread.start(); thread.join()
print(json.dumps(tried))
"""


async def test_it_makes_no_namespace_in_which_it_has_rights(sandbox: Runtime) -> None:
    """With them it could mount memory that no limit counts."""
    tried = await reports(sandbox, NAMESPACE)
    assert tried.pop("thread") is True
    assert set(tried.values()) == {-1}


def test_bubblewrap_is_said_to_be_missing_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "install your system's package bubblewrap" in str(BubblewrapRuntime.why_not())


def test_bubblewrap_that_does_not_work_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no permissions' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "no permissions" in str(BubblewrapRuntime.why_not())
