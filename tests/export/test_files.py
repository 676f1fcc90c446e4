"""Files read back are the rows that were written, the report with them, and the same rows are the same bytes."""

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from polarproxy.batch.sample import Sample
from polarproxy.credit.diagnostics import RewardSummary
from polarproxy.credit.versions import RewardVersion
from polarproxy.errors import BadExport, StoreDamaged
from polarproxy.export.collect import Account, Options
from polarproxy.export.columns import ARRAYS, SCHEMA
from polarproxy.export.files import (
    FORMATS,
    REPORT_KEY,
    ROWS_A_GROUP,
    write_jsonl,
    write_parquet,
    write_report,
    write_torch,
    write_torch_packed,
)
from polarproxy.export.report import encode_report
from tests.batch.rows import row

Writer = Callable[[Path, Iterable[Sample], Account], None]
SAMPLES = [row([1, 2, 3], [0, 1, 1]), row([4], credit=None, branch=1), row([5, 6], [0, 0], branch=2)]
has_torch = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="needs torch: pip install 'polarproxy[torch]'")


def account() -> Account:
    summary, version = RewardSummary(1, 2, 0, (), 0.5, 0.1), RewardVersion("d1", {"given": 2})
    return Account(Options(), summary, version, captured_tokens=4, trained_tokens=3)


def same(found: list[float | None] | None, sample: Sample, name: str) -> None:
    expected = getattr(sample, name)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        read = np.asarray([np.nan if value is None else value for value in found], expected.dtype)
        np.testing.assert_array_equal(read, expected)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet(path, SAMPLES, account())
    table = pq.read_table(path)
    assert table.schema.remove_metadata() == SCHEMA
    assert table.num_rows == 3
    for name, _ in ARRAYS:
        for found, sample in zip(table.column(name).to_pylist(), SAMPLES, strict=True):
            same(found, sample, name)
    assert table.column("branch_index").to_pylist() == [0, 1, 2]
    assert table.column("call_ids").to_pylist() == [["c0", "c1"]] * 3
    assert table.column("top_p").null_count == 3


def test_the_report_stands_in_the_metadata_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet(path, SAMPLES, account())
    metadata = pq.ParquetFile(path).metadata.metadata
    assert metadata[REPORT_KEY.encode()] == encode_report(account())


def test_the_report_is_that_of_the_end_of_the_rows(tmp_path: Path) -> None:
    """Rows are streamed, and the account is complete when the last was taken."""
    kept = account()

    def counted() -> Iterator[Sample]:
        for sample in SAMPLES:
            kept.rows += 1
            yield sample

    write_parquet(tmp_path / "rows.parquet", counted(), kept)
    written = pq.ParquetFile(tmp_path / "rows.parquet").metadata.metadata[REPORT_KEY.encode()]
    assert json.loads(written)["rows"] == 3


def test_many_rows_are_several_row_groups(tmp_path: Path) -> None:
    count = ROWS_A_GROUP + 1
    write_parquet(tmp_path / "rows.parquet", (row([place], branch=place) for place in range(count)), account())
    file = pq.ParquetFile(tmp_path / "rows.parquet")
    assert file.metadata.num_row_groups == 2
    assert file.read().column("branch_index").to_pylist() == list(range(count))


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, SAMPLES, account())
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert len(lines) == 3
    for line, sample in zip(lines, SAMPLES, strict=True):
        assert list(line) == SCHEMA.names
        for name, _ in ARRAYS:
            same(line[name], sample, name)
    assert b"NaN" not in path.read_bytes()


@pytest.mark.parametrize("write", [write_parquet, write_jsonl])
def test_no_rows_are_a_file_all_the_same(tmp_path: Path, write: Writer) -> None:
    write(tmp_path / "rows", [], account())
    if write is write_parquet:
        assert pq.read_table(tmp_path / "rows").num_rows == 0
    else:
        assert (tmp_path / "rows").read_bytes() == b""


@pytest.mark.parametrize("write", [write_parquet, write_jsonl])
def test_the_same_rows_are_the_same_bytes(tmp_path: Path, write: Writer) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, SAMPLES, account())
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def broken() -> Iterator[Sample]:
    yield from [SAMPLES[0]] * (ROWS_A_GROUP + 1)
    raise StoreDamaged("call c7 does not match its digest")


@pytest.mark.parametrize("write", [write_parquet, write_jsonl])
def test_rows_that_break_off_leave_nothing_behind(tmp_path: Path, write: Writer) -> None:
    with pytest.raises(StoreDamaged):
        write(tmp_path / "rows", broken(), account())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_parquet, write_jsonl])
def test_a_folder_that_is_missing_is_said(tmp_path: Path, write: Writer) -> None:
    with pytest.raises(BadExport, match="cannot be written"):
        write(tmp_path / "missing" / "rows", SAMPLES, account())


def test_the_report_alone(tmp_path: Path) -> None:
    write_report(tmp_path / "report.json", account())
    assert (tmp_path / "report.json").read_bytes() == encode_report(account())


def test_every_format_has_a_name_a_suffix_and_a_writer() -> None:
    assert [(name, suffix) for name, suffix, _ in FORMATS] == [
        ("parquet", ".parquet"),
        ("jsonl", ".jsonl"),
        ("torch", ".pt"),
        ("torch-packed", ".packed.pt"),
    ]


@pytest.mark.skipif(has_torch, reason="torch is installed")
def test_without_torch_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(BadExport, match=r"pip install 'polarproxy\[torch\]'"):
        write_torch(tmp_path / "rows.pt", SAMPLES, account())


@needs_torch
@pytest.mark.parametrize(("write", "shape"), [(write_torch, (2, 3)), (write_torch_packed, (5,))])
def test_torch(tmp_path: Path, write: Writer, shape: tuple[int, ...]) -> None:
    import torch

    write(tmp_path / "rows.pt", [SAMPLES[0], SAMPLES[2]], account())
    content = torch.load(tmp_path / "rows.pt", weights_only=True)
    assert tuple(content["input_ids"].shape) == shape
    assert ("cu_seqlens" in content) == (len(shape) == 1)
    assert content["report"].encode() == encode_report(account())
    assert content["format_version"] == 1


@needs_torch
def test_no_rows_are_no_tensors(tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="no rows"):
        write_torch(tmp_path / "rows.pt", [], account())
    assert list(tmp_path.iterdir()) == []
