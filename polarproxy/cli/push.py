"""`polarproxy push`: batches to a trainer that takes them over HTTP, each until it says that it has it."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from polarproxy.cli import crediting as flags
from polarproxy.cli.desks import desk
from polarproxy.cli.direct import direct
from polarproxy.cli.opening import Db, Json, Merge, database_url
from polarproxy.cli.output import console, print_json
from polarproxy.errors import BadSettings, BatchTaken, PushFailed
from polarproxy.export.desk import Wanted, checked
from polarproxy.model.plurals import counted
from polarproxy.settings import read_base_url
from polarproxy.store.database import open_database
from polarproxy.store.revisions import require_current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polarproxy.export.desk import Desk
    from polarproxy.store.leases import Lease

_LATER = frozenset((408, 425, 429))
"""Answers of the 400s that may be others the next time."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_LONGEST_LEASE_S = 86400.0
_LONGEST_TIMEOUT_S = _LONGEST_LEASE_S / 2
_SAID = 500
"""Letters of a refusal that are shown."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """Where batches go."""

    url: str
    key: str | None
    timeout: float
    """Seconds."""
    retries: int

    def __post_init__(self) -> None:
        """Raises `BadSettings`."""
        if not 0 < self.timeout <= _LONGEST_TIMEOUT_S:
            raise BadSettings(
                f"--timeout must be above 0 and at most {_LONGEST_TIMEOUT_S:g} seconds (half a day), not {self.timeout:g}"
            )

    def take(self, wanted: Wanted, lease: Lease, desk: Desk) -> None:
        """Sends a batch until it is taken; the lease goes on as long as that lasts. Raises `PushFailed`."""
        pause, body = _FIRST_PAUSE_S, desk.body(wanted, lease)
        for attempt in range(self.retries + 1):
            why = self._send(lease, *body)
            if why is None:
                return
            if attempt < self.retries:
                console.print(Text(f"batch {lease.batch_id}: {why}; trying again in {pause:g} s", style="yellow"))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                desk.renew(wanted, lease)
        raise PushFailed(f"{self.url} did not take batch {lease.batch_id} in {self.retries + 1} attempts: {why}")

    def _send(self, lease: Lease, body: bytes, media: str) -> str | None:
        """Why the batch was not taken this time. None: it was. Raises `PushFailed` when it never will be."""
        headers = {
            "Content-Type": media,
            "X-Polarproxy-Batch": lease.batch_id,
            "X-Polarproxy-Lease": lease.lease_id,
            "X-Polarproxy-Consumer": lease.consumer,
            "X-Polarproxy-Rows": str(lease.rows),
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url, method="POST", data=body, headers=headers)
        try:
            with direct().open(request, timeout=self.timeout) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = " ".join(error.read(_SAID).decode("utf-8", "replace").split())
            if error.code < 500 and error.code not in _LATER:
                raise PushFailed(
                    f"{self.url} refused batch {lease.batch_id} with {error.code}: {said or error.reason}"
                ) from error
            return f"it answered {error.code} {said or error.reason}"
        except (urllib.error.URLError, OSError) as error:
            return f"it cannot be reached: {getattr(error, 'reason', error)}"
        except http.client.HTTPException as error:
            return f"its answer is no HTTP, or breaks off: {error!r}"
        return None


def push(
    to: Annotated[str, typer.Option(help="URL that takes batches by POST and answers 2xx once it has one.")],
    consumer: Annotated[
        str, typer.Option(help="Who takes them: each consumer gets every session once, whatever others get.")
    ] = "default",
    groups: Annotated[int, typer.Option(help="Groups in a batch.")] = 1,
    group_size: Annotated[int, typer.Option(help="Sessions that a group must have to be complete.")] = 1,
    partial: Annotated[bool, typer.Option("--partial", help="Send fewer groups, when there are no more.")] = False,
    format: Annotated[Literal["arrow", "json"], typer.Option(help="How a batch is sent.")] = "arrow",
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more, until it is interrupted; default: end when none is ready.")
    ] = False,
    retries: Annotated[int, typer.Option(min=0, help="How often a batch is sent again before giving up.")] = 8,
    timeout: Annotated[
        float, typer.Option(help="Seconds that the trainer may take for an answer, half a day at most.")
    ] = 300,
    key: Annotated[
        str | None, typer.Option(envvar="POLARPROXY_PUSH_KEY", help="Sent as Authorization: Bearer.", show_envvar=True)
    ] = None,
    advantage: flags.Advantage = "grpo",
    weighting: Annotated[
        Literal["per_session", "per_token", "per_row"], typer.Option(help="How the rows of a session share its weight.")
    ] = "per_session",
    merge: Merge = "prefix_merging",
    on_collapse: Annotated[Literal["keep", "drop"], typer.Option(help="Groups whose rewards do not differ.")] = "keep",
    model: Annotated[str | None, typer.Option(help="Train only what this model sampled.")] = None,
    max_lag: flags.MaxLag = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Send batches of complete groups to a trainer, each until it is taken: at least once, also across crashes.

    A group is complete when all of its sessions are closed and have their rewards. A batch that arrives twice has the same
    X-Polarproxy-Batch. Trainers that would rather ask: GET /api/batches/next.

    Example: polarproxy push --to http://trainer:9000/batches --groups 8 --group-size 4 --follow
    """
    trainer = Trainer(read_base_url(to, "--to"), key, timeout, retries)
    wanted = checked(
        Wanted(
            consumer=consumer,
            groups=groups,
            group_size=group_size,
            partial=partial,
            format=format,
            lease=min(_LONGEST_LEASE_S, max(600.0, 2 * timeout + _LONGEST_PAUSE_S)),
            advantage=advantage,
            weighting=weighting,
            merge=merge,
            on_collapse=on_collapse,
            model=model,
            max_lag=max_lag,
        )
    )
    engine = open_database(database_url(db))
    batches = rows = 0
    try:
        require_current(engine)
        counter = desk(engine)
        for lease in _leases(counter, wanted, follow=follow):
            _deliver(trainer, counter, wanted, lease)
            batches, rows = batches + 1, rows + lease.rows
            if not as_json:
                console.print(f"batch {lease.batch_id}: {counted(lease.rows, 'row')}")
        waiting = counter.waiting(wanted)
    except KeyboardInterrupt:
        waiting = counter.waiting(wanted)
    finally:
        engine.dispose()
    if as_json:
        print_json({"batches": batches, "rows": rows, "groups_waiting": waiting})
        return
    console.print(
        f"taken: {counted(batches, 'batch', 'batches')} with {counted(rows, 'row')}; other groups: {waiting.ready} complete,"
        f" {waiting.open} with open sessions, {waiting.unrewarded} without rewards, {waiting.small} too small"
    )


def _leases(counter: Desk, wanted: Wanted, *, follow: bool) -> Iterator[Lease]:
    """Batches as they become ready. Nothing says when, so the store is asked again and again."""
    pause = _FIRST_PAUSE_S
    while True:
        lease = counter.next(wanted)
        if lease is not None:
            pause = _FIRST_PAUSE_S
            yield lease
        elif follow:
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
        else:
            return


def _deliver(trainer: Trainer, counter: Desk, wanted: Wanted, lease: Lease) -> None:
    """One batch; what is not taken is given back at once, for whoever comes next."""
    try:
        trainer.take(wanted, lease, counter)
    except (PushFailed, BatchTaken, KeyboardInterrupt):
        counter.release(lease.consumer, lease.lease_id)
        raise
    counter.acknowledge(lease.consumer, lease.lease_id)
