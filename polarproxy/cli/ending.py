"""Running something that starts programs to its end, also when that is told from outside."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """What the work returns. SIGTERM breaks it off as Ctrl-C does: it clears up, and the program ends with exit code 1.

    By asyncio's own loop: uvloop closes the pipe of a program a second time, by when the number may be another file's.
    """
    return asyncio.run(_until_told(work))


async def _until_told(work: Coroutine[Any, Any, _T]) -> _T:
    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None

    def tell() -> None:
        told.set()
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, tell)
    try:
        return await work
    except asyncio.CancelledError:
        if told.is_set():
            raise typer.Abort from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
