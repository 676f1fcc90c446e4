"""An export holds a piece of the run at a time, however long the run is."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from polarproxy.batch.sample import Sample
from polarproxy.export import records
from polarproxy.export.collect import Collection
from polarproxy.export.files import format_named
from polarproxy.export.options import Options
from polarproxy.export.running import write_file
from polarproxy.model import CapturedCall
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.batch.rows import row
from tests.database import fresh
from tests.export.exported import context, taken
from tests.store.filled import converse

SESSIONS, TURNS = 8, 3
ROWS, TOKENS = 100, 10


@pytest.fixture(autouse=True)
def _only_ours() -> Iterator[None]:
    """Looking for garbage passes over what other tests left behind, or each look would take as long as all of them."""
    gc.freeze()
    yield
    gc.unfreeze()


class Alive:
    """How many of the things that were handed out are still held by somebody."""

    def __init__(self) -> None:
        self._known: list[weakref.ref[object]] = []
        self.most = 0

    def watch(self, *things: object) -> None:
        gc.collect()
        self._known = [known for known in self._known if known() is not None]
        self._known += [weakref.ref(thing) for thing in things]
        self.most = max(self.most, len(self._known))


class Watched(Repository):
    """Counts the prompts of calls that are held."""

    alive = Alive()

    def calls(self, session_id: str) -> list[CapturedCall]:
        found = super().calls(session_id)
        self.alive.watch(*(captured.call.prompt_token_ids for captured in found))
        return found


@pytest.mark.parametrize("advantage", ["grpo", "grpo_turns", "none"])
def test_the_calls_of_one_session_are_held_at_a_time(tmp_path: Path, advantage: str) -> None:
    engine = open_database(fresh(tmp_path / "polar.db"))
    converse(engine, dict.fromkeys((f"s{number}" for number in range(SESSIONS)), 0.0), TURNS, group_id="g")
    repository = Watched(engine)
    repository.alive = Alive()
    for _ in Collection(repository, Options(advantage=advantage)).rows():
        pass
    engine.dispose()
    # Those of the session that was just finished may still be in the hands of the one that reads the next.
    assert TURNS <= repository.alive.most <= 2 * TURNS


def watched_rows(alive: Alive) -> Iterator[Sample]:
    for number in range(ROWS):
        made = row([number] * TOKENS, [0] + [1] * (TOKENS - 1))
        alive.watch(made.token_ids)
        yield made


STREAMED = ["parquet", "jsonl", "arrow", "trl", "prime-rl", "nemo-gym", "skyrl", "tinker"]


@pytest.mark.parametrize("name", STREAMED)
def test_rows_are_let_go_once_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(records, "TOKENS_A_GROUP", 20 * TOKENS)
    alive = Alive()
    write_file(tmp_path / "rows", format_named(name), taken(watched_rows(alive)), context())
    assert alive.most <= 21
    assert (tmp_path / "rows").stat().st_size > 0
