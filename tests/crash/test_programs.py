"""A few rounds of every crash test; `python -m tests.crash.NAME` runs as many as one likes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.crash import (
    cut_network,
    fill_disk,
    kill_both,
    kill_proxy,
    kill_worker,
    lock_database,
    remove_log,
    stop_postgres,
)
from tests.crash.program import Program, run
from tests.postgres import MISSING, binaries

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS, CLIENTS, SECONDS = 2, 16, 120
PROGRAMS = [
    (program, kind, spool)
    for program, spool in (
        (kill_proxy.PROGRAM, False),
        (kill_worker.PROGRAM, False),
        (remove_log.PROGRAM, False),
        (stop_postgres.PROGRAM, False),
        (cut_network.PROGRAM, False),
        (lock_database.PROGRAM, False),
        (lock_database.PROGRAM, True),
        (cut_network.PROGRAM, True),
        (kill_both.PROGRAM, True),
    )
    for kind in program.databases
]
NAMES = [f"{program.name}-{kind}{'-spool' * spool}" for program, kind, spool in PROGRAMS]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "kind", "spool"), PROGRAMS, ids=NAMES)
async def test_nothing_is_lost(program: Program, kind: str, spool: bool, tmp_path: Path) -> None:
    if kind == "postgresql" and binaries() is None:
        pytest.skip(MISSING)
    outcome = await run(program, ROUNDS, tmp_path, seed=20_261_130, kind=kind, clients=CLIENTS, spool=spool)
    assert outcome.clean, outcome.faults[:5]
    assert {one.streamed for one in outcome.seen} == {True, False}
    assert len({len(one.prompt_token_ids) for one in outcome.seen}) > 1
    if outcome.may_refuse and program.surely:
        assert outcome.refusals.total() > 0, "no round reached the clients"


@pytest.mark.slow
def test_nothing_is_lost_when_the_disk_is_full(tmp_path: Path) -> None:
    """As a program: it may have to move into a namespace, and this process must not."""
    command = [sys.executable, "-m", "tests.crash.fill_disk", "--rounds", str(ROUNDS), "--work", str(tmp_path)]
    if not fill_disk.can_mount():
        probe = ["unshare", "--user", "--map-root-user", "--mount", "true"]
        if subprocess.run(probe, capture_output=True, timeout=SECONDS, check=False).returncode:
            pytest.skip("needs root or user namespaces, to mount a small disk")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 refused for now" not in done.stdout, "no round reached the clients"
