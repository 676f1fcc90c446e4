"""Writing rows: Parquet, JSONL, torch. Rows are streamed; a file appears only when it is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from polarproxy.batch.collate import pack, pad
from polarproxy.errors import BadExport
from polarproxy.export.atomic import whole_file
from polarproxy.export.columns import SCHEMA, to_arrow, to_json
from polarproxy.export.report import encode_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from polarproxy.batch.sample import Sample
    from polarproxy.export.collect import Account

ROWS_A_GROUP = 256
TOKENS_A_GROUP = 1 << 20
"""A group of rows ends with the row that makes it so long: what is in memory does not grow with the export."""
REPORT_KEY = "polarproxy.report"


def _chunks(rows: Iterable[Sample]) -> Iterator[list[Sample]]:
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


def write_parquet(path: Path, rows: Iterable[Sample], account: Account) -> None:
    """zstd level 1, no dictionaries; the report stands in the file's metadata under `polarproxy.report`."""
    with (
        whole_file(path) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd", compression_level=1, use_dictionary=False) as writer,
    ):
        for chunk in _chunks(rows):
            writer.write_table(to_arrow(chunk))
            # Else it would be held until the next one is complete.
            chunk.clear()
        writer.add_key_value_metadata({REPORT_KEY: encode_report(account).decode()})


def write_jsonl(path: Path, rows: Iterable[Sample], _account: Account) -> None:
    """One row a line; NaN is null."""
    encoder = msgspec.json.Encoder()
    with whole_file(path) as temporary, temporary.open("wb") as file:
        for row in rows:
            file.write(encoder.encode(to_json(row)) + b"\n")


def _write_torch(path: Path, rows: Iterable[Sample], account: Account, *, packed: bool) -> None:
    try:
        import torch

        from polarproxy.batch.torch import to_tensors
    except ModuleNotFoundError as error:
        raise BadExport("torch is missing; install it with: pip install 'polarproxy[torch]'") from error
    samples = list(rows)
    if not samples:
        raise BadExport(
            "there are no rows to make tensors of; `polarproxy export` with another format shows the report"
        )
    tensors = to_tensors(pack(samples) if packed else pad(samples))
    content = {**tensors, "report": encode_report(account).decode(), "format_version": samples[0].format_version}
    with whole_file(path) as temporary:
        torch.save(content, temporary)


def write_torch(path: Path, rows: Iterable[Sample], account: Account) -> None:
    """A dict of right-padded tensors, all rows in one batch, with the report as JSON text."""
    _write_torch(path, rows, account, packed=False)


def write_torch_packed(path: Path, rows: Iterable[Sample], account: Account) -> None:
    """A dict of packed tensors with `cu_seqlens`, all rows in one sequence, with the report as JSON text."""
    _write_torch(path, rows, account, packed=True)


FORMATS: tuple[tuple[str, str, Callable[[Path, Iterable[Sample], Account], None]], ...] = (
    ("parquet", ".parquet", write_parquet),
    ("jsonl", ".jsonl", write_jsonl),
    ("torch", ".pt", write_torch),
    ("torch-packed", ".packed.pt", write_torch_packed),
)
"""Name, suffix and writer of each format."""


def report_path(path: Path) -> Path:
    """Where the report of an export lies: beside it, by its whole name, so that two formats do not share one."""
    return path.with_name(f"{path.name}.report.json")


def write_report(path: Path, account: Account) -> None:
    """The report as a file of its own."""
    with whole_file(path) as temporary:
        temporary.write_bytes(encode_report(account))
