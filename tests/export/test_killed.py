"""An export that was killed goes on."""

import subprocess
import sys
from pathlib import Path

from polarproxy.store.repository import Repository
from tests.export.test_running import SECONDS, SHARDS, content, export, job

KILLED = """
import os, sys
from pathlib import Path
from typing import Any
from dataclasses import replace
from polarproxy.export.collect import Collection
from polarproxy.export.crediting import unwatched
from polarproxy.export.files import format_named
from polarproxy.export.options import Options
from polarproxy.export.plan import Layout
from polarproxy.export.running import Job, run
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository

url, out = sys.argv[1:]
kind, count = format_named("jsonl"), []

def write(path, sessions, context):
    kind.write(path, sessions, context)
    count.append(path)
    if len(count) == 3:
        os.kill(os.getpid(), 9)

job = Job(Path(out), replace(kind, write=write), layout=Layout(shards=4))
run(Collection(Repository(open_database(url)), Options()), job, unwatched)
"""


def test_a_killed_export_goes_on(store: Repository, folder: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", KILLED, f"sqlite:///{tmp_path}/polar.db", str(folder / "rows.jsonl")]
    assert subprocess.run(arguments, timeout=SECONDS, check=False).returncode == -9
    assert content(folder) == {}
    assert export(store, job(folder)).kept == 2
    assert len(content(folder)) == SHARDS + 1
    assert [entry.name for entry in folder.iterdir() if entry.name.startswith(".")] == []
