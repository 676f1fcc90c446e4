"""The columns of a row: in Arrow and in JSON nothing is lost, and nothing that is missing becomes a number."""

import dataclasses
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.batch.sample import Sample
from polarproxy.export.columns import ARRAYS, SCHEMA, VALUES, Tables, to_arrow, to_json
from tests.batch.rows import row, rows


def test_every_field_of_a_row_is_a_column() -> None:
    assert SCHEMA.names == [name for name, *_ in (*ARRAYS, *VALUES)]
    assert set(SCHEMA.names) == {field.name for field in dataclasses.fields(Sample)} - {"warnings"}


def value(sample: Sample, name: str) -> Any:
    """A column's value as plain Python."""
    found = getattr(sample, name)
    if name == "components":
        return [{"name": part.name, "value": part.value, "kind": part.kind} for part in found]
    return list(found) if name == "call_ids" else found


@given(rows(), st.none() | st.integers(1, 6))
def test_an_arrow_table_is_its_rows(samples: list[Sample], piece: int | None) -> None:
    tables = Tables(piece)
    # In memory that held others before, fewer and more of them.
    for others in (samples[:1], samples[::-1] * 2):
        tables.of(others)
    table = tables.of(samples)
    assert table.schema == SCHEMA
    for name, _ in ARRAYS:
        for found, sample in zip(table.column(name), samples, strict=True):
            expected = getattr(sample, name)
            if expected is None:
                assert not found.is_valid
            else:
                np.testing.assert_array_equal(found.values.to_numpy(zero_copy_only=False), expected)
                assert found.values.null_count == 0
    for name, *_ in VALUES:
        assert table.column(name).to_pylist() == [value(sample, name) for sample in samples]


def test_long_rows_are_pieces_of_their_own_without_a_copy_and_short_ones_are_joined() -> None:
    short, long = row([1, 2], [0, 1]), row([7] * 10, [0] + [1] * 9)
    column = Tables(5).of([short, short, long, short, *[short] * 12]).column("token_ids")
    assert [len(chunk) for chunk in column.chunks] == [2, 1, 10, 3]
    assert column.chunk(1).values.buffers()[1].address == long.token_ids.ctypes.data
    many = [row([number, number], [0, 1]) for number in range(40)]
    joined = Tables(5).of(many)
    assert len(joined.column("token_ids").chunks) == 4
    assert joined.column("token_ids").to_pylist() == [[number, number] for number in range(40)]
    assert joined.column("loss_mask").to_pylist() == [[0, 1]] * 40
    whole = Tables().of([short, long]).column("token_ids")
    assert len(whole.chunks) == 1


@pytest.mark.parametrize("piece", [None, 1, 100])
def test_arrays_of_another_kind_or_with_gaps_are_what_they_say_all_the_same(piece: int | None) -> None:
    strange = dataclasses.replace(
        row([1, 2, 3], [0, 1, 1]),
        token_ids=np.arange(1, 7, dtype=np.int64)[::2],  # type: ignore[arg-type]
        loss_mask=np.asarray([False, True, True]),
    )
    table = Tables(piece).of([strange, row([9])])
    assert table.column("token_ids").to_pylist() == [[1, 3, 5], [9]]
    assert table.column("loss_mask").to_pylist()[0] == [0, 1, 1]


@given(rows())
def test_a_json_object_is_its_row(samples: list[Sample]) -> None:
    for sample in samples:
        told = json.loads(msgspec.json.encode(to_json(sample)))
        assert list(told) == SCHEMA.names
        for name, _ in ARRAYS:
            expected = getattr(sample, name)
            if expected is None:
                assert told[name] is None
            else:
                read = np.asarray([np.nan if entry is None else entry for entry in told[name]], expected.dtype)
                np.testing.assert_array_equal(read, expected)
        for name, *_ in VALUES:
            assert told[name] == value(sample, name)


def test_nan_stays_nan_in_arrow_and_is_null_in_json() -> None:
    sample = row([1, 2], [0, 1])
    (column,) = to_arrow([sample]).column("rollout_logprobs").to_pylist()
    assert np.isnan(column[0])
    assert column[1] == -0.5
    assert b'"rollout_logprobs":[null,-0.5]' in msgspec.json.encode(to_json(sample))


def test_no_credit_is_null_and_not_an_empty_list() -> None:
    assert to_arrow([row([1], credit=None)]).column("advantages").to_pylist() == [None]
    assert to_json(row([1], credit=None))["advantages"] is None


def test_no_rows_are_a_table_all_the_same() -> None:
    assert (to_arrow([]).num_rows, to_arrow([]).schema) == (0, SCHEMA)
