"""Sessions of an export in few words, for writers."""

from collections.abc import Callable, Iterable, Iterator

from polarproxy.batch.sample import Sample
from polarproxy.credit.diagnostics import RewardSummary
from polarproxy.credit.versions import RewardVersion
from polarproxy.export.account import Account
from polarproxy.export.format import Context, Taken
from polarproxy.export.options import Options
from polarproxy.model import Call, Reward, Session
from polarproxy.trajectory.rebuilt import rebuild
from tests.trajectory.build import WHEN

Fill = Callable[[Session, list[Call], Reward | None], None]
"""Stores a session with its calls, all delivered, and its reward."""


def taken(samples: Iterable[Sample]) -> Iterator[Taken]:
    """Each row as a session of its own, of which nothing but the row is known."""
    for sample in samples:
        session = Session(sample.session_id, WHEN, group_id=sample.group_id, task_id=sample.task_id)
        rebuilt = rebuild(sample.session_id, ())
        yield Taken(session, rebuilt, rebuilt.trajectory, (sample,))


def account() -> Account:
    summary, version = RewardSummary(1, 2, 0, (), 0.5, 0.1), RewardVersion("d1", {"given": 2})
    return Account(options=Options(), rewards=summary, reward_version=version, captured_tokens=4, trained_tokens=3)


def context(form: str | None = None) -> Context:
    return Context(account(), form)
