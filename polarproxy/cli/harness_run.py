"""`polarproxy harness run`: one task for one harness, on a copy of a folder, recorded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from polarproxy.cli.config import load
from polarproxy.cli.ending import run as run_to_end
from polarproxy.cli.harness_runs import Done, Task, run_task
from polarproxy.cli.opening import Db, Json
from polarproxy.cli.output import console, errors, print_json
from polarproxy.cli.recipes import harness_cache, known_harnesses
from polarproxy.errors import BadSettings
from polarproxy.model.plurals import counted
from polarproxy.rollout.installing import install
from polarproxy.rollout.recipes import named
from polarproxy.rollout.runtimes.opening import best_runtime
from polarproxy.rollout.runtimes.protocol import Folder, GitCommit, Limits

if TYPE_CHECKING:
    from polarproxy.rollout.runtimes.protocol import Source

Own = Annotated[
    str | None,
    typer.Option("--harnesses", help="Folder of your own recipes, before ours; default: the `harnesses` setting."),
]
Kind = Annotated[str | None, typer.Option("--runtime", help="Where it runs; default: the safest that works here.")]
Memory = Annotated[int, typer.Option("--memory-mb", min=64, help="MiB of memory for all that it starts.")]
MEMORY = Limits().memory_mb


def run(
    name: Annotated[str, typer.Argument(help="As `harness list` has it.")],
    task: Annotated[str, typer.Option("--task", help="What it is to do; @FILE reads it from a file.")],
    upstream: Annotated[str | None, typer.Option(help="Base URL of the engine, without /v1.")] = None,
    model: Annotated[str, typer.Option(help="Name of the model; default: the engine's first.")] = "",
    work: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder to work in; it works on a copy.")
    ] = None,
    commit: Annotated[str | None, typer.Option(help="REPOSITORY@COMMIT to work in, instead.")] = None,
    patch: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write what it changed here, for `git apply`.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that it may take.")] = 1800.0,
    runtime: Kind = None,
    memory_mb: Memory = MEMORY,
    db: Db = None,
    harnesses: Own = None,
    as_json: Json = False,
) -> None:
    """Let a harness do a task on a copy of a folder, through a proxy of its own that records everything.

    Exit code 1: the harness ended with an error, or ran out of time. It gets a home of its own, and nothing of your
    environment.

    Example: polarproxy harness run codex --task "Fix the failing test." --work . --patch fix.patch
    """
    harness = named(known_harnesses(harnesses), name)
    settings = load({"upstream": upstream, "db": db, "port": 0, "host": "127.0.0.1", "auth": "required"}, None)
    source = _source(work, commit)
    if patch is not None and not patch.parent.is_dir():
        raise BadSettings(f"the patch cannot be written to {patch}: there is no folder {patch.parent}")
    text = _read(task[1:]) if task.startswith("@") else task
    installed = install(harness, harness_cache(), say)
    wanted = Task(
        instruction=text,
        runtime=runtime or best_runtime(),
        seconds=timeout,
        limits=Limits(memory_mb=memory_mb),
        source=source,
        model=model,
    )
    done = run_to_end(run_task(installed, wanted, settings))
    if patch is not None:
        patch.write_bytes(done.patch)
    _print_run(done, settings.db, as_json)
    if done.outcome.problem:
        raise typer.Exit(1)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadSettings(f"the task in {file} is not UTF-8: {error.reason} at byte {error.start}") from error


def _source(work: Path | None, commit: str | None) -> Source | None:
    if work is not None and commit is not None:
        raise BadSettings("--work and --commit are two places to work in; give one")
    if commit is not None:
        repository, at, name = commit.rpartition("@")
        if not at or not repository or not name:
            raise BadSettings(f"--commit is REPOSITORY@COMMIT, not {commit!r}")
        return GitCommit(repository, name)
    return None if work is None else Folder(work)


def _print_run(done: Done, db: str, as_json: bool) -> None:
    outcome = done.outcome
    if as_json:
        patch = done.patch.decode("utf-8", "replace")
        ended = asdict(outcome.ended)
        told = {"session_id": done.session.session_id, "status": outcome.status, "problem": outcome.problem}
        print_json(
            told
            | {
                "answer": outcome.answer,
                "calls": len(done.calls),
                **ended,
                "patch": patch,
            }
        )
        return
    if outcome.answer:
        console.print(Text(outcome.answer))
    changed = done.patch.count(b"diff --git ")
    errors.print(
        f"{outcome.status}: {counted(len(done.calls), 'call')} in {outcome.ended.seconds:.1f} s,"
        f" {counted(changed, 'file')} changed; session {done.session.session_id} in {db}",
        markup=False,
    )
    if outcome.problem:
        errors.print(Text(outcome.problem, style="red"))


def say(text: str) -> None:
    """Tells people, on standard error, what takes long."""
    errors.print(Text(text, style="dim"))
