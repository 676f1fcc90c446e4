"""What earlier exports to the same name left, in other files than the new one writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE
from polarproxy.export.plan import stem_and_ending
from polarproxy.export.unfinished import file_digest

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class _File(msgspec.Struct):
    name: str
    bytes: int
    xxh3_128: str


class _Report(msgspec.Struct):
    files: list[_File] = []


def superseded(report: Path, names: Collection[str]) -> list[Path]:
    """The files of the export whose report lies there, as that wrote them, but for those of these names."""
    try:
        told = msgspec.json.decode(report.read_bytes(), type=_Report)
    except (OSError, *UNREADABLE):
        return []
    there = {entry.name: entry for entry in report.parent.iterdir()}
    return [there[one.name] for one in told.files if one.name not in names and _is(there.get(one.name), one)]


def _is(path: Path | None, file: _File) -> bool:
    """Whether nobody changed it: what somebody did is theirs."""
    try:
        return (
            path is not None
            and path.is_file()
            and not path.is_symlink()
            and path.stat().st_size == file.bytes
            and file_digest(path) == file.xxh3_128
        )
    except OSError:
        return False


def others(out: Path, suffix: str, names: Collection[str]) -> list[str]:
    """Files beside `out` that are named as shards of it are, but for those of these names."""
    stem, ending = stem_and_ending(out.name, suffix)
    shard = re.compile(rf"{re.escape(stem)}(\.[A-Za-z0-9_]+)?-\d{{5}}-of-\d{{5}}{re.escape(ending)}")
    return sorted(one.name for one in out.parent.iterdir() if shard.fullmatch(one.name) and one.name not in names)
