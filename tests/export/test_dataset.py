"""Rows for PyTorch: each once across workers and ranks, in the order that a seed gives, from files and from a store."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.batch.sample import Sample
from polarproxy.cli.stored import stored
from polarproxy.errors import BadExport
from polarproxy.export import records, sources
from polarproxy.export.files import format_named
from polarproxy.export.options import Options
from polarproxy.export.running import write_file
from polarproxy.export.sources import Piece, of_files
from polarproxy.store.repository import Repository
from tests.batch.rows import row
from tests.export.exported import context, taken

torch = pytest.importorskip("torch", reason="needs torch: pip install 'polarproxy[torch]'")

if TYPE_CHECKING:
    from polarproxy.batch.torch import GRPOBatch
    from polarproxy.export.dataset import GRPODataset, dealt
else:
    GRPOBatch = pytest.importorskip("polarproxy.batch.torch").GRPOBatch
    from polarproxy.export.dataset import GRPODataset, dealt

KINDS = ("parquet", "arrow", "jsonl")
COUNT = 23


def files(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch, counts: Sequence[int] = (10, 0, 13)) -> str:
    """Rows 0 to 22 in three files, four rows a piece; returns the pattern of the files' names."""
    for module in (records, sources):
        monkeypatch.setattr(module, "ROWS_A_GROUP", 4)
    number = 0
    for place, count in enumerate(counts):
        rows = [row([number + one, 7], session_id=f"s{number + one}") for one in range(count)]
        path = folder / f"rows-{place}{format_named(kind).suffix}"
        write_file(path, format_named(kind), taken(rows), context())
        number += count
    return str(folder / f"rows-*{format_named(kind).suffix}")


def numbers(samples: Any) -> list[int]:
    return [int(sample.token_ids[0]) for sample in samples]


def identity(samples: list[Sample]) -> list[Sample]:
    return samples


def loaded(dataset: GRPODataset, workers: int, **options: Any) -> list[int]:
    loader = torch.utils.data.DataLoader(dataset, batch_size=3, num_workers=workers, collate_fn=identity, **options)
    return [number for batch in loader for number in numbers(batch)]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_files_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    dataset = GRPODataset(files(tmp_path, kind, monkeypatch))
    assert numbers(dataset) == list(range(COUNT))
    assert loaded(dataset, 0) == list(range(COUNT))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [None, 3])
def test_ranks_share_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int | None) -> None:
    pattern = files(tmp_path, kind, monkeypatch)
    for world in (1, 2, 5, 40):
        shares = [numbers(GRPODataset(pattern, seed=seed, rank=rank, world_size=world)) for rank in range(world)]
        assert sorted(number for share in shares for number in share) == list(range(COUNT))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("seed", [None, 3])
def test_workers_of_two_ranks_share_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None) -> None:
    pattern = files(tmp_path, "parquet", monkeypatch)
    shares = [loaded(GRPODataset(pattern, seed=seed, rank=rank, world_size=2), 2) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(COUNT))
    assert {len(share) for share in shares} == {11, 12}


def test_an_epoch_is_an_order_that_the_seed_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = files(tmp_path, "parquet", monkeypatch)

    def order(seed: int, epoch: int) -> list[int]:
        dataset = GRPODataset(pattern, seed=seed)
        dataset.set_epoch(epoch)
        return numbers(dataset)

    orders = [order(3, 0), order(3, 1), order(4, 0)]
    assert order(3, 1) == orders[1]
    assert all(sorted(one) == list(range(COUNT)) for one in orders)
    assert len({tuple(one) for one in [*orders, list(range(COUNT))]}) == 4


def test_workers_that_live_on_hear_of_the_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = GRPODataset(files(tmp_path, "parquet", monkeypatch), seed=3)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=3, num_workers=1, collate_fn=identity, persistent_workers=True
    )
    epochs = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        epochs.append([number for batch in loader for number in numbers(batch)])
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(COUNT))


def test_rows_of_a_store_are_those_of_an_export(store: Repository, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/polar.db"
    dataset = GRPODataset(stored(url, Options(advantage="rloo")))
    rows = list(dataset)
    assert [one.session_id for one in rows] == [f"s{place}" for place in range(8)]
    assert rows[1].advantages is not None
    assert rows[1].advantages.tolist() == [0, 1, 0, 1, 1]
    shares = [
        [one.session_id for one in GRPODataset(stored(url), rank=rank, world_size=3, seed=1)] for rank in range(3)
    ]
    assert sorted(name for share in shares for name in share) == [f"s{place}" for place in range(8)]


def test_workers_read_a_store(store: Repository, tmp_path: Path) -> None:
    dataset = GRPODataset(stored(f"sqlite:///{tmp_path}/polar.db"))
    loader = torch.utils.data.DataLoader(dataset, batch_size=3, num_workers=2, collate_fn=GRPOBatch.packed)
    assert sorted(name for batch in loader for name in batch.session_ids) == [f"s{place}" for place in range(8)]


def test_batches_of_a_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = GRPODataset(files(tmp_path, "parquet", monkeypatch))
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, collate_fn=GRPOBatch.padded)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [16, 7]
    np.testing.assert_array_equal(batches[1].input_ids[:, 0].numpy(), np.arange(16, COUNT))


def test_rank_and_world_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = files(tmp_path, "jsonl", monkeypatch)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert numbers(GRPODataset(pattern)) == list(range(11, COUNT))
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(BadExport, match="must be numbers"):
        GRPODataset(pattern)
    with pytest.raises(BadExport, match="rank 2 is none of 2"):
        GRPODataset(pattern, rank=2, world_size=2)


def test_files_that_are_not_there_or_of_no_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="no file matches"):
        of_files(tmp_path / "rows-*.parquet")
    with pytest.raises(BadExport, match="no file matches nothing"):
        of_files([])
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(BadExport, match=r"not from \.csv"):
        of_files(tmp_path / "a.csv")
    for name in ("a.parquet", "a.arrow"):
        (tmp_path / name).write_bytes(b"PAR1")
        with pytest.raises(BadExport, match="cannot be read"):
            list(GRPODataset(tmp_path / name))
    (tmp_path / "a.jsonl").write_text(json.dumps({"a": 1}))
    with pytest.raises(BadExport, match=r"a\.jsonl: this line is no canonical row"):
        list(GRPODataset(tmp_path / "a.jsonl"))


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 7))
def test_units_are_dealt_once_and_evenly(units: list[int], shares: int) -> None:
    pieces = [Piece((0, place), count) for place, count in enumerate(units)]
    got = [
        [(piece.key, unit) for piece, start, stop in dealt(pieces, share, shares) for unit in range(start, stop)]
        for share in range(shares)
    ]
    assert [one for share in got for one in share] == [
        (piece.key, unit) for piece in pieces for unit in range(piece.units)
    ]
    assert max(map(len, got)) - min(map(len, got)) <= 1
