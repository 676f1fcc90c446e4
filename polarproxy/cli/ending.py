"""Running something that starts programs to its end, also when that is told from outside."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")

ENDING = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask a program to end."""


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """What the work returns. Ctrl-C or SIGTERM breaks it off, once: it clears up, and the program ends with exit code 1.

    By asyncio's own loop: uvloop closes the pipe of a program a second time, by when the number may be another file's.
    """
    try:
        return asyncio.run(_until_told(work))
    except typer.Abort:
        # Nothing is left to be broken off.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        raise


async def _until_told(work: Coroutine[Any, Any, _T]) -> _T:
    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None

    def tell() -> None:
        # Who is impatient must not break off the clearing up.
        if not told.is_set():
            told.set()
            task.cancel()

    for number in ENDING:
        loop.add_signal_handler(number, tell)
    try:
        return await work
    except asyncio.CancelledError:
        if told.is_set():
            raise typer.Abort from None
        raise
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
