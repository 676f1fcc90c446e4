"""All rows of a file as one batch of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polarproxy.batch.sample import FORMAT_VERSION
from polarproxy.export.format import rows_of
from polarproxy.export.report import encode_report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from polarproxy.export.format import Context, Taken

PADDED, PACKED = "padded", "packed"


def write_torch(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """The content of a `GRPOBatch`, right-padded or packed, with the report as JSON text.

    A batch is in memory as a whole, so that a large export is one of many files (`--shards`).
    """
    from polarproxy.batch.torch import GRPOBatch

    samples = list(rows_of(sessions))
    batch = GRPOBatch.packed(samples) if context.form == PACKED else GRPOBatch.padded(samples)
    report = encode_report(context.account).decode()
    save(path, batch.content() | {"report": report, "format_version": FORMAT_VERSION})


def save(path: Path, content: Any) -> None:
    """As torch saves it. Raises `OSError` when the file cannot be written, which torch itself takes for an archive of its own
    that is broken."""
    import torch

    # By a file, not by its name, which would stand in the archive.
    with path.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            before = error.__context__
            if isinstance(before, OSError):
                raise before from error
            raise
