"""The commands over PostgreSQL: the same answers, and a sentence where it cannot be used."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.cli.command import Command
from tests.postgres import Server
from tests.store.samples import NOW, a_call, new_call


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.temporary() as made:
        yield made


@pytest.fixture
def bare(postgres: Server) -> Iterator[str]:
    made = postgres.empty()
    yield made
    postgres.drop(made)


def test_a_database_is_made_and_looked_at(polarproxy: Command, bare: str) -> None:
    assert polarproxy("db", "current", "--db", bare).code == 1
    assert polarproxy("sessions", "list", "--db", bare).code == 2
    assert polarproxy("db", "upgrade", "--db", bare).code == 0
    assert polarproxy("db", "current", "--db", bare).code == 0
    assert polarproxy("sessions", "list", "--json", "--db", bare).json == []


def test_what_is_recorded_is_shown_rewarded_verified_and_exported(
    polarproxy: Command, url: str, tmp_path: Path
) -> None:
    engine = open_database(url)
    writer = Writer(engine)
    for number in range(2):
        prompt = range(40 + 2 * number)
        writer.submit(new_call(a_call(f"c{number}", number, prompt, (7, 8), request_body=b"{}"))).result(20)
        writer.submit(Fact(f"c{number}", NOW, DELIVERED, "yes")).result(20)
    writer.close()
    engine.dispose()
    assert polarproxy("reward", "set", "s1", "0.5", "--component", "tests=1", "--db", url).code == 0
    (session,) = polarproxy("sessions", "list", "--json", "--db", url).json
    assert (session["session"]["session_id"], session["calls"], session["session"]["reward"]["value"]) == ("s1", 2, 0.5)
    assert polarproxy("calls", "show", "c1", "--db", url).code == 0
    assert polarproxy("trajectories", "show", "s1", "--db", url).code == 0
    assert polarproxy("db", "verify", "--json", "--db", url).json == {"sessions": 1, "damaged": []}
    assert polarproxy("export", "--format", "jsonl", "--out", tmp_path / "out", "--db", url).code == 0


@pytest.mark.parametrize("command", [("db", "upgrade"), ("sessions", "list"), ("serve", "--key-file", "key")])
def test_a_server_that_is_not_there_is_a_sentence_and_2(polarproxy: Command, command: tuple[str, ...]) -> None:
    done = polarproxy(*command, "--db", "postgresql://me:secret@127.0.0.1:1/name")
    assert done.code == 2
    assert "cannot be used" in done.err
    assert "secret" not in done.out + done.err


def test_a_proxy_needs_a_key_that_all_can_have(polarproxy: Command, url: str) -> None:
    done = polarproxy("serve", "--db", url)
    assert (done.code, "key_file must be set" in done.err) == (2, True)
