"""The canonical rows as files: Parquet, Arrow IPC, JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from polarproxy.export.columns import SCHEMA, VALUES, Tables, to_json
from polarproxy.export.format import rows_of
from polarproxy.export.records import chunks, write_lines
from polarproxy.export.report import encode_report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from polarproxy.export.format import Context, Taken

REPORT_KEY = "polarproxy.report"
_FILTERED = [name for name, kind, _ in VALUES if not pa.types.is_nested(kind)]
"""The least and the largest token of a row say nothing, and cost as much as a third of writing them."""


_SPLIT = {"token_ids.list.element": "BYTE_STREAM_SPLIT"}
"""Ids are mostly below 2^18: by planes of bytes they are smaller, and compressed in two thirds of the time."""
_PIECE = 1 << 12
"""Tokens of a row that goes through the encoder alone."""
_PAGE = 1 << 18
"""Bytes, so that a page is still in the processor's cache when it is compressed."""


def write_parquet(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """zstd level −1, no dictionaries, statistics of what can be filtered by; the report stands in the file's metadata."""
    tables = Tables(_PIECE)
    with pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        compression_level=-1,
        use_dictionary=False,
        write_statistics=_FILTERED,
        column_encoding=_SPLIT,
        data_page_size=_PAGE,
    ) as writer:
        for chunk in chunks(rows_of(sessions)):
            writer.write_table(tables.of(chunk))
            # Else it would be held until the next one is complete.
            chunk.clear()
        writer.add_key_value_metadata({REPORT_KEY: encode_report(context.account).decode()})


def write_arrow(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """The IPC file format, not compressed, so that it can be mapped. The report stands beside it alone."""
    tables = Tables()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for chunk in chunks(rows_of(sessions)):
            writer.write_table(tables.of(chunk))
            chunk.clear()


def write_jsonl(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """One row a line; NaN is null."""
    write_lines(path, map(to_json, rows_of(sessions)))
