"""`polarproxy push`: a trainer gets every batch until it has it, and no batch twice unless it failed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pyarrow as pa
import pytest

from polarproxy.cli import push
from polarproxy.model import SessionStatus
from polarproxy.store.database import open_database
from polarproxy.store.leases import Consumer, Leases
from polarproxy.store.repository import Repository
from tests.cli.command import Command
from tests.serving import serving

Answer = Callable[[int], int]
"""The status of the answer to the request of this number; 0: something that is no HTTP."""


@dataclass
class Trainer:
    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def trainer(answer: Answer) -> Iterator[Trainer]:
    made = Trainer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append((dict(self.headers.items()), body))
            status = answer(len(made.got))
            said = b"" if status == 200 else b"not [now]"
            if status == 0:
                self.close_connection = True
                self.wfile.write(b"good morning\r\n\r\n")
                return
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def do_GET(self) -> None:
            """What a page says to whoever asks for it."""
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Says nothing."""

    with serving(Handler) as url:
        made.url = f"{url}/batches"
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "_FIRST_PAUSE_S", 0.01)


@pytest.fixture
def closed(db: str) -> Iterator[Leases]:
    """All sessions of `db` are closed."""
    engine = open_database(db)
    for session in ("good", "bad"):
        Repository(engine).set_status(session, SessionStatus.COMPLETED)
    yield Leases(engine)
    engine.dispose()


def test_what_is_complete_is_sent_once(polarproxy: Command, db: str, closed: Leases) -> None:
    with trainer(lambda _: 200) as there:
        first = polarproxy("push", "--to", there.url, "--db", db, "--key", "secret")
        second = polarproxy("push", "--to", there.url, "--db", db, "--json")
    assert (first.code, second.code) == (0, 0), first.err
    assert "taken: 1 batch with 2 rows" in first.out
    assert second.json == {
        "batches": 0,
        "rows": 0,
        "groups_waiting": {"ready": 0, "open": 0, "unrewarded": 0, "small": 0},
    }
    ((headers, body),) = there.got
    assert pa.ipc.open_stream(body).read_all()["session_id"].to_pylist() == ["bad", "good"]
    assert headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    assert (headers["X-Polarproxy-Rows"], headers["Authorization"]) == ("2", "Bearer secret")
    assert closed.consumers() == [Consumer("default", 0, 1, 2)]


def test_open_sessions_are_not_sent(polarproxy: Command, db: str) -> None:
    with trainer(lambda _: 200) as there:
        done = polarproxy("push", "--to", there.url, "--db", db)
    assert (done.code, there.got) == (0, [])
    assert "1 with open sessions" in done.out.replace("\n", " ")


def test_a_trainer_that_stumbles_gets_the_same_batch_again(polarproxy: Command, db: str, closed: Leases) -> None:
    with trainer(lambda number: 200 if number == 3 else (503, 429)[number - 1]) as there:
        done = polarproxy("push", "--to", there.url, "--db", db, "--format", "json")
    assert done.code == 0
    assert "it answered 503 not [now]; trying again" in done.out
    assert len(there.got) == 3
    assert len({(headers["X-Polarproxy-Batch"], body) for headers, body in there.got}) == 1
    assert closed.consumers()[0].acked == 1


@pytest.mark.parametrize(("status", "attempts"), [(400, 1), (500, 3)])
def test_what_is_not_taken_is_given_back(
    polarproxy: Command, db: str, closed: Leases, status: int, attempts: int
) -> None:
    with trainer(lambda _: status) as there:
        failed = polarproxy("push", "--to", there.url, "--db", db, "--retries", 2)
    assert (failed.code, len(there.got)) == (1, attempts)
    assert str(status) in failed.err
    assert "not [now]" in failed.err
    assert closed.consumers()[0].acked == 0
    with trainer(lambda _: 200) as other:
        assert polarproxy("push", "--to", other.url, "--db", db).code == 0
    assert other.got[0][1] == there.got[0][1]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_batch(polarproxy: Command, db: str, closed: Leases, status: int) -> None:
    with trainer(lambda _: status) as there:
        failed = polarproxy("push", "--to", there.url, "--db", db)
    assert (failed.code, len(there.got)) == (1, 1)
    assert f"refused batch {there.got[0][0]['X-Polarproxy-Batch']} with {status}" in failed.err.replace("\n", " ")
    assert closed.consumers() == [Consumer("default", 1, 0, 0)]


def test_an_answer_that_is_none_is_no_answer(polarproxy: Command, db: str, closed: Leases) -> None:
    with trainer(lambda number: 0 if number == 1 else 200) as there:
        done = polarproxy("push", "--to", there.url, "--db", db)
    assert (done.code, len(there.got)) == (0, 2), done.err
    assert "no HTTP" in done.out
    assert closed.consumers()[0].acked == 1


def test_nobody_there(polarproxy: Command, db: str, closed: Leases) -> None:
    done = polarproxy("push", "--to", "http://127.0.0.1:9/x", "--db", db, "--retries", 1)
    assert done.code == 1
    assert "cannot be reached" in done.err
    assert "in 2 attempts" in done.err
    assert closed.consumers()[0].leased == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ("--to", "trainer"),
        ("--groups", 0),
        ("--consumer", "a b"),
        ("--advantage", "luck"),
        ("--max-lag", -1),
        ("--timeout", 1e12),
        ("--timeout", 0),
    ],
)
def test_wrong_use(polarproxy: Command, db: str, wrong: tuple[str, object]) -> None:
    arguments = [part for pair in ({"--to": "http://127.0.0.1:9", "--db": db} | dict([wrong])).items() for part in pair]
    done = polarproxy("push", *arguments)
    assert done.code == 2
    assert done.err


@pytest.mark.parametrize("seconds", [-1, 0, "nan", "inf", 43201, 1e300])
def test_a_timeout_that_is_none_is_said_by_its_name(polarproxy: Command, db: str, seconds: object) -> None:
    done = polarproxy("push", "--to", "http://127.0.0.1:9", "--db", db, f"--timeout={seconds}")
    assert done.code == 2
    assert "--timeout must be above 0 and at most 43200 seconds (half a day)" in " ".join(done.err.split())


def test_the_longest_timeout_is_one(polarproxy: Command, db: str, closed: Leases) -> None:
    with trainer(lambda _: 200) as there:
        done = polarproxy("push", "--to", there.url, "--db", db, "--timeout", 43200)
    assert (done.code, closed.consumers()[0].acked) == (0, 1), done.err
