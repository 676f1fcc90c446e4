"""Files read back are the rows that were written, the report with them, and the same rows are the same bytes."""

import importlib.util
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polarproxy.batch.sample import Sample
from polarproxy.errors import BadExport, StoreDamaged
from polarproxy.export.canonical import REPORT_KEY
from polarproxy.export.columns import ARRAYS, SCHEMA
from polarproxy.export.files import FORMATS, format_named, format_of
from polarproxy.export.format import Context, Format, Taken
from polarproxy.export.records import ROWS_A_GROUP
from polarproxy.export.report import encode_report
from polarproxy.export.running import write_file, write_report
from tests.batch.rows import row
from tests.export.exported import account, context, taken

SAMPLES = [row([1, 2, 3], [0, 1, 1]), row([4], credit=None, branch=1), row([5, 6], [0, 0], branch=2)]
has_torch = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="needs torch: pip install 'polarproxy[torch]'")
PARQUET, JSONL, ARROW, TORCH = (format_named(name) for name in ("parquet", "jsonl", "arrow", "torch"))


def write(path: Path, kind: Format, samples: list[Sample] = SAMPLES) -> None:
    write_file(path, kind, taken(samples), context())


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
    write(path, PARQUET)
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
    write(path, PARQUET)
    metadata = pq.ParquetFile(path).metadata.metadata
    assert metadata[REPORT_KEY.encode()] == encode_report(account())


def test_the_report_is_that_of_the_end_of_the_rows(tmp_path: Path) -> None:
    """Rows are streamed, and the account is complete when the last was taken."""
    kept = account()

    def counted() -> Iterator[Taken]:
        for one in taken(SAMPLES):
            kept.rows += 1
            yield one

    write_file(tmp_path / "rows.parquet", PARQUET, counted(), Context(kept))
    written = pq.ParquetFile(tmp_path / "rows.parquet").metadata.metadata[REPORT_KEY.encode()]
    assert json.loads(written)["rows"] == 3


def test_many_rows_are_several_row_groups(tmp_path: Path) -> None:
    count = ROWS_A_GROUP + 1
    write(tmp_path / "rows.parquet", PARQUET, [row([place], branch=place) for place in range(count)])
    file = pq.ParquetFile(tmp_path / "rows.parquet")
    assert file.metadata.num_row_groups == 2
    assert file.read().column("branch_index").to_pylist() == list(range(count))


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write(path, JSONL)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert len(lines) == 3
    for line, sample in zip(lines, SAMPLES, strict=True):
        assert list(line) == SCHEMA.names
        for name, _ in ARRAYS:
            same(line[name], sample, name)
    assert b"NaN" not in path.read_bytes()


