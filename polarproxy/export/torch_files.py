"""All rows of a file as one batch of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.batch.collate import pack, pad
from polarproxy.errors import BadExport
from polarproxy.export.format import rows_of
from polarproxy.export.report import encode_report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from polarproxy.export.format import Context, Taken

PADDED, PACKED = "padded", "packed"


def write_torch(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """A dict of tensors, right-padded or packed with `cu_seqlens`, with the report as JSON text."""
    import torch

    from polarproxy.batch.torch import to_tensors

    samples = list(rows_of(sessions))
    if not samples:
        raise BadExport(
            "there are no rows to make tensors of; `polarproxy export` with another format shows the report"
        )
    tensors = to_tensors(pack(samples) if context.form == PACKED else pad(samples))
    report = encode_report(context.account).decode()
    # By a file, not by its name, which would stand in the archive.
    with path.open("wb") as file:
        torch.save({**tensors, "report": report, "format_version": samples[0].format_version}, file)
