"""`polarproxy generate`: a job from its file to training rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from rich.text import Text

from polarproxy.cli.accounts import print_account
from polarproxy.cli.cluster import cluster
from polarproxy.cli.config import load
from polarproxy.cli.conversation import read_request
from polarproxy.cli.ending import run
from polarproxy.cli.job_run import Place, run_job
from polarproxy.cli.lock import only_proxy
from polarproxy.cli.opening import Json
from polarproxy.cli.output import console, print_json, print_table
from polarproxy.cli.recipes import known_recipes
from polarproxy.cli.transcripts import Transcriber
from polarproxy.errors import BadExport, BadSettings
from polarproxy.export.collect import Collection
from polarproxy.export.crediting import unwatched
from polarproxy.export.files import format_of
from polarproxy.export.format import Reading
from polarproxy.export.options import Options
from polarproxy.export.running import Job as ExportJob
from polarproxy.export.running import run as run_export
from polarproxy.rollout.jobs.dataset import read_tasks
from polarproxy.rollout.jobs.job import Job, Prices, read_job
from polarproxy.rollout.jobs.tally import tally
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.tasks import TaskStore

if TYPE_CHECKING:
    from polarproxy.export.account import Account
    from polarproxy.rollout.jobs.tally import Tally


def generate(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job; docs/guides/generate.md shows one.")],
    upstream: Annotated[str | None, typer.Option(help="Base URL of the engine, in place of the job's.")] = None,
    runner: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Who runs the rollouts: this process, or the nodes of a Ray cluster."),
    ] = "local",
    ray_address: Annotated[
        str | None, typer.Option(help="Of the cluster; default: RAY_ADDRESS, else a new one on this machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run every task of a job with every harness and model, judge what comes out, and export what is accepted.

    What is done is kept: after a crash, a kill or Ctrl-C, the same command goes on where it was, and runs nothing twice.
    Exit code 1 when nothing was accepted, or it was broken off.

    Example: polarproxy generate job.toml
    """
    read = read_job(job)
    if upstream is not None:
        read = msgspec.structs.replace(read, engine=msgspec.structs.replace(read.engine, upstream=upstream))
    place = _prepared(read, job.parent)
    with only_proxy(place.settings):
        if runner == "local":
            finished = run(run_job(place))
        else:
            with cluster(ray_address) as nodes:
                finished = run(run_job(place, nodes))
    counted, account = _exported(place)
    summary = {"job": read.name, "finished": finished, **counted.summary(read.prices)}
    (place.folder / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1))
    if as_json:
        print_json(summary)
    else:
        _print(place, counted, account)
    if not finished or not counted.usable:
        raise typer.Exit(1)


def _prepared(job: Job, beside: Path) -> Place:
    tasks = read_tasks(beside / job.tasks.path, job.tasks.columns, job.tasks.limit)
    folder = (beside / (job.out or job.name)).resolve()
    # What only the end of the job uses must not be wrong when it has run for hours.
    try:
        format_of(Path(job.export.file))
        Options(advantage=job.export.advantage)
    except BadExport as error:
        raise BadSettings(f"export: {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSettings(f"{folder} cannot be made: {error.strerror}") from error
    own = load({}, None).harnesses if job.run.recipes is None else str(beside / job.run.recipes)
    own = None if own is None else str(Path(own).resolve())
    return Place(job, tasks, folder, job.db or f"sqlite:///{folder / 'polar.db'}", own)


def _exported(place: Place) -> tuple[Tally, Account]:
    """What was accepted, as rows. Baselines are of all that were judged."""
    job, engine = place.job, open_database(place.db)
    try:
        ended = TaskStore(engine).of_job(job.name)
        accepted = {one.session_id for one in ended if one.outcome is not None and one.outcome.usable}
        repository = Repository(engine)
        options = Options(advantage=job.export.advantage)
        collection = Collection(repository, options, known_recipes(), transcribe=Transcriber(repository).transcribe)
        collection.sessions = [one for one in collection.sessions if one.session_id in accepted]
        out = place.folder / job.export.file
        wanted = ExportJob(out, format_of(out), reading=Reading(read_request, repository.token_texts))
        return tally(ended), run_export(collection, wanted, unwatched).account
    finally:
        engine.dispose()


def _print(place: Place, counted: Tally, account: Account) -> None:
    job, rate, mean = place.job, counted.accepted_rate, counted.reward_mean
    ended = max(counted.attempted, 1)
    rows: list[tuple[str, object]] = [
        (
            "accepted / attempted",
            f"{counted.usable} / {counted.attempted}" + ("" if rate is None else f" ({rate:.0%})"),
        ),
        ("left out, there was enough", counted.skipped or None),
        *((f"status {name}", count) for name, count in sorted(counted.statuses.items())),
        *((f"not accepted: {name}", count) for name, count in sorted(counted.left_out.items())),
        ("reward mean", None if mean is None else f"{mean:.3f}"),
        ("turns, mean", f"{counted.turns / ended:.1f}"),
        ("tokens sampled", f"{counted.completion_tokens} ({counted.completion_tokens / ended:.0f} a rollout)"),
        ("tokens of prompts", counted.prompt_tokens),
        *([("cost", f"{counted.cost(job.prices):.2f}")] if job.prices != Prices() else []),
    ]
    print_table(f"job {job.name}", ("what", "value"), rows)
    files = [place.folder / name for name in (job.export.file, f"{job.export.file}.report.json", "summary.json")]
    print_account(account, files)
    for name, error in sorted(counted.examples.items()):
        console.print(Text(f"{name}, for example: {error}"))
    console.print(f"look around with: polarproxy sessions list --db {place.db}", markup=False)
