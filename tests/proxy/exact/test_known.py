"""Of several recorded turns the one that came back is meant; memory is bounded, and the store has what it lost."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from polarproxy.model import Completion, FallbackReason, TokenIds, TurnMark
from polarproxy.proxy.exact.known import KnownTurn, KnownTurns, Match
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from polarproxy.wire.neutral.history import Turn
from tests.database import fresh
from tests.store.samples import a_call, a_completion, new_call


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(fresh(tmp_path / "polar.db"))
    yield opened
    opened.dispose()


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    made = Writer(engine)
    yield made
    made.close()


@pytest.fixture
def repository(engine: Engine) -> Repository:
    return Repository(engine)


KEY, OTHER = b"k" * 16, b"o" * 16


def mark(key: bytes = KEY, reasoning: str | None = "r", spelling: str = "s", ids: tuple[str, ...] = ()) -> TurnMark:
    return TurnMark(key, spelling.encode() * 16, None if reasoning is None else reasoning.encode() * 16, ids, "t" * 32)


def known(call_id: str, ordinal: int, its: TurnMark, choice: int = 0, *, delivered: bool = False) -> KnownTurn:
    completion = replace(a_completion([ordinal, 7], choice), mark=its)
    return KnownTurn(call_id, choice, ordinal, its, delivered, TokenIds.of([1, 2]), completion)


def sent(key: bytes = KEY, reasoning: str | None = "r", spelling: str = "s", ids: tuple[str, ...] = ()) -> Turn:
    its = mark(key, reasoning, spelling, ids)
    return Turn(its.key, 2, its.reasoning, its.spelling, its.ids)


def store(writer: Writer, turn: KnownTurn, session: str = "s1") -> None:
    completion: Completion = turn.completion
    call = a_call(turn.call_id, turn.ordinal, (1, 2), completions=(completion,), session_id=session)
    writer.submit(new_call(call)).result(20)
    if turn.delivered:
        writer.submit(Fact(turn.call_id, datetime.now(UTC), DELIVERED, "yes")).result(20)


async def found(turns: KnownTurns, *wanted: Turn, session: str = "s1") -> str | FallbackReason:
    match = await turns.find(session, wanted)
    return f"{match.known.call_id}/{match.known.choice}" if isinstance(match, Match) else match


CASES = [
    ("the same reasoning", [mark(reasoning="x"), mark(reasoning="r")], sent(), "c1/0"),
    ("reasoning before spelling", [mark(reasoning="r", spelling="x"), mark(reasoning=None)], sent(), "c0/0"),
    ("none came back, all fit, the same spelling", [mark(), mark(spelling="x")], sent(reasoning=None), "c0/0"),
    ("the same ids", [mark(ids=("a",)), mark(ids=("b",))], sent(ids=("a",)), "c0/0"),
    ("the latest of equals", [mark(), mark(), mark()], sent(), "c2/0"),
    ("other reasoning", [mark(reasoning="x"), mark(reasoning="y")], sent(), FallbackReason.REASONING_EDITED),
    ("another key", [mark(OTHER)], sent(), FallbackReason.NOT_RECORDED),
]


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
@pytest.mark.parametrize(("marks", "wanted", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_the_best_fit_is_meant(
    writer: Writer, repository: Repository, marks: list[TurnMark], wanted: Turn, expected: str, stored: bool
) -> None:
    turns = KnownTurns(repository)
    for place, its in enumerate(marks):
        turn = known(f"c{place}", place, its)
        store(writer, turn) if stored else turns.add("s1", turn)
    assert await found(turns, wanted) == expected


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
async def test_one_that_was_delivered_before_one_that_was_not(
    writer: Writer, repository: Repository, stored: bool
) -> None:
    turns = KnownTurns(repository)
    for turn in (known("c0", 0, mark(), delivered=True), known("c1", 1, mark())):
        store(writer, turn) if stored else turns.add("s1", turn)
    assert await found(turns, sent()) == "c0/0"


async def test_of_the_choices_of_one_call_the_first(repository: Repository) -> None:
    turns = KnownTurns(repository)
    for choice in (1, 0, 2):
        turns.add("s1", known("c0", 0, mark(), choice))
    assert await found(turns, sent()) == "c0/0"


async def test_the_longest_history_wins_wherever_it_is(writer: Writer, repository: Repository) -> None:
    """The turn before is in memory, the latest one was another proxy's."""
    turns = KnownTurns(repository)
    turns.add("s1", known("c0", 0, mark()))
    store(writer, known("c1", 1, mark(OTHER)))
    assert await found(turns, sent(), sent(OTHER)) == "c1/0"
    assert await found(turns, sent(OTHER), sent(b"n" * 16)) == "c1/0"
    assert await found(turns, sent(OTHER, "edited"), sent(b"n" * 16)) is FallbackReason.REASONING_EDITED
    assert await found(turns, sent(OTHER), session="s2") is FallbackReason.NOT_RECORDED


@pytest.mark.parametrize("reasoning", ["r", None])
async def test_a_better_one_of_the_store_is_meant_rather_than_one_in_memory(
    writer: Writer, repository: Repository, reasoning: str | None
) -> None:
    turns = KnownTurns(repository)
    store(writer, known("c0", 0, mark(ids=("a",))))
    turns.add("s1", known("c1", 1, mark(ids=("b",)), delivered=True))
    assert await found(turns, sent(b"n" * 16), sent(reasoning=reasoning, ids=("a",))) == "c0/0"
    assert await found(turns, sent(b"n" * 16), sent(reasoning=reasoning, ids=("b",))) == "c1/0"


async def test_one_of_the_store_that_was_delivered_is_meant_rather_than_one_in_memory_that_was_not(
    writer: Writer, repository: Repository
) -> None:
    turns = KnownTurns(repository)
    store(writer, known("c0", 0, mark(), delivered=True))
    turns.add("s1", known("c1", 1, mark()))
    assert await found(turns, sent()) == "c0/0"


async def test_a_turn_of_the_store_comes_whole_and_stays(writer: Writer, repository: Repository) -> None:
    turn = known("c1", 3, mark(), delivered=True)
    store(writer, turn)
    turns = KnownTurns(repository)
    for _ in range(2):
        match = await turns.find("s1", [sent()])
        assert isinstance(match, Match)
        assert match == Match(sent(), turn)
        # The second time nothing is read.
        turns._repository = None  # type: ignore[assignment]


async def test_memory_is_bounded_and_the_store_has_the_rest(writer: Writer, repository: Repository) -> None:
    turns = KnownTurns(repository, max_bytes=3 * known("c0", 0, mark()).size)
    for place in range(10):
        turn = known(f"c{place}", place, mark(bytes([place]) * 16))
        store(writer, turn)
        turns.add("s1", turn)
        # Given twice, it takes its room once.
        turns.add("s1", turn)
    assert len(turns._turns) == 3
    assert [await found(turns, sent(bytes([place]) * 16)) for place in range(10)] == [
        f"c{place}/0" for place in range(10)
    ]
    assert len(turns._turns) == 3
