"""`polarproxy generate`: jobs from files to rows, killed in the middle, and jobs that cannot be run."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polarproxy.cli.job_run import Place, run_job
from polarproxy.errors import BadSettings
from polarproxy.rollout.jobs.dataset import read_tasks
from polarproxy.rollout.jobs.job import read_job
from polarproxy.rollout.jobs.tally import tally
from polarproxy.rollout.scripted.engine import ScriptedEngine
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.tasks import TaskStore
from tests.cli.command import Command
from tests.postgres import Server
from tests.rollout.jobs.katas import KATAS, Model, write_tasks
from tests.rollout.jobs.show import Show, play

RECIPES = Path(__file__).parents[1] / "rollout" / "jobs" / "recipes"
JOB = f"""name = "j"
[tasks]
path = "tasks.jsonl"
[run]
harnesses = ["small-agent"]
recipes = "{RECIPES}"
samples = 4
runtime = "local"
[evaluator]
kind = "tests"
runner = "unittest"
"""


@pytest.mark.parametrize("kill", [False, True])
async def test_katas(tmp_path: Path, kill: bool) -> None:
    """Right rewards, whole groups, an export; after kill -9 the same command runs nothing twice."""
    katas, samples = (6, 4) if kill else (4, 2)
    show = Show(tmp_path, ("small-agent",), katas, samples, rollouts=3, runtime="local")
    assert await play(show, kill=kill) == []
    summary = json.loads((tmp_path / "katas" / "summary.json").read_text())
    assert (summary["attempted"], summary["accepted"], summary["turns_mean"]) == (katas * samples, katas * samples, 3.0)
    assert summary["statuses"] == {"completed": katas * samples}


def place(folder: Path, text: str = JOB, katas: int = 3) -> Place:
    write_tasks(folder / "tasks.jsonl", KATAS[:katas])
    (folder / "job.toml").write_text(text)
    job = read_job(folder / "job.toml")
    return Place(job, read_tasks(folder / job.tasks.path, {}), folder, f"sqlite:///{folder}/polar.db", str(RECIPES))


async def test_a_target_ends_the_job(tmp_path: Path) -> None:
    async with ScriptedEngine(Model()) as engine:
        text = JOB.replace("[tasks]", "target = 2\n[tasks]").replace("samples = 4", "samples = 4\nrollouts = 1")
        asked = place(tmp_path, text + f'[engine]\nupstream = "{engine.url}"\n')
        for _ in range(2):
            assert await run_job(asked)
            database = open_database(asked.db)
            rollouts = TaskStore(database).of_job("j")
            database.dispose()
            usable = sum(one.outcome is not None and one.outcome.usable for one in rollouts)
            assert 2 <= usable <= 4
            assert {one.state.value for one in rollouts} == {"done", "skipped"}


async def test_another_job_of_the_same_name(tmp_path: Path) -> None:
    async with ScriptedEngine(Model()) as engine:
        engine_table = f'[engine]\nupstream = "{engine.url}"\n'
        one = JOB.replace("samples = 4", "samples = 1") + engine_table
        assert await run_job(place(tmp_path, one, katas=1))
        with pytest.raises(BadSettings, match="another name"):
            await run_job(place(tmp_path, JOB + engine_table, katas=1))
        # More tasks are no other job: those that are done stay done.
        assert await run_job(place(tmp_path, one, katas=2))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"folder": "/nonexistent", "files": {}}, "the working copy cannot be made from"),
        ({"files": {"a": "", "a/b": ""}}, "the files of the task cannot be written"),
    ],
)
async def test_what_went_wrong_is_told_by_an_example(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    async with ScriptedEngine(Model()) as engine:
        asked = place(tmp_path, JOB + f'[engine]\nupstream = "{engine.url}"\n', katas=1)
        tasks = [msgspec.structs.replace(one, **wrong) for one in asked.tasks]
        assert await run_job(replace(asked, tasks=tasks))
    database = open_database(asked.db)
    counted = tally(TaskStore(database).of_job("j"))
    database.dispose()
    assert counted.left_out == {"infra_error": 4}
    assert said in counted.summary(asked.job.prices)["errors"]["infra_error"]


@pytest.mark.parametrize("taken", [True, False])
async def test_on_postgres(tmp_path: Path, postgres: Server, taken: bool) -> None:
    """Two who run one job on one database: the second waits, and finds nothing left to do."""
    async with ScriptedEngine(Model()) as engine:
        with postgres.temporary() as db:
            text = JOB.replace("samples = 4", "samples = 2") + f'[engine]\nupstream = "{engine.url}"\n'
            places = [replace(place(tmp_path, text, katas=2), db=db) for _ in range(1 + taken)]
            assert await asyncio.gather(*map(run_job, places)) == [True] * len(places)
            database = open_database(db)
            rollouts = TaskStore(database).of_job("j")
            sessions = list(Repository(database).sessions())
            database.dispose()
    assert [(one.state.value, one.attempts) for one in rollouts] == [("done", 1)] * 4
    assert sorted(one.session.session_id for one in sessions) == sorted(one.session_id or "" for one in rollouts)


WRONG: list[tuple[str, str]] = [
    ('name = "x"', "tasks"),
    (JOB.replace('name = "j"', 'name = "a/b"'), "names a folder"),
    (JOB.replace("[evaluator]", "[evalator]"), "did you mean `evaluator`"),
    (JOB.replace("samples = 4", "sample = 4"), "unknown field `sample` - at `$.run`; did you mean `samples`"),
    (JOB.replace("samples = 4", "samples = 1_000_000_000"), "num_samples must lie in"),
    (
        JOB.replace('kind = "tests"', 'kind = "test"'),
        "it is one of tests, test_map, command, function, session_completed",
    ),
    (JOB + '[keep]\nstatuses = ["done"]\n', "it is one of open, completed"),
    (JOB + "x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    (JOB + '[engine]\nupstream = "http://127.0.0.1:9"\n', "start the engine, or name another with --upstream"),
    (JOB.replace('"small-agent"', ""), "names none"),
    (JOB.replace("samples = 4", "samples = 0"), "run.samples"),
    (JOB.replace("samples = 4", 'samples = "four"'), "samples"),
    (JOB.replace("tasks.jsonl", "nowhere.jsonl"), "nowhere.jsonl"),
    (JOB.replace('runner = "unittest"', ""), "give one of runner and command"),
    (JOB.replace('"small-agent"', '"small-agen"'), "did you mean 'small-agent'"),
    (JOB.replace('runtime = "local"', 'runtime = "cloud"'), "cloud"),
    (JOB + '[export]\nfile = "x.odd"\n', "x.odd"),
    (JOB + '[engine]\nupstream = "nowhere"\n', "upstream"),
    (JOB + '[engine]\nengine = "other"\n', "engine"),
    (JOB.replace('name = "j"', 'name = "a\\u0000"'), "names a folder"),
    (JOB.replace('"small-agent"', '"small-agent", "small-agent"'), "names one twice"),
    (JOB + '[export]\nfile = "../x.parquet"\n', "in the job's folder"),
    (JOB + '[export]\nadvantage = "grop"\n', "export: there is no advantage"),
    (JOB + "[sampling]\ntemprature = 1.0\n", "sampling: there is no parameter 'temprature'"),
    (JOB + "[sampling]\ntemperature = nan\n", "temperature must be a number"),
    (JOB + '[tasks.columns]\ninstrction = "x"\n', "tasks.columns has 'instrction'"),
    (JOB + "[tasks]\n", "is not TOML"),
    (JOB.replace('path = "tasks.jsonl"', 'path = "tasks.jsonl"\nlimit = -1'), "tasks.limit is -1"),
    ("name = ", "is not TOML"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_jobs_that_cannot_be_run(tmp_path: Path, polarproxy: Command, text: str, said: str) -> None:
    write_tasks(tmp_path / "tasks.jsonl", KATAS[:1])
    (tmp_path / "job.toml").write_text(text)
    result = polarproxy("generate", str(tmp_path / "job.toml"))
    assert result.code == 2
    assert said in " ".join(result.err.split())
    assert "Traceback" not in result.err


ROWS: list[tuple[list[Any], str]] = [
    ([], "no tasks"),
    ([{"id": "a"}], "instruction"),
    ([{"id": "a", "instruction": "x"}, {"id": "a", "instruction": "y"}], "already"),
    ([{"id": "", "instruction": "x"}], "characters"),
    ([{"id": "a", "instruction": "x", "files": "{"}], "no JSON"),
    ([{"id": "a", "instruction": "x", "evaluator": {"kind": "magic"}}], "magic"),
    (["text"], "object"),
]


@pytest.mark.parametrize(("rows", "said"), ROWS)
def test_tasks_that_cannot_be_read(tmp_path: Path, rows: list[Any], said: str) -> None:
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadSettings, match=said):
        read_tasks(tmp_path / "t.jsonl", {})
