"""Whatever is done to the store, in whatever order, by one process or two: it holds what a plain model holds."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from polarproxy.errors import NotFound, StoreConflict
from polarproxy.model import (
    Call,
    CallKind,
    CapturedCall,
    Label,
    Logprobs,
    Reward,
    RewardComponent,
    Session,
    SessionStatus,
)
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.prune import Rule, prune
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.database import Databases
from tests.store.samples import NOW, a_call, a_completion, a_session, new_call

SECONDS = 30
SESSIONS = ("s0", "s1", "s2")
SYSTEM = tuple(range(500, 540))
"""What every conversation begins with, long enough to be a base."""

_names = st.sampled_from(SESSIONS)
_tokens = st.lists(st.integers(0, 3), max_size=5).map(tuple)
_numbers = st.integers(0, 10_000)


@dataclass
class Kept:
    """What the model knows of a session."""

    session: Session
    calls: list[CapturedCall] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    """Two writers stand for two proxies; every rule says what the model says, or fails."""

    databases: ClassVar[Databases]

    @initialize()
    def begin(self) -> None:
        self.stack = ExitStack()
        self.url = self.stack.enter_context(type(self).databases())
        self.kept: dict[str, Kept] = {}
        self.stored = 0
        self.open()

    def open(self) -> None:
        self.engines = [open_database(self.url) for _ in range(2)]
        self.writers = [Writer(engine) for engine in self.engines]
        self.repository = Repository(self.engines[0])

    def shut(self) -> None:
        for writer, engine in zip(self.writers, self.engines, strict=True):
            writer.close()
            engine.dispose()

    def call(self, name: str, prompt: tuple[int, ...], *sampled: tuple[int, ...]) -> Call:
        """The next call of a session, not stored yet."""
        kept = self.kept.setdefault(name, Kept(a_session(name, created_at=NOW + timedelta(seconds=len(self.kept)))))
        self.stored += 1
        body = f"{{{', '.join(map(str, prompt))}}}".encode()
        return a_call(f"c{self.stored}", len(kept.calls), prompt, *sampled, session_id=name, request_body=body)

    def store(self, calls: list[Call], by: int) -> None:
        for call in calls:
            self.kept[call.session_id].calls.append(CapturedCall(call))
        # A session is made with its first call, as the model has it.
        done = [self.writers[by].submit(replace(new_call(call), session=self.made(call))) for call in calls]
        for future in done:
            future.result(SECONDS)

    def made(self, call: Call) -> Session:
        return replace(self.kept[call.session_id].session, reward=None, status=SessionStatus.OPEN)

    def any_call(self, number: int) -> CapturedCall:
        known = [captured for kept in self.kept.values() for captured in kept.calls]
        return known[number % len(known)]

    @rule(name=_names, group=st.none() | st.sampled_from(["g", "\x00"]))
    def make_session(self, name: str, group: str | None) -> None:
        session = a_session(name, created_at=NOW + timedelta(seconds=len(self.kept)), group_id=group)
        if name in self.kept:
            with pytest.raises(Exception, match=r"(?i)unique"):
                self.repository.add_session(session)
        else:
            self.repository.add_session(session)
            self.kept[name] = Kept(session)

    @rule(name=_names, tail=_tokens, sampled=st.lists(_tokens, max_size=2), by=st.integers(0, 1))
    def begin_conversation(self, name: str, tail: tuple[int, ...], sampled: list[tuple[int, ...]], by: int) -> None:
        self.store([self.call(name, SYSTEM + tail, *sampled)], by)

    @precondition(lambda self: any(kept.calls for kept in self.kept.values()))
    @rule(number=_numbers, tail=_tokens, sampled=_tokens, by=st.integers(0, 1))
    def go_on(self, number: int, tail: tuple[int, ...], sampled: tuple[int, ...], by: int) -> None:
        """A prompt that holds an earlier call whole, and goes on."""
        earlier = self.any_call(number).call
        answer = tuple(earlier.completions[0].token_ids) if earlier.completions else ()
        prompt = tuple(earlier.prompt_token_ids or ()) + answer + tail
        self.store([self.call(earlier.session_id, prompt, sampled)], by)

    @precondition(lambda self: any(kept.calls for kept in self.kept.values()))
    @rule(number=_numbers, kept=st.integers(0, 60), tail=_tokens, by=st.integers(0, 1))
    def fork(self, number: int, kept: int, tail: tuple[int, ...], by: int) -> None:
        """A prompt that turns off somewhere within an earlier one."""
        earlier = self.any_call(number).call
        self.store([self.call(earlier.session_id, (*tuple(earlier.prompt_token_ids or ())[:kept], 9, *tail), (1,))], by)

    @rule(name=_names, tails=st.lists(_tokens, min_size=2, max_size=5), by=st.integers(0, 1))
    def store_together(self, name: str, tails: list[tuple[int, ...]], by: int) -> None:
        """Several calls of one session that are under way at the same time."""
        calls: list[Call] = []
        for tail in tails:
            call = self.call(name, SYSTEM + tail, (len(tail),))
            calls.append(replace(call, ordinal=call.ordinal + len(calls)))
        self.store(calls, by)

    @precondition(lambda self: any(kept.calls for kept in self.kept.values()))
    @rule(number=_numbers, by=st.integers(0, 1))
    def give_again(self, number: int, by: int) -> None:
        """A call that is stored is given again: nothing happens."""
        call = self.any_call(number).call
        self.writers[by].submit(new_call(call)).result(SECONDS)

    @precondition(lambda self: any(kept.calls for kept in self.kept.values()))
    @rule(number=_numbers, by=st.integers(0, 1), what=st.sampled_from(["body", "sampled", "logprobs", "place"]))
    def contradict(self, number: int, by: int, what: str) -> None:
        """Another call of the same name, or at the same place."""
        call = self.any_call(number).call
        others: dict[str, dict[str, Any]] = {
            "body": {"request_body": b"other"},
            "sampled": {"completions": (a_completion([77]),)},
            "logprobs": {"completions": (a_completion([77], logprobs=Logprobs.of([-0.125])),)},
            "place": {"call_id": "c0"},
        }
        with pytest.raises(StoreConflict):
            self.writers[by].submit(new_call(replace(call, **others[what]))).result(SECONDS)

    @precondition(lambda self: any(kept.calls for kept in self.kept.values()))
    @rule(number=_numbers, by=st.integers(0, 1), kind=st.sampled_from(CallKind))
    def learn(self, number: int, by: int, kind: CallKind) -> None:
        """That a call was delivered, and what somebody says it was for."""
        captured = self.any_call(number)
        self.writers[by].submit(Fact(captured.call.call_id, NOW, DELIVERED, "yes")).result(SECONDS)
        label = Label(kind, f"writer {by}", NOW)
        self.repository.add_label(captured.call.call_id, label)
        calls = self.kept[captured.call.session_id].calls
        calls[captured.call.ordinal] = replace(captured, delivered=True, labels=(*captured.labels, label))

    @rule(name=_names, status=st.sampled_from(SessionStatus))
    def set_status(self, name: str, status: SessionStatus) -> None:
        if name not in self.kept:
            with pytest.raises(NotFound):
                self.repository.set_status(name, status)
            return
        self.repository.set_status(name, status)
        self.kept[name].session = replace(self.kept[name].session, status=status)

    @rule(name=_names, value=st.floats(-10, 10), parts=st.dictionaries(st.sampled_from("abc\x00"), st.floats(-1, 1)))
    def reward(self, name: str, value: float, parts: dict[str, float]) -> None:
        reward = Reward(value, tuple(RewardComponent(part, own) for part, own in parts.items()))
        if name not in self.kept:
            with pytest.raises(NotFound):
                self.repository.add_reward(name, reward)
            return
        self.repository.add_reward(name, reward)
        self.kept[name].session = replace(self.kept[name].session, reward=reward)

    @rule()
    def prune(self) -> None:
        """Old sessions go, which are all that have no reward, while both proxies remember them."""
        for _ in prune(self.engines[0], Rule(NOW + timedelta(days=1))):
            pass
        self.kept = {name: kept for name, kept in self.kept.items() if kept.session.reward is not None}

    @rule()
    def restart(self) -> None:
        """Both proxies end and start again, with empty memories."""
        self.shut()
        self.open()

    @rule(name=_names)
    def look(self, name: str) -> None:
        kept = self.kept.get(name)
        assert self.repository.calls(name) == ([] if kept is None else kept.calls)
        state = self.repository.session_state(name)
        if kept is None:
            assert state is None
        else:
            assert state is not None
            assert (state.status, state.next_ordinal) == (kept.session.status, len(kept.calls))

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        with self.stack:
            try:
                self.check_all()
            finally:
                self.shut()

    def check_all(self) -> None:
        for name in SESSIONS:
            self.look(name)
        found = {summary.session.session_id: summary for summary in self.repository.sessions()}
        assert {name: summary.session for name, summary in found.items()} == {
            name: kept.session for name, kept in self.kept.items()
        }
        assert {name: summary.calls for name, summary in found.items()} == {
            name: len(kept.calls) for name, kept in self.kept.items()
        }
        assert list(self.repository.verify()) == []


def test_the_store_is_what_the_model_is(databases: Databases) -> None:
    machine = type("Machine", (StoreMachine,), {"databases": staticmethod(databases)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=18,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
