"""Where canonical rows can be read from in pieces: files of an export, or a store."""

from __future__ import annotations

from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from polarproxy.errors import BadExport
from polarproxy.export.reading import of_arrow, of_json
from polarproxy.export.records import ROWS_A_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polarproxy.batch.sample import Sample
    from polarproxy.export.collect import Collection
    from polarproxy.model import Session


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are read together."""

    key: tuple[int, int]
    """Which file or store, and where in it."""
    units: int
    """How many parts it can be cut into."""


@runtime_checkable
class Source(Protocol):
    """Rows in pieces. It is opened in the process that reads, and may be sent to others before."""

    def pieces(self) -> list[Piece]:
        """All pieces, in order."""

    def read(self, piece: Piece, start: int, stop: int) -> list[Sample]:
        """The rows of these units of a piece."""


@dataclass(frozen=True, slots=True)
class ColumnFiles:
    """Parquet files by row groups, or Arrow IPC files by record batches; a unit is a row."""

    paths: tuple[Path, ...]

    def pieces(self) -> list[Piece]:
        """Row groups and record batches, by file."""
        return [
            Piece((place, index), rows)
            for place, path in enumerate(self.paths)
            for index, rows in enumerate(_sizes(path))
        ]

    def read(self, piece: Piece, start: int, stop: int) -> list[Sample]:
        """Rows of a row group or record batch."""
        place, index = piece.key
        path = self.paths[place]
        try:
            if path.suffix == ".parquet":
                with pq.ParquetFile(path) as file:
                    table = file.read_row_group(index)
            else:
                table = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(index)
            return list(of_arrow(table.slice(start, stop - start)))
        except (pa.ArrowInvalid, BadExport) as error:
            raise BadExport(f"{path}: {error}") from error


def _sizes(path: Path) -> Iterator[int]:
    try:
        if path.suffix == ".parquet":
            metadata = pq.read_metadata(path)
            yield from (metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
        else:
            file = pa.ipc.open_file(pa.memory_map(str(path)))
            yield from (file.get_batch(index).num_rows for index in range(file.num_record_batches))
    except pa.ArrowInvalid as error:
        raise BadExport(f"{path} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class LineFiles:
    """JSON lines, some at a time; a unit is a line."""

    paths: tuple[Path, ...]

    def pieces(self) -> list[Piece]:
        """Stretches of lines, by file and by where in it they begin."""
        found = []
        for place, path in enumerate(self.paths):
            with path.open("rb") as file:
                start = at = count = 0
                for line in file:
                    at, count = at + len(line), count + 1
                    if count == ROWS_A_GROUP:
                        found.append(Piece((place, start), count))
                        start, count = at, 0
                if count:
                    found.append(Piece((place, start), count))
        return found

    def read(self, piece: Piece, start: int, stop: int) -> list[Sample]:
        """Rows of some lines."""
        place, offset = piece.key
        path = self.paths[place]
        rows: list[Sample] = []
        with path.open("rb") as file:
            file.seek(offset)
            for number, line in enumerate(file):
                if number >= stop:
                    break
                if number >= start:
                    try:
                        rows.append(of_json(line))
                    except BadExport as error:
                        raise BadExport(f"{path}: {error}") from error
        return rows


class Stored:
    """The sessions of a store, with credit as an export gives it; a session is a piece, and a unit.

    The sessions are those that are stored when this is made, so that all who read agree; rewards are those of when it is read.
    """

    def __init__(self, collect: Callable[[], Collection]) -> None:
        """`collect` opens the store; it is called again in every process that reads, and for every epoch."""
        self._collect = collect
        self._opened: Collection | None = None
        self._sessions: dict[str, Session] = {}
        self._ids = [session.session_id for session in collect().sessions]

    def __getstate__(self) -> dict[str, Any]:
        """Connections do not travel to other processes."""
        return self.__dict__ | {"_opened": None, "_sessions": {}}

    def pieces(self) -> list[Piece]:
        """Sessions by group."""
        self._opened = None
        return [Piece((0, place), 1) for place in range(len(self._ids))]

    def read(self, piece: Piece, start: int, stop: int) -> list[Sample]:
        """The rows of a session; raises `BadExport` when it is gone."""
        if self._opened is None:
            self._opened = self._collect()
            self._sessions = {session.session_id: session for session in self._opened.sessions}
        session_id = self._ids[piece.key[1]]
        if session_id not in self._sessions:
            raise BadExport(f"session {session_id} is not in the export any more, after the rows were dealt")
        return self._opened.session_rows(self._sessions[session_id]) if start < stop else []


def of_files(names: str | Path | Sequence[str | Path]) -> Source:
    """Parquet, Arrow or JSONL files by their names, which may hold `*`. Raises `BadExport` for what is none."""
    given = [names] if isinstance(names, str | Path) else list(names)
    paths = [path for name in given for path in _matching(name)]
    if not paths:
        raise BadExport(f"no file matches {', '.join(map(str, given)) or 'nothing'}")
    kinds = {path.suffix for path in paths}
    if kinds <= {".parquet", ".arrow"}:
        return ColumnFiles(tuple(paths))
    if kinds == {".jsonl"}:
        return LineFiles(tuple(paths))
    raise BadExport(
        f"rows are read from .parquet, .arrow or .jsonl files, all alike, not from {', '.join(sorted(kinds))}"
    )


def _matching(name: str | Path) -> list[Path]:
    path = Path(name)
    return [path] if path.exists() else [Path(found) for found in sorted(glob(str(name)))]  # noqa: PTH207  # may be absolute
