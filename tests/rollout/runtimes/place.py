"""What tests of runtimes share: Python as a command, and processes that are looked for by a mark in their command line."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

import psutil
import pytest

from polarproxy.rollout.runtimes.bubblewrap import BubblewrapRuntime
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.local import LocalRuntime
from polarproxy.rollout.runtimes.protocol import Ended, Limits, Runtime

Starter = Callable[..., Awaitable[Runtime]]
"""Starts a runtime; its arguments are those of `Spec`."""
PYTHON = str(Path(sys.executable).resolve())
"""The interpreter itself, not the link to it in an environment: sandboxes have it."""

KINDS = [
    pytest.param(kind.kind, marks=pytest.mark.skipif(kind.why_not() is not None, reason=str(kind.why_not())))
    for kind in (BubblewrapRuntime, LocalRuntime)
]
"""The kinds that run this machine's own programs; one that does not work here is skipped, with the reason."""


async def python(runtime: Runtime, program: str, *arguments: str, seconds: float = 60.0, **env: str) -> Ended:
    """Runs a program of Python's."""
    return await runtime.exec([PYTHON, "-c", program, *arguments], env=env, budget=Budget(seconds))


def mark() -> str:
    """An argument that no other process has."""
    return f"mark-{token_hex(8)}"


def marked(argument: str) -> list[psutil.Process]:
    """The processes that have the argument and run; those that nobody has reaped yet do not."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if argument in (process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


async def started(argument: str, count: int) -> None:
    """Waits until so many processes have the argument."""
    for _ in range(3000):
        if len(marked(argument)) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(marked(argument))} processes of {count} after 30 s")


async def gone(argument: str) -> None:
    """Waits until no process has the argument."""
    for _ in range(3000):
        if not marked(argument):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"after 30 s there are still {marked(argument)}")


async def reports(runtime: Runtime, program: str, *arguments: str) -> Any:
    """The JSON that the program prints last."""
    ended = await python(runtime, program, *arguments)
    assert ended.exit_code == 0, ended
    return json.loads(ended.stdout.splitlines()[-1])


LIMITS = Limits(memory_mb=512, processes=40, file_mb=32, disk_mb=64, output_mb=4)

CONNECT = """
import json, socket, sys
found = {}
for target in json.loads(sys.argv[1]):
    try:
        if isinstance(target, list):
            socket.create_connection(tuple(target), timeout=3).close()
        else:
            family = socket.socket(socket.AF_UNIX)
            family.connect(target)
        found[str(target)] = 'connected'
    except OSError as error:
        found[str(target)] = error.strerror or type(error).__name__
try:
    socket.getaddrinfo('example.com', 80)
    found['name'] = 'found'
except OSError: pass
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('192.0.2.1', 53)); found['udp'] = 'sent'
except OSError: pass
print(json.dumps(found))
"""
"""Tries the targets of its argument, a JSON list of [host, port] and of paths of sockets."""
