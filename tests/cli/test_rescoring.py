"""Rows scored again: what was sampled in its context agrees, everything else is found, and what cannot be said is said."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from polarproxy.cli.rescoring import Rescored, print_rescored, rescored
from polarproxy.errors import BadSettings
from polarproxy.model import Call, Logprobs, LogprobsMode, Sampling
from polarproxy.proxy.rescore import Bar
from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.database import fresh
from tests.fakes import FakeEngine, Faults, Received, Turn, always, compose
from tests.fakes.script import PromptToken
from tests.store.samples import a_call, a_completion, a_session, new_call

BAR = Bar(0.001, 0)
SAMPLING = Sampling(temperature=1.0, logprobs_mode=LogprobsMode.PROCESSED)


def said(before: Sequence[int], token: int) -> float:
    """How likely a token is, which depends on all that came before it."""
    return -(hash((*before, token)) % 1000 + 1) / 1024


def engine_that_scores(received: Received) -> Turn:
    ids = received.json["prompt"]
    if not isinstance(ids, list):
        return Turn((compose("1"),))
    tokens = [PromptToken(one, "x", said(ids[:place], one) if place else None) for place, one in enumerate(ids)]
    return Turn((replace(compose("1"), prompt=tuple(tokens)),))


def sampled(call_id: str, ordinal: int, prompt: Sequence[int], ids: Sequence[int], **fields: Any) -> Call:
    """A call whose log-probabilities are the engine's."""
    logprobs = [said([*prompt, *ids[:place]], one) for place, one in enumerate(ids)]
    completion = a_completion(ids, logprobs=Logprobs.of(logprobs))
    known: dict[str, Any] = {"completions": (completion,), "sampling": SAMPLING, "served_model": "fake"}
    return a_call(call_id, ordinal, prompt, **(known | fields))


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(always(compose("hi")), text_script=engine_that_scores) as running:
        yield running


Scorer = Callable[..., Any]


