"""What is old goes with all that only it used; what others build on stays readable, whoever built on whom."""

from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from operator import add

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from polarproxy.model import Reward, TokenIds
from polarproxy.store import codec, sweep
from polarproxy.store import prune as pruning
from polarproxy.store.bases import PROMPT
from polarproxy.store.database import for_writing, open_database
from polarproxy.store.prune import Freed, Rule, free_bytes, preview, prune, vacuum
from polarproxy.store.repository import Repository
from polarproxy.store.schema import bodies, calls, metadata, responses, session_heads, sessions
from polarproxy.store.stats import read_stats
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE, Databases
from tests.store.filled import SYSTEM, body, contents, converse, fill, turn
from tests.store.samples import NOW, a_call, a_session, new_call

SECONDS = 30
MONTH = Rule(NOW - timedelta(days=30))


def pruned(engine: Engine, rule: Rule = MONTH) -> Freed:
    return reduce(add, prune(engine, rule), Freed())


def counts(engine: Engine) -> dict[str, int]:
    with engine.begin() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
        }


def built_on(engine: Engine) -> dict[str, str]:
    """Which call each prompt builds on, where it is one of another session."""
    with engine.begin() as connection:
        found = connection.execute(
            select(calls.c.call_id, calls.c.base_call_id).where(calls.c.base_call_id.is_not(None))
        )
        return {row[0]: row[1] for row in found if row[0].split("-")[0] != row[1].split("-")[0]}


def test_old_sessions_go_and_young_ones_stay(engine: Engine) -> None:
    converse(engine, {"old": 40, "young": 20})
    young = Repository(engine).calls("young")
    freed = pruned(engine)
    assert (freed.sessions, freed.calls, freed.sampled_tokens) == (1, 3, 9)
    assert Repository(engine).session_ids() == ["young"]
    assert Repository(engine).calls("young") == young
    assert list(Repository(engine).verify()) == []


def test_what_the_body_of_a_kept_call_builds_on_stays(engine: Engine) -> None:
    """Two sessions sent the same body. It is stored once, on one that only the old session sent."""
    writer = Writer(engine)
    for number in range(3):
        writer.submit(turn("old", number, 40, request_body=body(number, "both"))).result(SECONDS)
    writer.submit(turn("young", 0, request_body=body(1, "both"))).result(SECONDS)
    writer.close()
    with for_writing(engine).begin() as connection:
        connection.execute(update(sessions).values(created_at=NOW - timedelta(days=40)))
    expected = preview(engine, MONTH)
    assert expected.bodies == 1
    assert pruned(engine) == replace(expected, rebased=1)
    assert Repository(engine).calls("young")[0].call.request_body == body(1, "both")
    assert list(Repository(engine).verify()) == []


def test_a_body_that_somebody_began_to_use_stays(engine: Engine) -> None:
    """It was of no use when that was asked."""
    converse(engine, {"young": 1})
    with for_writing(engine).begin() as connection:
        connection.execute(update(calls).values(body_digest=None))
    chain = [unused.digest for unused in _dependents_first_of(engine)]
    with for_writing(engine).begin() as connection:
        assert sweep._remove(connection, chain[1:], set()) == []
        used = update(calls).where(calls.c.call_id == "young-0")
        connection.execute(used.values(body_digest=chain[0]))
        assert sweep._remove(connection, chain[:1], set()) == []
        connection.execute(used.values(body_digest=None))
        assert sweep._remove(connection, chain[:1], set()) == chain[:1]
        assert sweep._remove(connection, chain[1:], set(chain[:1])) == chain[1:]


def _dependents_first_of(engine: Engine) -> list[sweep.Unused]:
    with engine.begin() as connection:
        found = {unused.digest: unused for unused in sweep.unused_bodies(connection)}
    (last,) = found.keys() - {unused.base_digest for unused in found.values()}
    chain = [found[last]]
    while (base := chain[-1].base_digest) is not None:
        chain.append(found[base])
    return chain


def test_what_is_exactly_as_old_stays(engine: Engine) -> None:
    converse(engine, {"called": 30, "old": 40})
    assert pruned(engine, Rule(NOW - timedelta(days=30))).sessions == 1
    with engine.begin() as connection:
        connection.execute(update(sessions).values(created_at=NOW - timedelta(days=31)))
    assert pruned(engine, Rule(NOW - timedelta(days=30))).sessions == 0
    assert Repository(engine).session_ids() == ["called"]


def test_what_others_build_on_is_rewritten_and_still_stored_once(engine: Engine) -> None:
    converse(engine, {"old": 40, "a": 1, "b": 1, "c": 1})
    assert set(built_on(engine).values()) == {"old-0"}
    kept = {name: Repository(engine).calls(name) for name in "abc"}
    before = read_stats(engine).stored_tokens
    assert pruned(engine).rebased == 3
    assert {name: Repository(engine).calls(name) for name in "abc"} == kept
    assert list(Repository(engine).verify()) == []
    assert len(set(built_on(engine).values())) == 1
    # The beginning that all share was stored with the old session, and is with another one now.
    assert read_stats(engine).stored_tokens == before - 20 - 9


