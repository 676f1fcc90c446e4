"""Streaming records to a file, a piece at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from polarproxy.batch.sample import Sample

ROWS_A_GROUP = 256
TOKENS_A_GROUP = 1 << 19
"""A group of rows ends with the row that makes it so long: what is in memory does not grow with the export."""


def chunks(rows: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Rows in groups, each as long as is held at a time. Whoever is done with a group clears it."""
    chunk: list[Sample] = []
    tokens = 0
    for row in rows:
        chunk.append(row)
        tokens += len(row.token_ids)
        if len(chunk) == ROWS_A_GROUP or tokens >= TOKENS_A_GROUP:
            yield chunk
            chunk, tokens = [], 0
    if chunk:
        yield chunk


def write_lines(path: Path, records: Iterable[Any]) -> None:
    """One JSON value a line: structs, dataclasses, plain values. NaN and infinities are null."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for record in records:
            file.write(encoder.encode(record) + b"\n")