@pytest.fixture
async def score(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[Scorer]:
    """Stores calls and scores their rows."""
    database = open_database(fresh(tmp_path / "polar.db"))
    writer = Writer(database)

    async def scored(*calls: Call, merge: str = "prefix_merging", bar: Bar = BAR) -> Rescored:
        for call in calls:
            writer.submit(replace(new_call(call), session=a_session(call.session_id))).result(20)
            writer.submit(Fact(call.call_id, datetime.now(UTC), DELIVERED, "yes")).result(20)
        upstream = Upstream(engine.url, Settings(upstream=engine.url))
        return await rescored(Repository(database), upstream, [call.session_id for call in calls], bar, merge)

    yield scored
    writer.close()
    database.dispose()


PROMPT, FIRST, SECOND = (11, 12, 13), (14, 15), (17, 18, 19)
GOES_ON = (*PROMPT, *FIRST, 16)
DRIFTED = (*PROMPT, 99, 15, 16)
TALK = (sampled("c1", 0, PROMPT, FIRST), sampled("c2", 1, GOES_ON, SECOND))


async def test_what_was_sampled_in_its_context_agrees(score: Scorer) -> None:
    found = await score(*TALK)
    assert found.sound
    assert found.control is True
    (row,) = found.rows
    assert (row.compared, row.beyond, row.worst, row.not_compared, row.error) == (5, 0, 0.0, {}, None)


async def test_a_row_that_was_stitched_does_not(score: Scorer) -> None:
    calls = sampled("c1", 0, PROMPT, FIRST), sampled("c2", 1, DRIFTED, SECOND)
    assert (await score(*calls)).sound
    found = await score(*calls, merge="stitch")
    assert not found.sound
    (row,) = found.rows
    assert (row.compared, row.beyond) == (5, 3)


async def test_one_token_that_was_changed_in_the_store_is_found(score: Scorer) -> None:
    good = TALK[0]
    wrong = replace(good.completions[0], logprobs=Logprobs.of([said(PROMPT, 14), said((*PROMPT, 14), 15) - 0.01]))
    found = await score(replace(good, completions=(wrong,)))
    (row,) = found.rows
    assert (row.compared, row.beyond, row.worst_at) == (2, 1, 4)
    assert row.worst == pytest.approx(0.01, abs=1e-4)
    assert not found.sound


async def test_within_the_tolerance_is_no_difference(score: Scorer) -> None:
    good = TALK[0]
    near = replace(good.completions[0], logprobs=Logprobs.of([said(PROMPT, 14), said((*PROMPT, 14), 15) - 0.01]))
    assert (await score(replace(good, completions=(near,)), bar=Bar(0.011, 0))).sound


INCOMPARABLE = [
    ("sampled by policy version 3; the engine has 0", {"policy_version_min": 3, "policy_version_max": 3}),
    ("the weights changed while it was sampled", {"policy_version_min": 0, "policy_version_max": 1}),
    ("sampled by model another, which the engine does not serve", {"served_model": "another"}),
    ("logprobs of mode processed at temperature 0.7", {"sampling": replace(SAMPLING, temperature=0.7)}),
    ("sampled under a tool that must be called", {"request_body": b'{"tool_choice":"required"}'}),
]


@pytest.mark.parametrize(("why", "fields"), INCOMPARABLE, ids=[case[0] for case in INCOMPARABLE])
async def test_what_cannot_be_compared_is_said_and_proves_nothing(
    score: Scorer, why: str, fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = await score(sampled("c1", 0, PROMPT, FIRST, **fields))
    (row,) = found.rows
    ((reason, count),) = row.not_compared.items()
    assert reason.startswith(why)
    assert (count, row.compared, found.sound) == (2, 0, False)
    print_rescored(found)
    assert "not compared: 2 trained tokens, " + why in capsys.readouterr().out


async def test_the_other_turns_of_such_a_row_are_compared(score: Scorer) -> None:
    hot = replace(TALK[1], sampling=replace(SAMPLING, temperature=0.5))
    found = await score(TALK[0], hot)
    (row,) = found.rows
    assert (row.compared, sum(row.not_compared.values()), found.sound) == (2, 3, True)


async def test_what_the_engine_has_no_room_for_is_left(engine: FakeEngine, score: Scorer) -> None:
    engine.max_model_len = len(GOES_ON) + 2
    found = await score(*TALK)
    (row,) = found.rows
    assert row.not_compared == {"it leaves no room in the engine's context": 2}
    assert (row.compared, found.sound) == (3, True)


async def test_an_engine_that_says_the_same_of_everything_proves_nothing(engine: FakeEngine, score: Scorer) -> None:
    def flat(received: Received) -> Turn:
        ids = received.json["prompt"]
        return Turn((replace(compose("1"), prompt=tuple(PromptToken(one, "x", -0.5) for one in ids)),))

    engine._text_script = flat
    completion = a_completion(FIRST, logprobs=Logprobs.of([-0.5, -0.5]))
    found = await score(replace(TALK[0], completions=(completion,)))
    assert (found.compared, found.control, found.sound) == (2, False, False)


async def test_an_engine_that_gives_no_scores_is_an_error(engine: FakeEngine, score: Scorer) -> None:
    engine._text_script = always(compose("1"), faults=Faults(status=500))
    found = await score(*TALK)
    (row,) = found.rows
    assert "answers 500" in (row.error or "")
    assert not found.sound


async def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    database = open_database(fresh(tmp_path / "polar.db"))
    upstream = Upstream("http://127.0.0.1:9", Settings(upstream="http://127.0.0.1:9"))
    with pytest.raises(BadSettings, match="does not answer"):
        await rescored(Repository(database), upstream, [], BAR, "prefix_merging")
    database.dispose()


async def test_the_command_ends_with_1_when_something_differs(
    engine: FakeEngine, score: Scorer, tmp_path: Path
) -> None:
    await score(*TALK)
    where = ("--db", f"sqlite:///{tmp_path}/polar.db", "--upstream", engine.url)
    assert await command("verify", "--rescore", *where) == 0
    assert await command("verify", "--rescore", "--version", "7", *where) == 1


async def command(*arguments: str) -> int | None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "polarproxy", *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(60):
        return await process.wait()
