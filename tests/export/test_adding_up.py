"""Whatever a session was and whatever is asked of it: trained and left out, by reason, are all that it sampled."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.batch.sample import Sample
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
from tests.trajectory.laws import sampled, trained
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


def taken(calls: Sequence[CapturedCall], options: Options, reward: Reward | None) -> tuple[Account, Sequence[Sample]]:
    """The account of one session of an export, and its rows."""
    session = Session("s", WHEN, reward=reward)
    rebuilt = rebuild("s", calls, merge=dict(MERGES)[options.merge])
    crediting = Crediting([session], options, 2, lambda _: rebuilt.trajectory)
    account = Account(options=options, rewards=summarise(crediting.groups), reward_version=reward_version([session]))
    return account, Taking(options, crediting, account).take(session, rebuilt, ()).samples


@given(odd(), OPTIONS, st.sampled_from([None, Reward(0.0), Reward(1.0)]))
@settings(max_examples=150)
def test_tokens_add_up(calls: list[CapturedCall], options: Options, reward: Reward | None) -> None:
    account, rows = taken(calls, options, reward)
    told = report(account)
    assert account.trained_tokens == sum(row.trained_tokens for row in rows)
    lost = told["left_out"]["tokens"]
    sampled = sum(len(one.token_ids) for captured in calls for one in captured.call.completions)
    assert told["sampled_tokens"] == {"captured": sampled, "trained": sampled - sum(lost.values())}
    assert all(count > 0 for count in lost.values())
    reasons = {reason for what in ("calls", "sessions", "turns") for reason in told["left_out"][what]}
    assert set(lost) <= reasons | {"cut"}


@given(odd(), OPTIONS)
@settings(max_examples=100)
def test_narrowed_rows_keep_the_laws(calls: list[CapturedCall], options: Options) -> None:
    """However rows are narrowed and cut: every trained token stands after what the engine had, and is trained once."""
    _, rows = taken(calls, options, Reward(1.0))
    truth, seen = sampled(calls), set[float]()
    for row, place, own in trained(rows):
        assert own not in seen
        seen.add(own)
        assert row.token_ids[place] == truth[own].token
        if row.faithful:
            assert np.array_equal(row.token_ids[:place], truth[own].context)
        assert options.model in (None, truth[own].call.call.served_model)
    if options.merge != "stitch":
        assert all(row.faithful for row in rows)
