"""What a store holds, in numbers that can be counted by hand."""

from dataclasses import fields

import pytest
from sqlalchemy import Engine

from polarproxy.model import Reward
from polarproxy.store import stats
from polarproxy.store.repository import Repository
from polarproxy.store.schema import metadata
from polarproxy.store.stats import Stats, read_stats
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE
from tests.store.filled import SYSTEM, body, converse, fill
from tests.store.samples import a_call, new_call


def test_tokens_as_sent_and_as_stored(engine: Engine) -> None:
    converse(engine, {"a": 0, "b": 0})
    Repository(engine).add_reward("a", Reward(1.0))
    found = read_stats(engine)
    # Prompts of 200, 210 and 220 tokens twice; the second session begins as the first one does.
    assert (found.sessions, found.rewarded_sessions, found.calls, found.completions) == (2, 1, 6, 6)
    assert (found.prompt_tokens, found.sampled_tokens) == (2 * 630, 2 * 9)
    assert found.stored_tokens == len(SYSTEM) + 2 * 20 + 2 * 9
    assert found.positions == 1278
    assert found.dedup_ratio == pytest.approx(1278 / 258)
    assert found.logprob_bytes == 4 * 18
    assert 0 < found.token_bytes < 4 * 1278
    assert found.token_bytes_per_position == pytest.approx(found.token_bytes / 1278)
    assert found.database_bytes_per_position == pytest.approx(found.database_bytes / 1278)


def test_bodies_as_sent_and_as_stored(engine: Engine) -> None:
    writer = Writer(engine)
    for number in range(2):
        call = a_call(f"c{number}", 0, session_id=f"s{number}", request_body=body(1, "both"))
        writer.submit(new_call(call)).result(30)
    writer.close()
    found = read_stats(engine)
    assert (found.bodies, found.sent_body_bytes) == (1, 2 * len(body(1, "both")))
    assert found.body_bytes < len(body(1, "both"))


def test_an_empty_store_has_no_ratios(engine: Engine) -> None:
    found = read_stats(engine)
    assert (found.dedup_ratio, found.token_bytes_per_position, found.database_bytes_per_position) == (None,) * 3
    counted = {field.name for field in fields(Stats)} - {"table_bytes", "database_bytes"}
    assert {name: getattr(found, name) for name in counted} == dict.fromkeys(counted, 0)


def test_each_table_has_its_size(engine: Engine) -> None:
    fill(engine)
    found = read_stats(engine)
    assert found.table_bytes is not None
    assert set(found.table_bytes) == set(metadata.tables)
    assert found.table_bytes["calls"] > 0
    assert sum(found.table_bytes.values()) <= found.database_bytes


@ON_SQLITE
def test_a_sqlite_that_cannot_tell(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "_SIZES", "SELECT * FROM no_such_table")
    assert read_stats(engine).table_bytes is None
    assert read_stats(engine).database_bytes > 0
