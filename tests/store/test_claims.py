"""A session that was made on purpose and comes behind its first call."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from polarproxy.errors import StoreConflict
from polarproxy.model import Session, SessionStatus
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, a_session, new_call

SECONDS = 20.0
MEANT = a_session("s1", task_id="task", group_id="group", metadata=(("seed", "7"),))


def write(engine: Engine, *items: object) -> None:
    writer = Writer(engine)
    try:
        for item in items:
            writer.submit(item).result(SECONDS)  # type: ignore[arg-type]
    finally:
        writer.close()


def called(session: Session) -> object:
    return replace(new_call(a_call("c0", 0)), session=session)


def test_what_a_call_made_becomes_what_was_meant_and_stays_closed(engine: Engine, repository: Repository) -> None:
    write(engine, called(a_session("s1", origin="path", model="m")))
    repository.set_status("s1", SessionStatus.COMPLETED)
    write(engine, MEANT, MEANT)
    assert repository.session("s1") == replace(MEANT, status=SessionStatus.COMPLETED)


@pytest.mark.parametrize(
    "there", [a_session("s1", task_id="another"), a_session("s1", origin="path", group_id="another")]
)
def test_another_session_of_the_name_stays(engine: Engine, repository: Repository, there: Session) -> None:
    write(engine, called(there))
    with pytest.raises(StoreConflict, match="session s1 contradicts what is stored"):
        write(engine, MEANT)
    assert repository.session("s1") == there
