"""Canonical rows, written in a format and read back: the same ids, masks, log-probabilities and advantages.

A format is in the table with the function that reads its file. `keeps` says which of the canonical arrays it keeps as they
are; all others must agree where a token is trained.
"""

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from polarproxy.batch.sample import Sample
from polarproxy.errors import BadExport
from polarproxy.export.columns import VALUES
from polarproxy.export.files import format_named
from polarproxy.export.reading import of_arrow, of_json
from polarproxy.export.running import write_file
from tests.batch.rows import row, rows
from tests.export.exported import context, taken


@dataclass(frozen=True)
class Back:
    """A row that was read back; arrays of the length of the whole row, or None where the format has no such thing."""

    token_ids: NDArray[Any]
    loss_mask: NDArray[Any]
    rollout_logprobs: NDArray[Any]
    advantages: NDArray[Any] | float | None
    """A number: one for all trained tokens, where they have the same."""


Read = Callable[[Path], Iterable[Any]]


@dataclass(frozen=True)
class Reader:
    """How the rows of a format are read back, in order: `Sample`s, `Back`s, or anything with their fields."""

    format: str
    read: Read
    form: str | None = None
    nan: bool = True
    """Whether tokens that were not sampled have NaN again; else their log-probabilities say nothing."""
    credit: bool = True
    """Whether the advantages are kept. Formats whose trainers compute their own have none."""

    def __str__(self) -> str:
        return self.format if self.form is None else f"{self.format}-{self.form}"


def parquet(path: Path) -> Iterator[Sample]:
    return of_arrow(pq.read_table(path))


def arrow(path: Path) -> Iterator[Sample]:
    with pa.memory_map(str(path)) as file:
        yield from of_arrow(pa.ipc.open_file(file).read_all())


def jsonl(path: Path) -> list[Sample]:
    return [of_json(line) for line in path.read_bytes().splitlines()]


def tensors(path: Path) -> Iterable[Any]:
    import torch

    from polarproxy.batch.torch import GRPOBatch

    return GRPOBatch.of_content(torch.load(path, weights_only=True)).rows()


READERS = (
    Reader("parquet", parquet),
    Reader("arrow", arrow),
    Reader("jsonl", jsonl),
    Reader("torch", tensors, "padded"),
    Reader("torch", tensors, "packed"),
)


def param(reader: Reader) -> Any:
    modules = format_named(reader.format).modules
    missing = any(importlib.util.find_spec(module) is None for module in modules)
    return pytest.param(reader, id=str(reader), marks=pytest.mark.skipif(missing, reason=f"needs {modules}"))


PARAMS = [param(reader) for reader in READERS]


def same(found: Any, sample: Sample, reader: Reader) -> None:
    np.testing.assert_array_equal(found.token_ids, sample.token_ids)
    np.testing.assert_array_equal(found.loss_mask, sample.loss_mask)
    trained = sample.loss_mask == 1
    np.testing.assert_array_equal(
        np.asarray(found.rollout_logprobs, np.float32)[trained], sample.rollout_logprobs[trained]
    )
    if reader.nan:
        np.testing.assert_array_equal(np.isnan(found.rollout_logprobs), np.isnan(sample.rollout_logprobs))
    if not reader.credit:
        return
    assert (found.advantages is None) == (sample.advantages is None)
    if sample.advantages is not None:
        back = np.broadcast_to(np.asarray(found.advantages, np.float32), sample.advantages.shape)
        np.testing.assert_array_equal(back[trained], sample.advantages[trained])


@pytest.mark.parametrize("reader", PARAMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(samples=rows(least=0))
def test_what_was_written_is_read_back(tmp_path: Path, reader: Reader, samples: list[Sample]) -> None:
    path = tmp_path / f"rows{format_named(reader.format).suffix}"
    write_file(path, format_named(reader.format), taken(samples), context(reader.form))
    found = list(reader.read(path))
    assert len(found) == len(samples)
    for back, sample in zip(found, samples, strict=True):
        same(back, sample, reader)


@pytest.mark.parametrize("reader", PARAMS)
def test_no_credit_is_not_0(tmp_path: Path, reader: Reader) -> None:
    for credit in (None, 0.0, -1.5):
        samples = [row([1, 2, 3], [0, 1, 1], credit=credit), row([4, 5], [1, 1], credit=credit, branch=1)]
        path = tmp_path / f"rows{format_named(reader.format).suffix}"
        write_file(path, format_named(reader.format), taken(samples), context(reader.form))
        for back, sample in zip(reader.read(path), samples, strict=True):
            same(back, sample, reader)


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader.read in (parquet, arrow, jsonl)], ids=str)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(samples=rows(), name=st.text(max_size=9))
def test_canonical_files_keep_everything(tmp_path: Path, reader: Reader, samples: list[Sample], name: str) -> None:
    path = tmp_path / "rows"
    write_file(path, format_named(reader.format), taken(samples), context())
    for back, sample in zip(reader.read(path), samples, strict=True):
        for one in ("policy_versions", "turn_index", *(column for column, *_ in VALUES)):
            np.testing.assert_array_equal(getattr(back, one), getattr(sample, one))
        assert back.components == sample.components


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"\xff", b'{"token_ids":[1],"loss_mask":["x"]}', b"[" * 100_000],
    ids=lambda one: one[:8],
)
def test_a_line_that_is_no_row_is_refused(line: bytes) -> None:
    with pytest.raises(BadExport, match="no canonical row"):
        of_json(line)


def test_a_table_that_is_not_ours_is_refused() -> None:
    with pytest.raises(BadExport, match="the column token_ids is missing"):
        list(of_arrow(pa.table({"x": [1]})))


def test_rows_of_another_version_are_refused(tmp_path: Path) -> None:
    write_file(tmp_path / "rows", format_named("jsonl"), taken([row([1])]), context())
    line = (tmp_path / "rows").read_bytes().replace(b'"format_version":1', b'"format_version":2')
    with pytest.raises(BadExport, match="format version 2; this polarproxy reads 1"):
        of_json(line)
