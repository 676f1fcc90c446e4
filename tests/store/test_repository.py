"""The questions that can be asked of the store, and the few changes that are not calls."""

from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from polarproxy.errors import NotFound, StoreDamaged
from polarproxy.model import (
    CallKind,
    CallStatus,
    ComponentKind,
    Label,
    Reward,
    RewardComponent,
    SessionStatus,
    TurnReward,
)
from polarproxy.store.facts import LABEL
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository, SessionState
from polarproxy.store.schema import DELIVERED
from polarproxy.store.terms import Terms
from polarproxy.store.writer import Writer
from tests.store.samples import NOW, a_call, a_session, new_call

SECONDS = 20


def write(writer: Writer, *items: object) -> None:
    for item in items:
        writer.submit(item).result(SECONDS)  # type: ignore[arg-type]


def test_sessions_are_listed_newest_first_with_their_counts(writer: Writer, repository: Repository) -> None:
    for number in range(3):
        repository.add_session(a_session(f"s{number}", created_at=NOW + timedelta(seconds=number), group_id="g"))
    write(writer, new_call(a_call("a", 0, (1,), (2, 3), (4,), session_id="s1")))
    write(writer, new_call(a_call("b", 1, (1,), (5,), session_id="s1")))
    found = repository.sessions()
    assert [entry.session.session_id for entry in found] == ["s2", "s1", "s0"]
    assert [(entry.calls, entry.sampled_tokens) for entry in found] == [(0, 0), (2, 4), (0, 0)]
    assert [entry.session.session_id for entry in repository.sessions(limit=1)] == ["s2"]
    assert repository.sessions(group_id="other") == []
    assert repository.session_ids() == ["s0", "s1", "s2"]


def test_calls_are_in_order_of_arrival_however_they_were_stored(writer: Writer, repository: Repository) -> None:
    """A later timestamp does not come later: order is the ordinal."""
    for ordinal in (2, 0, 1):
        late = NOW - timedelta(hours=ordinal)
        write(writer, new_call(a_call(f"c{ordinal}", ordinal, arrived_at=late)))
    assert [captured.call.ordinal for captured in repository.calls("s1")] == [0, 1, 2]
    assert repository.session_state("s1") == SessionState(SessionStatus.OPEN, 3, Terms())


def test_what_became_known_later_stands_beside_the_call(writer: Writer, repository: Repository) -> None:
    write(writer, new_call(a_call()))
    (before,) = repository.calls("s1")
    assert (before.delivered, before.labels, before.label) == (False, (), None)
    title = Label(CallKind.TITLE, "ann", NOW, "it names the session")
    back = Label(None, "b\x00b", NOW + timedelta(days=1))
    write(writer, Fact("c1", NOW, DELIVERED, "yes"))
    repository.add_label("c1", title)
    (after,) = repository.calls("s1")
    assert (after.delivered, after.label) == (True, title)
    repository.add_label("c1", back)
    (last,) = repository.calls("s1")
    assert (last.labels, last.label) == ((title, back), None)
    assert last.call == before.call


def test_a_label_for_no_call_is_refused(repository: Repository) -> None:
    with pytest.raises(NotFound, match="no call 'c9'"):
        repository.add_label("c9", Label(CallKind.TITLE, "ann", NOW))


def test_a_label_that_nobody_wrote_is_damage(writer: Writer, repository: Repository) -> None:
    write(writer, new_call(a_call()), Fact("c1", NOW, LABEL, '{"kind": "poem", "by": "ann"}'))
    with pytest.raises(StoreDamaged, match="call c1 has a label that nobody wrote"):
        repository.calls("s1")


def test_a_summary_says_what_a_call_came_to(writer: Writer, repository: Repository) -> None:
    write(writer, new_call(a_call("c1", 0, (1, 2), (3, 4), (5,), status=CallStatus.ABORTED)))
    write(writer, Fact("c1", NOW, DELIVERED, "yes"), new_call(a_call("c2", 0, None, session_id="s2")))
    first, second = repository.call_summaries()
    assert (first.prompt_tokens, first.completion_tokens, first.finish_reasons) == (2, 3, ("stop", "stop"))
    assert (first.status, first.delivered) == (CallStatus.ABORTED, True)
    assert (second.prompt_tokens, second.completion_tokens, second.finish_reasons) == (None, 0, ())
    assert [entry.call_id for entry in repository.call_summaries("s2")] == ["c2"]


def test_the_latest_reward_counts_with_its_own_components(repository: Repository) -> None:
    repository.add_session(a_session())
    assert repository.session("s1").reward is None
    repository.add_reward("s1", Reward(1.0, (RewardComponent("tests", 1.0), RewardComponent("style", 0.5))))
    parts = (RewardComponent("style", 0.25, ComponentKind.METRIC), RewardComponent("tests", 0.0))
    latest = Reward(0.25, parts, (TurnReward(0.5, turn=3), TurnReward(-0.5, call_id="c")), "d" * 32)
    repository.add_reward("s1", latest)
    assert repository.session("s1").reward == latest
    assert [entry.session.reward for entry in repository.sessions()] == [latest]


def test_rewards_stay_in_the_order_in_which_they_were_set(repository: Repository) -> None:
    for name in ("s1", "s2"):
        repository.add_session(a_session(name, group_id=name))
    given = [("s1", Reward(1.0)), ("s2", Reward(0.5, (RewardComponent("a", 0.5),))), ("s1", Reward(0.0))]
    repository.add_rewards(given)
    assert [entry.reward for entry in repository.reward_history("s1")] == [Reward(1.0), Reward(0.0)]
    assert [(entry.session_id, entry.reward) for entry in repository.latest_rewards()] == given[1:]
    assert [entry.session_id for entry in repository.latest_rewards(group_id="s2")] == ["s2"]
    with pytest.raises(NotFound):
        repository.reward_history("s3")


def test_rewards_are_appended_all_or_none(repository: Repository) -> None:
    repository.add_session(a_session())
    with pytest.raises(NotFound, match="'s2', 's3'"):
        repository.add_rewards([("s1", Reward(1.0)), ("s3", Reward(1.0)), ("s2", Reward(1.0))])
    assert repository.reward_history("s1") == []


def test_a_reward_of_nothing_is_not_none(repository: Repository) -> None:
    repository.add_session(a_session())
    repository.add_reward("s1", Reward(0.0))
    assert repository.session("s1").reward == Reward(0.0)


def test_a_status_can_be_changed(repository: Repository) -> None:
    repository.add_session(a_session())
    repository.set_status("s1", SessionStatus.INFRA_ERROR)
    assert repository.session("s1").status is SessionStatus.INFRA_ERROR
    assert repository.session_state("s1") == SessionState(SessionStatus.INFRA_ERROR, 0, Terms())


def test_a_session_cannot_be_made_twice(repository: Repository) -> None:
    repository.add_session(a_session(group_id="first"))
    with pytest.raises(IntegrityError):
        repository.add_session(a_session(group_id="second"))
    assert repository.session("s1").group_id == "first"


def test_what_is_not_there_is_not_found(repository: Repository) -> None:
    asked = (
        lambda: repository.session("x"),
        lambda: repository.call("x"),
        lambda: repository.set_status("x", SessionStatus.COMPLETED),
        lambda: repository.add_reward("x", Reward(1.0)),
    )
    for question in asked:
        with pytest.raises(NotFound, match="'x'"):
            question()
    assert repository.session_state("x") is None
    assert repository.calls("x") == []
