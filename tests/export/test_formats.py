"""What every format keeps to, whichever it is: a format that is added to `FORMATS` is tested here without a word.

A store with groups, sub-agents, drift, sessions without a reward and turns that are not trained; each format and each of
its forms.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from polarproxy.cli.conversation import read_request
from polarproxy.export.collect import Collection
from polarproxy.export.files import FORMATS
from polarproxy.export.format import Context, Format, Reading
from polarproxy.export.options import Options
from polarproxy.export.running import write_file
from polarproxy.model import Reward, Session
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.database import fresh
from tests.export.talk import answered, asked_again, record
from tests.store.filled import converse, fill
from tests.trajectory.build import WHEN

REWARDED = {"skyrl", "areal"}
"""Formats that know no row without a reward."""
CASES = [
    pytest.param(
        one,
        form,
        id=one.name if form is None else f"{one.name}-{form}",
        marks=pytest.mark.skipif(
            any(importlib.util.find_spec(module) is None for module in one.modules), reason=f"needs {one.modules}"
        ),
    )
    for one in FORMATS
    for form in one.forms or (None,)
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    engine = open_database(fresh(tmp_path_factory.mktemp("formats") / "polar.db"))
    fill(engine)
    converse(engine, {"one": 3.0, "two": 2.0, "three": 1.0}, group_id="talk", task_id="talk", harness="h")
    for name, reward in (("yes", 1.0), ("no", 0.0)):
        told = Session(f"said-{name}", WHEN, task_id="said", group_id="said")
        record(engine, answered(told.session_id, name), told, Reward(reward))
    record(engine, asked_again("forked"), Session("forked", WHEN))
    yield Repository(engine)
    engine.dispose()


def export(repository: Repository, path: Path, kind: Format, form: str | None) -> bytes:
    """An export without credit, so that sessions without a reward are in it, where the format knows such."""
    collection = Collection(repository, Options(advantage="grpo" if kind.name in REWARDED else "none"))
    context = Context(collection.account, form, Reading(read_request, repository.token_texts))
    write_file(path, kind, map(collection.take, collection.sessions), context)
    assert collection.account.rows
    return path.read_bytes()


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_the_same_store_is_the_same_bytes(
    repository: Repository, tmp_path: Path, kind: Format, form: str | None
) -> None:
    """Another name in another folder, and all that is remembered of the first export forgotten."""
    first = export(repository, tmp_path / f"one{kind.suffix}", kind, form)
    (tmp_path / "other").mkdir()
    second = export(repository, tmp_path / "other" / f"two{kind.suffix}", kind, form)
    assert first == second
    assert first
