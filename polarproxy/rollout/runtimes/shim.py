"""The first process of a command: sets its limits, runs it, and leaves nothing of it behind.

Run as `python -I -S shim.py SETTINGS COMMAND…`, by its path: it imports nothing of this package, so that it starts fast and
works where only Python itself is. SETTINGS is a JSON object, see `Settings` in `process.py`. On Linux it adopts the orphans
among the command's descendants and kills them all when the command ends, when it is told to end, and when its parent dies.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import struct
import sys
import time

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVILEGES = 38
_SET_SECCOMP = 22
_NEW_USER = 0x10000000
_CLONE3 = 435
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 56, 272), "aarch64": (0xC00000B7, 220, 97)}
"""By machine: what the kernel calls it, and its numbers of `clone` and `unshare`."""
CANNOT_RUN, NOT_FOUND = 126, 127
GONE_S = 20.0
"""How long what is killed may take to end: moments, but for a machine that is busy with other things."""
platform = os.uname().machine


def adopt() -> None:
    """Orphans of this process's descendants become its children, and it hears of its parent's death. Linux only."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def become(user: int) -> None:
    """From root to a user without rights, for good, who makes no user namespace in which it would have them again."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    if platform in _SYSTEM_CALLS:
        _filter_calls(*_SYSTEM_CALLS[platform])


def _filter_calls(arch: int, clone: int, unshare: int) -> None:
    """A seccomp program: `clone` and `unshare` fail with that flag, and `clone3`, whose flags it cannot see, is not there."""
    load, equal, least, has, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, missing = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    steps = (
        (load, 0, 0, 4),
        (equal, 0, 9, arch),
        (load, 0, 0, 0),
        # The other numbering of x86-64.
        (least, 7, 0, 0x40000000),
        (equal, 7, 0, _CLONE3),
        (equal, 2, 0, clone),
        (equal, 1, 0, unshare),
        (answer, 0, 0, allow),
        (load, 0, 0, 16),
        (has, 1, 0, _NEW_USER),
        (answer, 0, 0, allow),
        (answer, 0, 0, refuse),
        (answer, 0, 0, missing),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.prctl(_SET_SECCOMP, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls cannot be set")


def limit(settings: dict) -> None:  # type: ignore[type-arg]
    """Limits of the command and of what it starts, each process for itself but for the number of processes."""
    # Not the address space: V8 and others reserve far more of it than they use.
    data = settings["memory_mb"] if sys.platform == "linux" else None
    asked = (
        ("RLIMIT_FSIZE", settings["file_mb"], 20),
        ("RLIMIT_DATA", data, 20),
        ("RLIMIT_NPROC", settings["processes"], 0),
    )
    wanted = [("RLIMIT_CORE", 0), *((name, value << bits) for name, value, bits in asked if value is not None)]
    for name, value in wanted:
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (most, most))


def start(command: list[str], settings: dict) -> int:  # type: ignore[type-arg]
    """The process id of the command, as a child."""
    child = os.fork()
    if child:
        return child
    try:
        limit(settings)
        if settings["folder"] is not None:
            os.chdir(settings["folder"])
            os.environ["PWD"] = settings["folder"]
        # Python ignores it, and what it starts would too.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)


def relay(port: int, path: str) -> None:
    """Listens on a loopback port and passes each connection on to a Unix socket, in a process of its own."""
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    if os.fork():
        listener.close()
        return
    import asyncio

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(path)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, back), copy(there, writer))
        writer.close()
        back.close()

    async def serve() -> None:
        async with await asyncio.start_server(accept, sock=listener) as server:
            await server.serve_forever()

    asyncio.run(serve())


def wait(child: int) -> int:
    """The command's exit code, negative when a signal ended it; reaps adopted orphans meanwhile."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def end(code: int, by_signal: bool) -> int:
    """The exit code as a shell gives it. `by_signal`: what a signal ended is ended by it here too."""
    if code < 0 and by_signal:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


def descendants(root: int) -> list[int]:
    """Every process below that one, as far as the kernel tells while they come and go."""
    found: list[int] = []
    ahead = [root]
    while ahead:
        below = children(ahead.pop())
        found += below
        ahead += below
    return found


def children(pid: int) -> list[int]:
    """Of every thread of a process; asking for them costs nothing for the other processes of the machine."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  (pathlib takes long to import)
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:
        # It ended, or this kernel has no such file.
        return found if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children") else scanned(pid)  # noqa: PTH110
    return found


def scanned(parent: int) -> list[int]:
    """The children of a process, looked for among all processes."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields and fields[1].isdigit() and int(fields[1]) == parent:
            found.append(int(name))
    return found


def sweep() -> None:
    """Kills until nothing is left, for as long as is waited for it; elsewhere than on Linux, only the process group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform != "linux":
        os.killpg(0, signal.SIGKILL)
    until = time.monotonic() + GONE_S
    while not reaped() and time.monotonic() < until:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.002)


def reaped() -> bool:
    """Whether nothing is left: an orphan would be a child of this process."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def main(arguments: list[str]) -> int:
    """Runs the command; its exit code."""
    settings = json.loads(arguments[0])
    adopt()
    if settings["parent"] not in (None, os.getppid()):
        # It died before its death could be heard of.
        return 128 + signal.SIGKILL

    def told_to_end(_number: int, _frame: object) -> None:
        sweep()
        os._exit(128 + signal.SIGKILL)

    signal.signal(signal.SIGTERM, told_to_end)
    if settings["user"] is not None:
        become(settings["user"])
    if settings["relay"] is not None:
        relay(*settings["relay"])
    code = wait(start(arguments[1:], settings))
    sweep()
    return end(code, settings["by_signal"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