def lay(engine: Engine, call_id: str, prompt: list[int], choice: int, length: int) -> None:
    """A call of a session of its own, laid on one of the old session's sequences."""
    session = call_id.split("-")[0]
    writer = Writer(engine)
    writer.submit(new_call(a_call(call_id, 0, prompt, (1,), session_id=session))).result(SECONDS)
    writer.close()
    rest = codec.encode_ids(TokenIds.of(prompt[length:]).raw)
    layout = {"base_call_id": "old-0", "base_choice": choice, "base_length": length, "prompt_suffix": rest}
    with for_writing(engine).begin() as connection:
        connection.execute(update(calls).where(calls.c.call_id == call_id).values(**layout))


def test_it_does_not_matter_which_sequence_was_built_on(engine: Engine) -> None:
    Repository(engine).add_session(a_session("old", created_at=NOW - timedelta(days=40)))
    sampled = ([5] * 50, [6] * 50)
    old = a_call("old-0", 0, SYSTEM, *sampled, session_id="old", arrived_at=NOW - timedelta(days=40))
    writer = Writer(engine)
    writer.submit(new_call(old)).result(SECONDS)
    writer.close()
    prompts = {
        "all-0": ([*SYSTEM, *sampled[0], 9], 0, 250),
        "second-0": ([*SYSTEM, *sampled[1], 9], 1, 240),
        "prompt-0": ([*SYSTEM, 9], PROMPT, 200),
        "part-0": ([*SYSTEM[:90], 9], 1, 90),
    }
    for call_id, (prompt, choice, length) in prompts.items():
        lay(engine, call_id, prompt, choice, length)
    assert list(Repository(engine).verify()) == []
    assert pruned(engine).rebased == 4
    assert list(Repository(engine).verify()) == []
    for call_id, (prompt, _, _) in prompts.items():
        assert list(Repository(engine).call(call_id).call.prompt_token_ids or ()) == prompt


def test_a_session_is_as_old_as_what_was_last_known_of_it(engine: Engine) -> None:
    """Not as old as its beginning: a call or a reward makes it young again."""
    converse(engine, {"called": 40, "rewarded": 40, "old": 40})
    writer = Writer(engine)
    writer.submit(turn("called", 3, days_ago=1)).result(SECONDS)
    writer.close()
    Repository(engine).add_reward("rewarded", Reward(1.0))
    assert pruned(engine).sessions == 1
    assert sorted(Repository(engine).session_ids()) == ["called", "rewarded"]


def test_rewarded_sessions_can_be_kept(engine: Engine) -> None:
    converse(engine, {"rewarded": 40, "old": 40})
    Repository(engine).add_reward("rewarded", Reward(0.0))
    future = NOW + timedelta(days=36500)
    assert pruned(engine, Rule(future, keep_rewarded=True)).sessions == 1
    assert Repository(engine).session_ids() == ["rewarded"]
    assert pruned(engine, Rule(future)).rewards == 1
    assert Repository(engine).session_ids() == []


def test_nothing_of_a_session_is_left(engine: Engine) -> None:
    """But the spellings of tokens, which belong to the model."""
    fill(engine)
    with for_writing(engine).begin() as connection:
        connection.execute(insert(session_heads).values(session_id="first", next_ordinal=4))
    expected = preview(engine, Rule(NOW + timedelta(days=36500)))
    freed = pruned(engine, Rule(NOW + timedelta(days=36500)))
    assert {name for name, count in counts(engine).items() if count} == {"token_texts"}
    assert freed == expected
    assert (freed.sessions, freed.calls, freed.rewards, freed.responses) == (5, 16, 3, 2)


def test_a_place_that_a_call_under_way_has_is_not_given_again(engine: Engine) -> None:
    """Its session may be old, and nothing of the call is stored yet."""
    converse(engine, {"old": 40})
    Repository(engine).add_session(a_session("never", created_at=NOW - timedelta(days=40)))
    heads = {"old": 4, "never": 1}
    with for_writing(engine).begin() as connection:
        for session_id, number in heads.items():
            connection.execute(insert(session_heads).values(session_id=session_id, next_ordinal=number))
    assert pruned(engine).sessions == 2
    with engine.begin() as connection:
        assert {row.session_id: row.next_ordinal for row in connection.execute(select(session_heads))} == heads


def test_a_preview_says_what_goes_and_touches_nothing(engine: Engine) -> None:
    converse(engine, {"old": 40, "older": 50, "young": 1})
    before = contents(engine)
    expected = preview(engine, MONTH)
    assert contents(engine) == before
    assert pruned(engine) == replace(expected, rebased=1)
    assert pruned(engine) == preview(engine, MONTH) == Freed()


