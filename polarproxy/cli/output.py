"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WHOLE = ("session", "call")
"""Columns with ids, which people copy."""

console = Console(stderr=False, highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; None is shown as a dash."""
    table = Table(title=Text(title, style="italic"), title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(Text(name), overflow="fold", no_wrap=name in _WHOLE)
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    console.print(table)
