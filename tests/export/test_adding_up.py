"""Whatever a session was and whatever is asked of it: trained and left out, by reason, are all that it sampled."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.credit.diagnostics import summarise
from polarproxy.credit.estimators import CreditOptions
from polarproxy.credit.versions import reward_version
from polarproxy.export.account import Account
from polarproxy.export.crediting import Crediting
from polarproxy.export.options import Options
from polarproxy.export.report import report
from polarproxy.export.taking import Taking
from polarproxy.export.where import read_where
from polarproxy.model import CapturedCall, Label, Reward, Session, Usage
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.rebuilt import rebuild
from tests.trajectory.build import WHEN
from tests.trajectory.sessions import sessions

OPTIONS = st.builds(
    Options,
    advantage=st.sampled_from(["none", "grpo", "rloo"]),
    merge=st.sampled_from([name for name, _ in MERGES]),
    strict=st.booleans(),
    min_coverage=st.sampled_from([None, None, 0.3, 0.9]),
    credit=st.sampled_from([CreditOptions(), CreditOptions(subagents="exclude")]),
    max_lag=st.sampled_from([None, None, 1]),
    model=st.sampled_from([None, None, "a", "b"]),
    where=st.sampled_from([(), ("version>=1",), ("kind=main",), ("reward>0.5",)]).map(read_where),
    max_tokens=st.sampled_from([None, None, 1, 3]),
)


@st.composite
def odd(draw: st.DrawFn) -> list[CapturedCall]:
    """Sessions at random whose kinds are labelled, whose models change, and whose engine sometimes counts wrongly."""

    def made(captured: CapturedCall) -> CapturedCall:
        model = draw(st.sampled_from(["a", "a", "a", "b", None]))
        usage = draw(st.sampled_from([None, None, Usage(1, 1)]))
        labels = (Label(captured.kind, "me", WHEN),)
        return replace(captured, call=replace(captured.call, served_model=model, usage=usage), labels=labels)

    return [made(captured) for captured in draw(sessions())]


def taken(calls: Sequence[CapturedCall], options: Options, reward: Reward | None) -> Account:
    """The account of one session of an export."""
    session = Session("s", WHEN, reward=reward)
    rebuilt = rebuild("s", calls, merge=dict(MERGES)[options.merge])
    crediting = Crediting([session], options, 2, lambda _: rebuilt.trajectory)
    account = Account(options=options, rewards=summarise(crediting.groups), reward_version=reward_version([session]))
    Taking(options, crediting, account).take(session, rebuilt, ())
    return account


@given(odd(), OPTIONS, st.sampled_from([None, Reward(0.0), Reward(1.0)]))
@settings(max_examples=150)
def test_tokens_add_up(calls: list[CapturedCall], options: Options, reward: Reward | None) -> None:
    told = report(taken(calls, options, reward))
    lost = told["left_out"]["tokens"]
    sampled = sum(len(one.token_ids) for captured in calls for one in captured.call.completions)
    assert told["sampled_tokens"] == {"captured": sampled, "trained": sampled - sum(lost.values())}
    assert all(count > 0 for count in lost.values())
    reasons = {reason for what in ("calls", "sessions", "turns") for reason in told["left_out"][what]}
    assert set(lost) <= reasons | {"cut"}