def test_bodies_that_others_send_too_or_build_on_are_kept(engine: Engine) -> None:
    converse(engine, {"old": 40, "young": 1})
    writer = Writer(engine)
    # The old session's second body, which builds on its first one; and one that builds on that in turn.
    for number in (1, 3):
        writer.submit(turn("young", 3 + number, request_body=body(number, "old"))).result(SECONDS)
    writer.close()
    kept = Repository(engine).calls("young")
    assert pruned(engine).bodies == 1
    assert Repository(engine).calls("young") == kept
    with engine.begin() as connection:
        assert codec.digest(body(0, "old")) in connection.execute(select(bodies.c.digest)).scalars().all()
    assert list(Repository(engine).verify()) == []
    assert pruned(engine).bodies == 0


def test_it_goes_in_parts_each_of_which_leaves_a_sound_store(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "_SESSIONS_AT_ONCE", 1)
    converse(engine, {"oldest": 44, "older": 42, "old": 40, "young": 1})
    seen = []
    for freed in prune(engine, MONTH):
        seen.append(freed.sessions)
        assert list(Repository(engine).verify()) == []
    assert seen[:3] == [1, 1, 1]
    assert Repository(engine).session_ids() == ["young"]


def test_what_was_broken_off_can_be_gone_on_with(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "_SESSIONS_AT_ONCE", 1)
    converse(engine, {"older": 42, "old": 40, "young": 1})
    running = prune(engine, MONTH)
    next(running)
    running.close()
    assert len(Repository(engine).session_ids()) == 2
    assert list(Repository(engine).verify()) == []
    assert pruned(engine).bodies == 6
    assert Repository(engine).session_ids() == ["young"]


def test_references_are_enforced_while_it_runs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a prune that is wrong would leave behind keeps it from removing anything."""
    converse(engine, {"old": 40})
    before = counts(engine)
    monkeypatch.setattr(pruning, "call_facts", responses)
    with pytest.raises(IntegrityError):
        pruned(engine)
    assert counts(engine) == before


def test_a_session_that_became_young_meanwhile_is_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "_SESSIONS_AT_ONCE", 1)
    converse(engine, {"older": 42, "old": 40})
    running = prune(engine, MONTH)
    next(running)
    Repository(engine).add_reward("older", Reward(1.0))
    assert sum(freed.sessions for freed in running) == 0
    assert Repository(engine).session_ids() == ["older"]


def test_damage_of_others_is_left_to_be_found(engine: Engine) -> None:
    """A prompt that cannot be read does not keep those beside it from being rewritten."""
    converse(engine, {"old": 40, "bad": 1, "good": 1})
    good = Repository(engine).calls("good")
    with for_writing(engine).begin() as connection:
        connection.execute(update(calls).where(calls.c.call_id == "bad-0").values(prompt_suffix=b"junk"))
    pruned(engine)
    assert Repository(engine).calls("good") == good
    assert {damage.where for damage in Repository(engine).verify()} == {
        f"call bad-{n} of session bad" for n in range(3)
    }


@ON_SQLITE
def test_the_file_gets_smaller_when_it_is_told_to(engine: Engine) -> None:
    converse(engine, {"old": 40}, turns=40)
    pruned(engine)
    assert (free_bytes(engine) or 0) > 0
    vacuum(engine)
    assert free_bytes(engine) == 0


@given(st.lists(st.integers(0, 60), min_size=2, max_size=6), st.integers(1, 60), st.booleans())
@settings(max_examples=10)
def test_whoever_builds_on_whom(databases: Databases, drawn: list[int], days: int, rewarded: bool) -> None:
    with databases() as url:
        engine = open_database(url)
        repository = Repository(engine)
        ages = {f"s{number}": age for number, age in enumerate(drawn)}
        converse(engine, ages, turns=2)
        kept = {session_id for session_id, age in ages.items() if age <= days}
        if rewarded:
            repository.add_reward("s0", Reward(1.0))
            kept.add("s0")
        before = {session_id: repository.calls(session_id) for session_id in kept}
        freed = pruned(engine, Rule(NOW - timedelta(days=days), keep_rewarded=True))
        assert set(repository.session_ids()) == kept
        assert {session_id: repository.calls(session_id) for session_id in kept} == before
        assert freed.sessions == len(drawn) - len(kept)
        assert list(repository.verify()) == []
        engine.dispose()


def test_an_image_goes_with_the_last_body_that_holds_it(engine: Engine) -> None:
    image = b64encode(bytes(range(256)) * 8)
    writer = Writer(engine)
    for session, days in (("old", 40), ("older", 50), ("young", 20)):
        body = b'"%b data:image/png;base64,%b"' % (session.encode(), image if session != "young" else b"")
        when = NOW - timedelta(days=days)
        call = a_call(f"{session}-0", 0, session_id=session, request_body=body, arrived_at=when)
        writer.submit(replace(new_call(call), session=replace(a_session(session), created_at=when))).result(SECONDS)
    writer.close()
    assert counts(engine)["blobs"] == 1
    for age, left in ((45, 1), (30, 0)):
        pruned(engine, Rule(NOW - timedelta(days=age)))
        assert (counts(engine)["blobs"], counts(engine)["body_blobs"]) == (left, left)
        assert list(Repository(engine).verify()) == []
