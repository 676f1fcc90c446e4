"""What a job looks like while it runs: a live view on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from polarproxy.cli.output import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polarproxy.rollout.jobs.tally import Tally

_LINE_S = 10.0


class Progress:
    """Of one job; `wanted` rollouts in all, or fewer when `target` usable ones are enough."""

    def __init__(self, tally: Tally, wanted: int, target: int | None, running: Callable[[], int]) -> None:
        self._tally, self._wanted, self._target, self._running = tally, wanted, target, running
        self._began, self._before = time.monotonic(), (tally.attempted, tally.usable, tally.completion_tokens)
        self._said = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows it while the block runs."""
        if not errors.is_terminal:
            yield
            return
        with Live(get_renderable=self._view, console=errors, refresh_per_second=4, transient=True):
            yield

    def note(self) -> None:
        """Something has changed."""
        now = time.monotonic()
        if not errors.is_terminal and now - self._said >= _LINE_S:
            self._said = now
            errors.print(self.line(), markup=False)

    def line(self) -> str:
        """All of it in one line."""
        tally = self._tally
        rate = "-" if tally.accepted_rate is None else f"{tally.accepted_rate:.0%}"
        parts = [
            f"{tally.attempted + tally.skipped} of {self._wanted} done",
            f"{self._running()} running",
            f"{tally.usable}{'' if self._target is None else f' of {self._target}'} accepted ({rate})",
            f"{self._speed():.0f} tokens/s",
            f"{self._left()} left",
        ]
        wrong = [f"{name} {count}" for name, count in tally.left_out.most_common(4)]
        return " · ".join([*parts, *(["not accepted: " + ", ".join(wrong)] if wrong else [])])

    def _speed(self) -> float:
        return (self._tally.completion_tokens - self._before[2]) / max(time.monotonic() - self._began, 1e-3)

    def _left(self) -> str:
        """How long it will take, by how long it took until now."""
        ended, usable = self._tally.attempted - self._before[0], self._tally.usable - self._before[1]
        shares = [(ended, self._wanted - self._tally.attempted - self._tally.skipped)]
        if self._target is not None:
            shares.append((usable, self._target - self._tally.usable))
        took = time.monotonic() - self._began
        left = [took / done * more for done, more in shares if done]
        return "?" if not left else f"{max(0, round(min(left)))} s"

    def _view(self) -> Group:
        done = self._tally.attempted + self._tally.skipped
        return Group(ProgressBar(total=max(self._wanted, 1), completed=done, width=60), Text(self.line()))