def test_arrow(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    write(path, ARROW)
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
        assert table.schema == SCHEMA
        for name, _ in ARRAYS:
            for found, sample in zip(table.column(name).to_pylist(), SAMPLES, strict=True):
                same(found, sample, name)


@pytest.mark.parametrize(("kind", "empty"), [(PARQUET, None), (JSONL, 0), (ARROW, None)])
def test_no_rows_are_a_file_all_the_same(tmp_path: Path, kind: Format, empty: int | None) -> None:
    path = tmp_path / "rows"
    write(path, kind, [])
    if kind is PARQUET:
        assert pq.read_table(path).num_rows == 0
    elif kind is ARROW:
        assert pa.ipc.open_file(pa.OSFile(str(path))).read_all().num_rows == 0
    else:
        assert path.stat().st_size == empty


@pytest.mark.parametrize("kind", [PARQUET, JSONL, ARROW], ids=lambda kind: kind.name)
def test_rows_that_break_off_leave_nothing_behind(tmp_path: Path, kind: Format) -> None:
    def broken() -> Iterator[Taken]:
        yield from taken([SAMPLES[0]] * (ROWS_A_GROUP + 1))
        raise StoreDamaged("call c7 does not match its digest")

    with pytest.raises(StoreDamaged):
        write_file(tmp_path / "rows", kind, broken(), context())
    assert list(tmp_path.iterdir()) == []


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """As on a disk that is nearly full: no file can be longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


LONG = row(list(range(40_000)), [0] + [1] * 39_999)


@pytest.mark.parametrize("kind", [one for one in FORMATS if one.needs == "rows"], ids=lambda kind: kind.name)
def test_what_finds_no_room_is_said_and_the_file_before_stays(tmp_path: Path, kind: Format) -> None:
    if "torch" in kind.modules and not has_torch:
        pytest.skip("needs torch: pip install 'polarproxy[torch]'")
    (tmp_path / "rows").write_bytes(b"before")
    for form in kind.forms or (None,):
        with room_for(60_000), pytest.raises(BadExport, match=r"rows cannot be written: .*File too large"):
            write_file(tmp_path / "rows", kind, taken([LONG, LONG]), context(form))
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("rows", b"before")]


@pytest.mark.parametrize("kind", [PARQUET, JSONL, ARROW], ids=lambda kind: kind.name)
def test_a_folder_that_is_missing_is_said(tmp_path: Path, kind: Format) -> None:
    with pytest.raises(BadExport, match="cannot be written"):
        write(tmp_path / "missing" / "rows", kind)


def test_the_report_alone(tmp_path: Path) -> None:
    write_report(tmp_path / "report.json", account())
    assert (tmp_path / "report.json").read_bytes() == encode_report(account())


def test_formats_are_told_apart_by_name_and_suffix() -> None:
    names, suffixes = [one.name for one in FORMATS], [one.suffix for one in FORMATS]
    assert len({*names}) == len({*suffixes}) == len(FORMATS)
    for one in FORMATS:
        assert format_of(Path(f"a.b{one.suffix}")) is one
        assert one.about


def test_a_name_that_is_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadExport, match="no format 'parket'; did you mean parquet"):
        format_named("parket")
    with pytest.raises(BadExport, match=r"one of the suffixes \.parquet, \.jsonl"):
        format_of(Path("rows.csv"))


def test_a_form_that_is_none_is_answered_with_those_there_are() -> None:
    assert (TORCH.form(None), TORCH.form("packed"), PARQUET.form(None)) == ("padded", "packed", None)
    with pytest.raises(BadExport, match="no form 'tall'; choose one of padded, packed"):
        TORCH.form("tall")
    with pytest.raises(BadExport, match="no form 'tall'; leave --form out"):
        PARQUET.form("tall")


def test_a_package_that_is_missing_is_said_with_how_to_get_it() -> None:
    missing = Format("x", ".x", "x", PARQUET.write, modules=("pyarrow", "not_there"), extra="torch")
    with pytest.raises(BadExport, match=r"x needs not_there, .*pip install 'polarproxy\[torch\]'"):
        missing.require()
    PARQUET.require()


@needs_torch
@pytest.mark.parametrize(("form", "shape"), [("padded", (2, 3)), ("packed", (5,))])
def test_torch(tmp_path: Path, form: str, shape: tuple[int, ...]) -> None:
    import torch

    write_file(tmp_path / "rows.pt", TORCH, taken([SAMPLES[0], SAMPLES[2]]), context(form))
    content = torch.load(tmp_path / "rows.pt", weights_only=True)
    assert tuple(content["input_ids"].shape) == shape
    assert ("cu_seqlens" in content) == (len(shape) == 1)
    assert content["report"].encode() == encode_report(account())
    assert content["format_version"] == 1


@needs_torch
def test_no_rows_are_empty_tensors(tmp_path: Path) -> None:
    import torch

    write(tmp_path / "rows.pt", TORCH, [])
    assert tuple(torch.load(tmp_path / "rows.pt", weights_only=True)["input_ids"].shape) == (0, 0)


EMPTY = [
    (kind, form) for kind in FORMATS if "torch" in kind.modules and kind is not TORCH for form in kind.forms or (None,)
]


@needs_torch
@pytest.mark.parametrize(("kind", "form"), EMPTY, ids=lambda one: getattr(one, "name", one))
def test_no_rows_are_a_file_of_every_trainer(tmp_path: Path, kind: Format, form: str | None) -> None:
    """One shard of many may have none, which is no reason to lose the others."""
    import torch

    for name, rows in (("none", []), ("some", SAMPLES[:1])):
        write_file(tmp_path / name, kind, taken(rows), context(form))
    none, some = (_tensors_of(torch.load(tmp_path / name, weights_only=True)) for name in ("none", "some"))
    assert {name: value.dtype for name, value in none.items()} == {name: value.dtype for name, value in some.items()}
    assert all(len(value) == 0 for value in none.values())


def _tensors_of(content: Any) -> dict[str, Any]:
    """Those of a batch; formats that are lists of rows have none."""
    import torch

    named = content.get("tensors", content) if isinstance(content, dict) else {}
    return {name: value for name, value in named.items() if torch.is_tensor(value)}
