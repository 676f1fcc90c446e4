"""Where consumers take batches: complete groups as the canonical rows that an export has, leased until they are acknowledged.

A batch is made once. Its bytes are stored with its lease, so that it stays what it was when rewards are corrected, labels
change, or the service is restarted or replaced by a newer one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import pyarrow as pa

from polarproxy.batch.sample import Weighting  # noqa: TC001  (msgspec reads it)
from polarproxy.errors import BadExport, BatchTaken
from polarproxy.export.collect import Collection
from polarproxy.export.columns import SCHEMA, to_arrow
from polarproxy.export.options import Options
from polarproxy.export.report import encode_report
from polarproxy.store.ids import new_id
from polarproxy.store.leases import NewBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polarproxy.batch.sample import Sample
    from polarproxy.export.crediting import Transcribe
    from polarproxy.model import Session
    from polarproxy.store.leases import Consumer, Lease, Leases
    from polarproxy.store.ready import Ready, Waiting
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.recipes import Recipe

REPORT_KEY, BATCH_KEY = "polarproxy.report", "polarproxy.batch"
"""Metadata of the Arrow schema of a batch."""
_TRIES = 100
"""How often others may be faster before somebody is told that there is nothing now."""
ARROW, JSON = "application/vnd.apache.arrow.stream", "application/json"

_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")]


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a consumer asks for, as the query of a URL says it."""

    consumer: _Name = "default"
    """Each consumer gets every session once, whatever others get."""
    lease_id: _Name | None = None
    """The same lease is the same batch. None: a new one."""
    groups: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 1
    """How many groups a batch is of."""
    group_size: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 1
    """How many sessions a group must have to be complete."""
    partial: bool = False
    """Whether fewer groups will do, when there are no more."""
    lease: Annotated[float, msgspec.Meta(ge=1, le=86400)] = 600
    """Seconds for which nobody else is given the batch."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0
    """Seconds to wait until there is a batch."""
    format: Literal["json", "arrow"] = "json"
    advantage: str = Options().advantage
    weighting: Weighting = Options().weighting
    merge: str = Options().merge
    on_collapse: Literal["keep", "drop"] = "keep"
    model: str | None = None
    min_coverage: float | None = None
    max_lag: int | None = None

    def options(self) -> Options:
        """Of the export that makes the rows; raises `BadExport`."""
        return Options(
            advantage=self.advantage,
            weighting=self.weighting,
            merge=self.merge,
            min_coverage=self.min_coverage,
            on_collapse=self.on_collapse,
            max_lag=self.max_lag,
            model=self.model,
        )


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """Raises `BadExport` for a name or a value that is none."""
    try:
        wanted = msgspec.convert(dict(query), Wanted, strict=False)
    except msgspec.ValidationError as error:
        raise BadExport(f"a batch cannot be asked for like this: {error}") from error
    wanted.options()
    return wanted


def checked(wanted: Wanted) -> Wanted:
    """The same; raises `BadExport` for a value that is none, which building it alone does not."""
    return read_wanted({name: value for name, value in msgspec.to_builtins(wanted).items() if value is not None})


class Desk:
    """Hands out the batches of a store. Safe to use from several threads and processes."""

    def __init__(
        self,
        repository: Repository,
        leases: Leases,
        recipes: Sequence[Recipe] = (),
        transcribe: Transcribe | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._repository, self._leases, self._recipes = repository, leases, recipes
        self._transcribe, self._clock = transcribe, clock

    def read(self, query: Mapping[str, str]) -> Wanted:
        """What a query wants; raises `BadExport`."""
        return read_wanted(query)

    def body(self, wanted: Wanted, lease: Lease) -> tuple[bytes, str]:
        """A batch as it was asked for, and its media type."""
        return (lease.body, ARROW) if wanted.format == "arrow" else (to_json(lease), JSON)

    def next(self, wanted: Wanted) -> Lease | None:
        """The batch of the lease that is named, else one whose lease ran out, else a new one. None: there is none yet.

        Raises `BatchTaken` when the lease that is named is acknowledged, or ran out and was taken over.
        """
        now = self._clock()
        until = now + timedelta(seconds=wanted.lease)
        if wanted.lease_id is not None:
            again = self._leases.again(wanted.consumer, wanted.lease_id, until)
            if again is not None:
                return again
        lease_id = wanted.lease_id or new_id("l")
        for _ in range(_TRIES):
            try:
                return self._leases.reclaim(wanted.consumer, lease_id, now, until) or self._new(
                    wanted, lease_id, now, until
                )
            except BatchTaken:
                # Somebody was faster. What is left may be enough; the lease that is named may be theirs.
                if wanted.lease_id is not None:
                    again = self._leases.again(wanted.consumer, wanted.lease_id, until)
                    if again is not None:
                        return again
        return None

    def renew(self, wanted: Wanted, lease: Lease) -> None:
        """The lease begins anew. Raises `BatchTaken` when it ran out and was taken over."""
        self._leases.again(lease.consumer, lease.lease_id, self._clock() + timedelta(seconds=wanted.lease))

    def acknowledge(self, consumer: str, lease_id: str) -> bool:
        """The batch arrived and need not be kept. False: that was known. Raises `NotFound`."""
        return self._leases.acknowledge(consumer, lease_id, self._clock())

    def release(self, consumer: str, lease_id: str) -> bool:
        """The batch is for somebody else, now. False: the lease is not in force. Raises `NotFound`."""
        return self._leases.release(consumer, lease_id, self._clock())

    def waiting(self, wanted: Wanted) -> Waiting:
        """What the groups wait for that the consumer lacks."""
        return self._leases.waiting(wanted.consumer, wanted.group_size)

    def consumers(self) -> list[Consumer]:
        """Everybody who ever took a batch."""
        return self._leases.consumers()

    def _new(self, wanted: Wanted, lease_id: str, now: datetime, until: datetime) -> Lease | None:
        """A batch of complete groups. Groups without a row are noted as handed out, and others take their place: not where the
        model is one that nobody ever sampled, which is misspelt or yet to come."""
        if wanted.model is not None and not self._repository.has_model(wanted.model):
            return None
        while True:
            ready = self._leases.ready(wanted.consumer, wanted.group_size, wanted.groups)
            if not ready or (len(ready) < wanted.groups and not wanted.partial):
                return None
            made = self._make(wanted, ready)
            if made.rows:
                return self._leases.hand_out(wanted.consumer, made, lease_id, now, until)
            self._leases.hand_out(wanted.consumer, made, new_id("l"), now, until)

    def _make(self, wanted: Wanted, ready: Sequence[Ready]) -> NewBatch:
        """The rows of these groups; or, without rows, those of them that have none.

        Raises `BatchTaken` when the consumer was given one of the groups meanwhile.
        """
        groups = [self._sessions(group) for group in ready]
        every = [session for group in groups for session in group]
        had = self._leases.had(wanted.consumer, [session.session_id for session in every])
        collection = Collection(
            self._repository, wanted.options(), self._recipes, transcribe=self._transcribe, sessions=every
        )
        rows = {
            session.session_id: collection.session_rows(session)
            for session in collection.sessions
            if session.session_id not in had
        }
        new = [[session.session_id for session in group if session.session_id in rows] for group in groups]
        if not all(new):
            # Each had something that the consumer lacks when it was chosen; the rest would be fewer groups than were wanted.
            raise BatchTaken(f"somebody else took a group as {wanted.consumer!r}")
        empty = [name for names in new for name in names if not any(rows[own] for own in names)]
        batch_id = new_id("b")
        if empty:
            return NewBatch(batch_id, 0, b"", empty)
        samples = [row for session in collection.sessions for row in rows.get(session.session_id, ())]
        body = encode(samples, batch_id, encode_report(collection.account))
        return NewBatch(batch_id, len(samples), body, list(rows))

    def _sessions(self, group: Ready) -> list[Session]:
        if group.group_id is None:
            return [self._repository.session(group.session_id)]
        return [entry.session for entry in self._repository.sessions(group_id=group.group_id)]


def encode(samples: Sequence[Sample], batch_id: str, report: bytes) -> bytes:
    """A batch as an Arrow IPC stream, zstd; its id and the report stand in the metadata of the schema."""
    schema = SCHEMA.with_metadata({BATCH_KEY: batch_id, REPORT_KEY: report})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(to_arrow(samples).replace_schema_metadata(schema.metadata))
    return bytes(sink.getvalue())


def to_json(lease: Lease) -> bytes:
    """A batch as JSON: the same rows as `export --format jsonl` has, NaN as null, and the report. The same for the same
    lease."""
    table = pa.ipc.open_stream(lease.body).read_all()
    return msgspec.json.encode(
        {
            "batch_id": lease.batch_id,
            "lease_id": lease.lease_id,
            "consumer": lease.consumer,
            "rows": table.to_pylist(),
            "report": msgspec.Raw(table.schema.metadata[REPORT_KEY.encode()]),
        }
    )
