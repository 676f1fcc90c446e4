"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WHOLE = ("session", "call", "created (UTC)")
"""Columns with ids and dates, which people copy."""
_FRAME = 3
"""Characters between two columns: a border and a space on either side."""
_ENDLESS = 100_000
"""Width of an output that is no terminal, so that one row is one line there."""

console = Console(stderr=False, highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on standard output: UTF-8, whatever the terminal's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
    sys.stdout.flush()


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, spare: Sequence[str] = ()
) -> None:
    """A table; None is shown as a dash. Ids, dates and numbers are never broken.

    Where the terminal is too narrow, the columns named in `spare` give way, first the first, and a line below says so.
    """
    body = list(rows)
    shown = {name: [row[place] for row in body] for place, name in enumerate(columns)}
    width, left_out = _width(), []
    for name in spare:
        if _total(shown) <= width:
            break
        del shown[name]
        left_out.append(name)
    table = Table(title=Text(title, style="italic"), title_justify="left", header_style="bold")
    for name, cells in shown.items():
        table.add_column(Text(name), overflow="fold", no_wrap=_is_whole(name, cells))
    for row in zip(*shown.values(), strict=True):
        table.add_row(*(Text(_spelled(cell)) for cell in row))
    whole = {name: cells for name, cells in shown.items() if _is_whole(name, cells)}
    # A table that is wider than the terminal can be read after all; half an id cannot be.
    least = _total(whole) + 2 * _FRAME * (len(shown) - len(whole))
    Console(width=max(width, least), highlight=False, soft_wrap=True).print(table)
    if left_out:
        console.print(Text(f"too narrow for: {', '.join(left_out)}; --json shows all", style="dim"))


def _width() -> int:
    """Characters of a line: those of the terminal, or what COLUMNS says."""
    return console.width if console.is_terminal or "COLUMNS" in os.environ else _ENDLESS


def _spelled(cell: object) -> str:
    return "-" if cell is None else str(cell)


def _is_whole(name: str, cells: Sequence[object]) -> bool:
    return name in _WHOLE or all(cell is None or isinstance(cell, (int, float)) for cell in cells)


def _total(shown: dict[str, list[object]]) -> int:
    """Characters that a table takes when no word is broken."""
    return 1 + sum(_FRAME + _need(name, cells) for name, cells in shown.items())


def _need(name: str, cells: list[object]) -> int:
    texts = [name, *map(_spelled, cells)]
    parts = texts if _is_whole(name, cells) else [word for text in texts for word in text.split()]
    return max(map(cell_len, parts), default=0)
