"""What tests of runtimes share: Python as a command, and processes that are looked for by a mark in their command line."""

import asyncio
import sys
from pathlib import Path
from secrets import token_hex

import psutil
import pytest

from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import RUNTIMES
from polarproxy.rollout.runtimes.protocol import Ended, Runtime

PYTHON = str(Path(sys.executable).resolve())
"""The interpreter itself, not the link to it in an environment: sandboxes have it."""

KINDS = [
    pytest.param(runtime.kind, marks=pytest.mark.skipif(runtime.why_not() is not None, reason=str(runtime.why_not())))
    for runtime in RUNTIMES
]
"""Every kind of runtime; those that do not work here are skipped, with the reason."""


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
