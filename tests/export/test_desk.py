"""Batches are what an export of their groups is, stay what they are, and reach every consumer."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine

from polarproxy.errors import BadExport, BatchTaken
from polarproxy.export import columns
from polarproxy.export.collect import Collection
from polarproxy.export.desk import ARROW, JSON, Desk, Wanted, read_wanted
from polarproxy.export.options import Options
from polarproxy.model import Reward, Session, SessionStatus
from polarproxy.store.database import open_database
from polarproxy.store.leases import Lease, Leases
from polarproxy.store.repository import Repository
from tests.database import fresh
from tests.export.talk import Talk, answered, record
from tests.trajectory.build import WHEN


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(fresh(tmp_path / "polar.db"))
    yield opened
    opened.dispose()


class Clock:
    def __init__(self) -> None:
        self.now = WHEN

    def __call__(self) -> datetime:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(engine: Engine, clock: Clock) -> Desk:
    return Desk(Repository(engine), Leases(engine), clock=clock)


def add(
    engine: Engine,
    name: str,
    group: str | None = "g",
    reward: float | None = 1.0,
    talk: Talk | None = None,
    age: int = 0,
    status: SessionStatus = SessionStatus.COMPLETED,
) -> None:
    session = Session(name, WHEN - timedelta(days=age), group_id=group, task_id=group)
    record(engine, talk or answered(name, f"It is {name}."), session, None if reward is None else Reward(reward))
    Repository(engine).set_status(name, status)


def given(desk: Desk, wanted: Wanted | None = None) -> Lease:
    lease = desk.next(wanted or Wanted())
    assert lease is not None
    return lease


def names(lease: Lease) -> list[str]:
    return [row["session_id"] for row in json.loads(as_json(lease))["rows"]]


def as_json(lease: Lease) -> bytes:
    body, media = Desk.body(Desk.__new__(Desk), Wanted(), lease)
    assert media == JSON
    return body


def test_the_rows_are_those_of_an_export(engine: Engine, desk: Desk) -> None:
    add(engine, "a", reward=1.0)
    add(engine, "b", reward=0.0)
    exported = list(Collection(Repository(engine), Options()).rows())
    lease = given(desk)
    said = json.loads(as_json(lease))
    assert said["rows"] == json.loads(msgspec.json.encode([columns.to_json(row) for row in exported]))
    assert said["report"]["rows"] == lease.rows == 2
    assert (said["batch_id"], said["lease_id"], said["consumer"]) == (lease.batch_id, lease.lease_id, "default")
    body, media = desk.body(Wanted(format="arrow"), lease)
    table = pa.ipc.open_stream(body).read_all()
    assert media == ARROW
    drop = ["rollout_logprobs"]  # NaN equals nothing; as JSON they are compared above
    assert table.drop_columns(drop).equals(columns.to_arrow(exported).drop_columns(drop))
    assert table.schema.metadata[b"polarproxy.batch"].decode() == lease.batch_id
    assert np.isfinite(table["advantages"].combine_chunks().values.to_numpy()).all()


def test_a_batch_stays_what_it_was(engine: Engine, desk: Desk, clock: Clock) -> None:
    add(engine, "a", reward=1.0)
    add(engine, "b", reward=0.0)
    wanted = Wanted(lease_id="step-1")
    first = given(desk, wanted)
    Repository(engine).add_reward("b", Reward(5.0))
    clock.wait(60)
    again = given(desk, wanted)
    assert (again.body, as_json(again)) == (first.body, as_json(first))
    assert again.expires_at == first.expires_at + timedelta(seconds=60)
    clock.wait(601)
    other = given(desk, Wanted(lease_id="step-2"))
    assert (other.batch_id, other.body) == (first.batch_id, first.body)
    with pytest.raises(BatchTaken):
        desk.next(wanted)
    assert desk.acknowledge("default", "step-2")
    assert not desk.acknowledge("default", "step-1")
    assert desk.next(Wanted()) is None


def test_so_many_groups_of_such_a_size(engine: Engine, desk: Desk) -> None:
    for number, group in enumerate(("old", "new", "newest")):
        add(engine, f"{group}-1", group, 1.0, age=9 - number)
        add(engine, f"{group}-2", group, 0.0, age=9 - number)
    add(engine, "alone", None, 1.0, age=20)
    assert names(given(desk, Wanted(groups=2, group_size=2))) == ["new-1", "new-2", "old-1", "old-2"]
    assert desk.next(Wanted(groups=2, group_size=2)) is None
    assert names(given(desk, Wanted(groups=2, group_size=2, partial=True))) == ["newest-1", "newest-2"]
    assert names(given(desk)) == ["alone"]
    assert names(given(desk, Wanted(consumer="other", groups=4))) == [
        "alone",
        "new-1",
        "new-2",
        "newest-1",
        "newest-2",
        "old-1",
        "old-2",
    ]


def test_groups_without_a_row_are_passed_over(engine: Engine, desk: Desk) -> None:
    add(engine, "empty", "empty", talk=Talk(), age=5)
    add(engine, "broken", "broken", reward=None, age=4, status=SessionStatus.INFRA_ERROR)
    add(engine, "a", "a", 1.0, age=3)
    add(engine, "b", "b", 1.0, age=2)
    assert names(given(desk, Wanted(groups=2))) == ["a", "b"]
    assert desk.next(Wanted()) is None
    assert [(one.leased, one.acked) for one in desk.consumers()] == [(1, 1)]


def test_a_session_that_came_late_has_the_baseline_of_all(engine: Engine, desk: Desk) -> None:
    add(engine, "a", reward=1.0)
    add(engine, "b", reward=0.0)
    given(desk)
    add(engine, "c", reward=0.5)
    add(engine, "d", reward=1.0)
    lease = given(desk)
    assert names(lease) == ["c", "d"]
    (row, _) = json.loads(as_json(lease))["rows"]
    whole = {row.session_id: row for row in Collection(Repository(engine), Options()).rows()}
    advantages: Any = whole["c"].advantages
    assert row["advantages"] == advantages.tolist()


class Overtaken(Leases):
    """Somebody else of the same name takes a batch between the choice of the groups and the making of theirs."""

    others: Desk | None = None

    def had(self, consumer: str, session_ids: Sequence[str]) -> set[str]:
        others, self.others = self.others, None
        if others is not None:
            given(others)
        return super().had(consumer, session_ids)


@pytest.mark.parametrize("groups", [1, 2])
def test_who_is_overtaken_gets_no_fewer_groups(engine: Engine, desk: Desk, clock: Clock, groups: int) -> None:
    for place in range(3):
        add(engine, f"s{place}", f"g{place}", age=9 - place)
    leases = Overtaken(engine)
    leases.others = desk
    slow = Desk(Repository(engine), leases, clock=clock)
    assert names(given(slow, Wanted(groups=groups))) == ["s1", "s2"][:groups]


def test_an_incomplete_group_waits(engine: Engine, desk: Desk) -> None:
    add(engine, "a", reward=1.0)
    add(engine, "b", reward=None)
    assert desk.next(Wanted()) is None
    assert desk.waiting(Wanted()).unrewarded == 1
    Repository(engine).add_reward("b", Reward(0.0))
    assert names(given(desk)) == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"group": "x"}, "unknown field `group`"),
        ({"groups": "0"}, "`\\$.groups`"),
        ({"groups": "many"}, "`\\$.groups`"),
        ({"consumer": ""}, "`\\$.consumer`"),
        ({"consumer": "a b"}, "`\\$.consumer`"),
        ({"lease_id": "x/y"}, "`\\$.lease_id`"),
        ({"wait": "1e9"}, "`\\$.wait`"),
        ({"lease": "nan"}, "`\\$.lease`"),
        ({"format": "xml"}, "`\\$.format`"),
        ({"on_collapse": "fail"}, "`\\$.on_collapse`"),
        ({"advantage": "luck"}, "no advantage 'luck'"),
        ({"merge": "glue"}, "no merge rule 'glue'"),
    ],
)
def test_a_query_that_cannot_be_meant(query: dict[str, str], said: str) -> None:
    with pytest.raises(BadExport, match=said):
        read_wanted(query)


def test_a_query() -> None:
    wanted = read_wanted({"consumer": "a.b", "groups": "3", "partial": "true", "wait": "1.5", "max_lag": "2"})
    assert (wanted.consumer, wanted.groups, wanted.partial, wanted.wait) == ("a.b", 3, True, 1.5)
    assert wanted.options() == Options(max_lag=2)


def test_a_model_that_sampled_nothing_uses_up_no_group(engine: Engine, desk: Desk) -> None:
    add(engine, "a", reward=1.0)
    add(engine, "b", reward=0.0)
    (model,) = {one.call.served_model for one in Repository(engine).calls("a")}
    assert desk.next(Wanted(model=f"{model}x")) is None
    assert given(desk, Wanted(model=model)).rows == 2
