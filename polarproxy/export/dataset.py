"""Rows for a trainer in PyTorch (extra `torch`), each once across workers and ranks: of a store or of exported files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch.utils.data import IterableDataset, get_worker_info

from polarproxy.errors import BadExport
from polarproxy.export.sources import Source, of_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from polarproxy.batch.sample import Sample
    from polarproxy.export.sources import Piece


class GRPODataset(IterableDataset):  # type: ignore[misc]  # torch is not always there to say what it is
    """Rows as `Sample`; `GRPOBatch.padded` and `GRPOBatch.packed` make batches of them.

        dataset = GRPODataset("samples.parquet", seed=0)
        loader = DataLoader(dataset, batch_size=16, num_workers=4, collate_fn=GRPOBatch.padded)
        for epoch in range(epochs):
            dataset.set_epoch(epoch)
            for batch in loader: ...

    Rows are dealt in even stretches to ranks × workers: of files, ranks differ by one row at most (so the last batch may be
    missing on some: `drop_last=True`, or join the ranks); of a store, sessions are dealt, whose rows may be several. Rank and
    world size are those of `torch.distributed` when it is initialised, else `RANK` and `WORLD_SIZE` of the environment, else 0
    of 1.
    """

    def __init__(
        self,
        source: str | Path | Sequence[str | Path] | Source,
        *,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """`source`: files (names may hold `*`), or `polarproxy.cli.stored.stored(URL)`. `seed`: None keeps the order. `rank`
        and `world_size` go together.

        Raises `BadExport` when there are no such files.
        """
        super().__init__()
        self._source = source if isinstance(source, Source) else of_files(source)
        self._seed = seed
        # Shared, so that it reaches workers that live longer than an epoch.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        if rank is None or world_size is None:
            rank, world_size = _distributed()
        self.rank, self.world_size = rank, world_size
        if not 0 <= self.rank < self.world_size:
            raise BadExport(f"rank {self.rank} is none of {self.world_size} ranks")

    def set_epoch(self, epoch: int) -> None:
        """Another order of the same rows, when there is a seed; workers that live on hear of it, too."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        share, shares = self.rank * workers + number, self.world_size * workers
        epoch = int(self._epoch.item())
        order = None if self._seed is None else torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        pieces = self._source.pieces()
        if order is not None:
            pieces = [pieces[place] for place in torch.randperm(len(pieces), generator=order).tolist()]
        for piece, start, stop in dealt(pieces, share, shares):
            rows = self._source.read(piece, start, stop)
            if order is not None:
                rows = [rows[place] for place in torch.randperm(len(rows), generator=order).tolist()]
            yield from rows


def dealt(pieces: Sequence[Piece], share: int, shares: int) -> Iterator[tuple[Piece, int, int]]:
    """The stretch of all units that is this share's, piece by piece."""
    total = sum(piece.units for piece in pieces)
    first, last, at = total * share // shares, total * (share + 1) // shares, 0
    for piece in pieces:
        start, stop = max(first - at, 0), min(last - at, piece.units)
        if start < stop:
            yield piece, start, stop
        at += piece.units


def _distributed() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError as error:
        raise BadExport("RANK and WORLD_SIZE in the environment must be numbers") from error
