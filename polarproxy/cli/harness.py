"""`polarproxy harness`: the coding agents that polarproxy knows how to install, start and tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from polarproxy.cli.ending import run as run_to_end
from polarproxy.cli.harness_run import MEMORY, Kind, Memory, Own, run, say
from polarproxy.cli.harness_runs import Checked, check
from polarproxy.cli.opening import Json
from polarproxy.cli.output import console, print_json, print_table
from polarproxy.cli.recipes import harness_cache, known_harnesses
from polarproxy.errors import HarnessNotInstalled, RuntimeFailed
from polarproxy.model.plurals import counted
from polarproxy.rollout.installing import install as install_harness
from polarproxy.rollout.recipes import Harness, named
from polarproxy.rollout.runtimes.opening import best_runtime
from polarproxy.rollout.runtimes.protocol import Limits

if TYPE_CHECKING:
    from collections.abc import Iterable


app = typer.Typer(
    no_args_is_help=True, help="Coding agents: which there are, whether they work here, and running one on a task."
)
app.command()(run)

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all.")]


@app.command("list")
def list_harnesses(harnesses: Own = None, as_json: Json = False) -> None:
    """Show every harness that has a recipe: its version, the API it speaks, and what it is."""
    known = known_harnesses(harnesses)
    if as_json:
        print_json([{"file": str(one.file), "recipe": one.recipe} for one in known.values()])
        return
    rows = [
        (one.recipe.name, one.recipe.version, one.recipe.dialect, "yes" if one.recipe.start else "no", one.recipe.about)
        for one in known.values()
    ]
    print_table("harnesses", ("name", "version", "dialect", "runs", "what it is"), rows, spare=("what it is",))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="As `harness list` has it.")], harnesses: Own = None, as_json: Json = False
) -> None:
    """Show how a harness is installed, started and told apart, and what to know about it."""
    harness = named(known_harnesses(harnesses), name)
    recipe = harness.recipe
    if as_json:
        print_json({"file": str(harness.file), "recipe": recipe})
        return
    console.print(Text(f"{recipe.name} {recipe.version}", style="bold"), Text(recipe.about))
    told: list[tuple[str, Iterable[str]]] = [("recipe", [str(harness.file)])]
    if recipe.install is not None:
        told.append(
            ("installs", (*recipe.install.npm, *recipe.install.pip, *filter(None, [recipe.install.requirements])))
        )
    if recipe.start is not None:
        told += [
            ("command", [" ".join(recipe.start.command)]),
            ("environment", [f"{key}={value}" for key, value in recipe.start.environment.items()]),
            ("writes", [f"~/{path}" for path in recipe.start.files]),
        ]
    told += [
        ("calls", [f"{rule.kind}: {rule.what}" for rule in recipe.kinds]),
        ("quirks", recipe.quirks),
    ]
    for title, lines in told:
        for number, line in enumerate(lines):
            console.print(Text(f"{'' if number else title:>12}  ", style="dim") + Text(line))


@app.command()
def install(names: Names = None, harnesses: Own = None) -> None:
    """Install harnesses into the cache, so that the first run need not wait. Exit code 1: one cannot be had here.

    Example: polarproxy harness install mini-swe-agent
    """
    failed = False
    for harness in _wanted(names, harnesses):
        try:
            install_harness(harness, harness_cache(), say)
        except HarnessNotInstalled as error:
            failed = True
            console.print(Text(f"{harness.recipe.name}: {error}", style="red"))
        else:
            console.print(f"{harness.recipe.name} {harness.recipe.version} is installed")
    if failed:
        raise typer.Exit(1)


@app.command("check")
def check_harnesses(
    names: Names = None,
    runtime: Kind = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for each.")] = 120.0,
    memory_mb: Memory = MEMORY,
    harnesses: Own = None,
    as_json: Json = False,
) -> None:
    """Install harnesses, let each do a small task with a scripted model, and print what was recorded of it.

    No engine is needed. Those whose packages cannot be had here say why; named ones, and those that fail, give exit code 1.

    Example: polarproxy harness check codex --runtime bubblewrap
    """
    told: list[dict[str, Any]] = []
    failed = False
    for harness in _wanted(names, harnesses):
        recipe = harness.recipe
        if recipe.start is None or recipe.check is None:
            told.append({"harness": recipe.name, "skipped": "its recipe has no [start] or no [check]"})
        else:
            told.append({"harness": recipe.name} | _check(harness, runtime or best_runtime(), timeout, memory_mb))
        failed = failed or bool(told[-1].get("problems")) or ("skipped" in told[-1] and bool(names))
        if not as_json:
            _print_check(told[-1])
    if as_json:
        print_json(told)
    if failed:
        raise typer.Exit(1)


def _check(harness: Harness, runtime: str, seconds: float, memory_mb: int) -> dict[str, Any]:
    """What is told of one harness."""
    try:
        installed = install_harness(harness, harness_cache(), say)
    except HarnessNotInstalled as error:
        return {"skipped": str(error)}
    try:
        checked = run_to_end(check(installed, runtime, seconds, Limits(memory_mb=memory_mb)))
    except RuntimeFailed as error:
        return {"problems": [str(error)]}
    return _told(checked, harness.recipe.version, runtime)


def _told(checked: Checked, version: str, runtime: str) -> dict[str, Any]:
    ended = checked.done.outcome.ended
    told: dict[str, Any] = {
        "version": version,
        "runtime": runtime,
        "seconds": round(ended.seconds, 1),
        "calls": checked.kinds,
        "trained_tokens": checked.trained,
        "branches": checked.branches,
        "left_out": checked.left_out,
        "problems": list(checked.problems),
    }
    return told | ({"stdout": ended.stdout[-2000:], "stderr": ended.stderr[-2000:]} if checked.problems else {})


def _print_check(told: dict[str, Any]) -> None:
    name = told["harness"]
    if "skipped" in told:
        console.print(Text(f"- {name}: not checked: {told['skipped']}", style="yellow"))
        return
    if "calls" in told:
        calls = ", ".join(f"{count} {kind}" for kind, count in told["calls"].items()) or "none"
        left = ", ".join(f"{count} {reason}" for reason, count in told["left_out"].items())
        told_of = (
            f"{told['version']} in {told['runtime']}, {told['seconds']} s; calls: {calls}; {told['trained_tokens']:,} tokens"
            f" to train on in {counted(told['branches'], 'branch', 'branches')}{'; left out: ' + left if left else ''}"
        )
    else:
        told_of = "could not be run"
    good = not told["problems"]
    console.print(Text("✓ " if good else "✗ ", style="green" if good else "red") + Text(f"{name} {told_of}"))
    for line in told["problems"]:
        console.print(Text(f"    {line}", style="red"))
    for stream in () if good else ("stdout", "stderr"):
        if told.get(stream, "").strip():
            console.print(Text(f"    {stream}: {told[stream].strip()[-600:]}", style="dim"))


def _wanted(names: list[str] | None, own: str | None) -> list[Harness]:
    known = known_harnesses(own)
    return [named(known, name) for name in names] if names else list(known.values())
