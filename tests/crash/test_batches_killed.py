"""The service is killed while trainers hold leases: nothing is lost, and every batch is the same when it comes again."""

import json
import random
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from polarproxy.model import Reward, Session, SessionStatus
from polarproxy.store.database import open_database
from polarproxy.store.leases import Consumer, Leases
from polarproxy.store.repository import Repository
from tests.database import fresh
from tests.export.talk import answered, record
from tests.trajectory.build import WHEN

SECONDS = 60
GROUPS, ROUNDS = 4, 20


@contextmanager
def served(db: str) -> Iterator[str]:
    """A service of its own process that is killed when the block ends. Nothing answers behind it, and nothing needs to."""
    command = [
        sys.executable,
        "-m",
        "polarproxy",
        "serve",
        "--db",
        db,
        "--port",
        "0",
        "--upstream",
        "http://127.0.0.1:9",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        said = ""
        while (found := re.search(r"listens on (http://\S+)", said)) is None:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield found[1]
    finally:
        process.kill()
        process.wait(SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def ask(method: str, url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def fill(db: str) -> set[str]:
    engine = open_database(db)
    names = {f"s{group}-{number}" for group in range(GROUPS) for number in range(2)}
    for name in sorted(names):
        group, number = name[1:].split("-")
        record(engine, answered(name, name), Session(name, WHEN, group_id=group), Reward(float(number)))
        Repository(engine).set_status(name, SessionStatus.COMPLETED)
    engine.dispose()
    return names


def test_killed_between_lease_and_acknowledgement(tmp_path: Path) -> None:
    db = fresh(tmp_path / "polar.db")
    fill(db)
    with served(db) as base:
        status, first = ask("GET", f"{base}/api/batches/next?lease_id=step-1&groups={GROUPS}")
        assert status == 200
    with served(db) as base:
        assert ask("GET", f"{base}/api/batches/next") == (204, b"")
        assert ask("GET", f"{base}/api/batches/next?lease_id=step-1") == (200, first)
        status, said = ask("POST", f"{base}/api/batches/step-1/ack")
        assert (status, json.loads(said)["first"]) == (200, True)
    with served(db) as base:
        status, said = ask("POST", f"{base}/api/batches/step-1/ack")
        assert (status, json.loads(said)["first"]) == (200, False)
        assert ask("GET", f"{base}/api/batches/next") == (204, b"")
        assert ask("GET", f"{base}/api/batches/next?lease_id=step-1")[0] == 409


@pytest.mark.slow
def test_killed_at_any_moment_every_session_arrives(tmp_path: Path) -> None:
    """A trainer that knows only the number of its step, and forgets the rest with each crash."""
    db = fresh(tmp_path / "polar.db")
    names, draw = fill(db), random.Random(7)
    batches: dict[int, bytes] = {}
    step, ended, rounds = 0, False, 0
    while not ended:
        rounds += 1
        assert rounds <= ROUNDS, "the batches did not come to an end"
        with served(db) as base:
            for _ in range(2 * GROUPS):
                status, body = ask("GET", f"{base}/api/batches/next?lease_id=step-{step}")
                if status == 200:
                    assert batches.setdefault(step, body) == body
                    if draw.random() < 0.4:
                        break
                    assert ask("POST", f"{base}/api/batches/step-{step}/ack")[0] == 200
                    if draw.random() < 0.2:
                        break
                elif status == 204:
                    ended = True
                    break
                step += 1
    assert rounds > 1
    got = [row["session_id"] for body in batches.values() for row in json.loads(body)["rows"]]
    assert sorted(got) == sorted(names)
    engine = open_database(db)
    assert Leases(engine).consumers() == [Consumer("default", 0, GROUPS, len(names))]
    engine.dispose()
