"""The same sessions are the same bytes, whichever database they lie in, in which order they came, and in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polarproxy.export.files import FORMATS
from polarproxy.model import Reward, RewardComponent, Session
from polarproxy.store.database import open_database
from tests.cli.command import Command
from tests.database import fresh
from tests.export.talk import answered, record
from tests.postgres import Server
from tests.trajectory.build import WHEN

SECONDS = 120
NAMES = ("b", "B", "_", "ä", "a-1", "a1", "A", "ß☃", "a.1", "z z")
"""Which databases sort differently, each by its own rules."""
OF_CORE = [one.name for one in FORMATS if not one.modules]


def filled(file: Path, names: tuple[str, ...]) -> str:
    """Sessions of three groups, and two without one."""
    engine = open_database(fresh(file))
    for name in names:
        place = NAMES.index(name)
        session = Session(
            name, WHEN, group_id=("G", "g", "é", "_", None)[place % 5], task_id=f"t{place % 5}", harness="codex"
        )
        reward = Reward(float(place % 3), (RewardComponent("tests", place / 10), RewardComponent("style", 0.1)))
        record(engine, answered(name, f"It is {place}.", "“Yes”\n"), session, reward)
    engine.dispose()
    return f"sqlite:///{file}"


def exported(polarproxy: Command, url: str, folder: Path, *options: object) -> dict[str, bytes]:
    folder.mkdir()
    for name in OF_CORE:
        done = polarproxy("export", "--db", url, "--out", folder / f"rows.{name}", "--format", name, *options)
        assert done.code == 0, done.err
    return {entry.name: entry.read_bytes() for entry in sorted(folder.iterdir())}


@pytest.mark.parametrize("options", [(), ("--shuffle", 3, "--shards", 2)], ids=["plain", "shuffled"])
def test_sqlite_and_postgresql(
    polarproxy: Command, postgres: Server, tmp_path: Path, options: tuple[object, ...]
) -> None:
    here, there = filled(tmp_path / "polar.db", NAMES), postgres.empty()
    assert polarproxy("db", "migrate", "--to", there, "--db", here).code == 0
    assert exported(polarproxy, here, tmp_path / "here", *options) == exported(
        polarproxy, there, tmp_path / "there", *options
    )
    postgres.drop(there)


def test_whatever_the_order_in_which_they_came(polarproxy: Command, tmp_path: Path) -> None:
    one, other = filled(tmp_path / "one.db", NAMES), filled(tmp_path / "other.db", NAMES[::-1])
    assert exported(polarproxy, one, tmp_path / "1") == exported(polarproxy, other, tmp_path / "2")


def test_in_every_process(tmp_path: Path) -> None:
    url, found = filled(tmp_path / "polar.db", NAMES), set()
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.jsonl"
        command = [sys.executable, "-m", "polarproxy", "export", "--db", url, "--out", str(out), "--advantage", "gdpo"]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run(command, env=environment, timeout=SECONDS, check=True, capture_output=True)
        report = out.with_name(f"{out.name}.report.json").read_bytes().replace(out.name.encode(), b"rows")
        found.add((out.read_bytes(), report))
    assert len(found) == 1
