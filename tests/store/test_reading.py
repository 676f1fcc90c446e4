"""What reading a session costs does not grow with its calls."""

from sqlalchemy import Engine, event

from polarproxy.store.entries import read_calls
from polarproxy.store.repository import Repository
from tests.store.filled import converse


def questions(engine: Engine, session_id: str) -> list[int]:
    """How many statements it takes to read all its calls: for people, and for an archive."""
    counts = []
    asked: list[str] = []

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", count)
    for read in (lambda: Repository(engine).calls(session_id), lambda: all_entries(engine, session_id)):
        asked.clear()
        assert read()
        counts.append(len(asked))
    event.remove(engine, "before_cursor_execute", count)
    return counts


def all_entries(engine: Engine, session_id: str) -> list[object]:
    with engine.begin() as connection:
        return list(read_calls(connection, session_id))


def test_a_session_is_read_with_a_handful_of_questions(engine: Engine) -> None:
    converse(engine, {"short": 1}, turns=3)
    converse(engine, {"long": 1}, turns=20)
    assert questions(engine, "long") == questions(engine, "short")
    assert max(questions(engine, "long")) <= 8
    assert [captured.call.ordinal for captured in Repository(engine).calls("long")] == list(range(20))
