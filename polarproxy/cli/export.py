"""`polarproxy export`: training rows as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import track
from rich.text import Text

from polarproxy.batch.sample import MIXED_MODELS
from polarproxy.cli import crediting as flags
from polarproxy.cli import texts as text_flags
from polarproxy.cli.conversation import read_request
from polarproxy.cli.opening import Db, Json, Merge, open_repository
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.cli.recipes import known_recipes
from polarproxy.cli.transcripts import Transcriber
from polarproxy.credit.estimators import CreditOptions
from polarproxy.export.account import Account
from polarproxy.export.atomic import check_target
from polarproxy.export.collect import Collection
from polarproxy.export.crediting import Watch
from polarproxy.export.files import FORMATS, format_named, format_of, report_path, write_file, write_report
from polarproxy.export.format import Context, Format, Reading
from polarproxy.export.options import Options
from polarproxy.export.report import report
from polarproxy.export.texts.options import TextOptions

if TYPE_CHECKING:
    from polarproxy.trajectory.prompting import PromptCount

_FORMAT_HELP = f"Default: what the file's suffix says. One of: {', '.join(one.name for one in FORMATS)}."
_FORMS = "; ".join(f"{one.name}: {', '.join(one.forms)}" for one in FORMATS if one.forms)


def export(
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; its report is written beside it. Default: samples, with the format's suffix."
        ),
    ] = None,
    format: Annotated[str | None, typer.Option(help=_FORMAT_HELP)] = None,
    form: Annotated[
        str | None, typer.Option(help=f"Of a format that has several ({_FORMS}); default: the first.")
    ] = None,
    advantage: flags.Advantage = "grpo",
    weighting: Annotated[
        Literal["per_session", "per_token", "per_row"], typer.Option(help="How the rows of a session share its weight.")
    ] = "per_session",
    merge: Merge = "prefix_merging",
    group: Annotated[str | None, typer.Option(help="Only sessions of this group.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Train only what this model sampled; what others did is context. Default: all.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(help="Refuse rows whose ids, logprobs and counts contradict each other (`polarproxy verify`)."),
    ] = True,
    min_coverage: Annotated[
        float | None,
        typer.Option(help="Refuse sessions of which less than this part of the tokens is trained (0 to 1)."),
    ] = None,
    on_collapse: flags.OnCollapse = "keep",
    subagents: flags.SubAgentCredit = "share",
    policy_version: flags.PolicyVersion = None,
    max_lag: flags.MaxLag = None,
    gamma: flags.Gamma = 0.9,
    format_penalty: flags.FormatPenalty = -0.1,
    alpha: flags.Alpha = 0.5,
    scope: flags.Scope = "batch",
    overlong: flags.Overlong = "filter",
    overlong_limit: flags.OverlongLimit = None,
    overlong_buffer: flags.OverlongBuffer = 1024,
    component_weight: flags.ComponentWeight = None,
    best_of: text_flags.BestOf = None,
    dedup: text_flags.Dedup = False,
    margin: text_flags.Margin = None,
    pairs: text_flags.PairsOf = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Write every trainable branch as a row: ids, mask, logprobs, advantages, and where they come from.

    Exit code 1 when a row was refused, or not one could be made; the report says why.

    Example: polarproxy export --out samples.parquet --advantage grpo
    """
    kind, out = _what_and_where(format, out)
    form = kind.form(form)
    kind.require()
    texts = TextOptions(best_of, dedup, margin, pairs)
    texts.check(kind.takes, kind.name)
    for path in (out, report_path(out)):
        check_target(path)
    with open_repository(db) as repository:
        credit = CreditOptions(
            gamma=gamma,
            format_penalty=format_penalty,
            scope=scope,
            alpha=alpha,
            overlong=overlong,
            overlong_limit=overlong_limit,
            overlong_buffer=overlong_buffer,
            component_weights=flags.weights(component_weight or ()),
            subagents=subagents,
        )
        options = Options(
            advantage,
            weighting,
            group,
            merge,
            strict,
            min_coverage,
            credit,
            on_collapse,
            policy_version,
            max_lag,
            model,
        )
        read = Transcriber(repository).transcribe
        collection = Collection(repository, options, known_recipes(), _watch("reading"), read)
        sessions = _watch("exporting")(collection.sessions, len(collection.sessions))
        context = Context(collection.account, form, Reading(read_request, repository.token_texts), texts)
        write_file(out, kind, map(collection.take, sessions), context)
    account = collection.account
    write_report(report_path(out), account)
    if as_json:
        print_json(report(account))
    else:
        print_account(account, [out])
    if account.refused or not account.rows:
        raise typer.Exit(1)


def _watch(what: str) -> Watch:
    """A progress bar on a terminal."""
    return lambda sessions, count: track(sessions, what, count, console=errors, disable=not errors.is_terminal)


def _what_and_where(name: str | None, out: Path | None) -> tuple[Format, Path]:
    if out is None:
        kind = format_named(name or FORMATS[0].name)
        return kind, Path(f"samples{kind.suffix}")
    return format_of(out) if name is None else format_named(name), out


def _prompt_rows(count: PromptCount) -> list[tuple[str, object]]:
    if not count.calls:
        return []
    return [
        ("turns gone on from exactly", f"{count.exact}, {count.saved_tokens} sampled tokens kept as they were"),
        *((f"not exact, calls: {reason}", number) for reason, number in sorted(count.fallbacks.items())),
        *([("engine used another prompt", count.faults)] if count.faults else []),
    ]


def print_account(account: Account, files: list[Path]) -> None:
    """The account of an export as a table."""
    rewards = account.rewards
    coverage = None if account.coverage is None else f"{account.coverage:.1%}"
    rows: list[tuple[str, object]] = [
        ("sessions", account.sessions),
        ("calls", account.calls),
        *((f"calls of kind {kind}", count) for kind, count in sorted(account.kinds.items())),
        ("rows", account.rows),
        ("tokens in rows", account.tokens),
        ("sampled tokens trained", f"{account.trained_tokens} of {account.captured_tokens}"),
        ("coverage", coverage),
        ("reward mean", None if rewards.mean is None else f"{rewards.mean:.3f}"),
        ("within-group spread", None if rewards.within_group_std is None else f"{rewards.within_group_std:.3f}"),
        ("groups (without spread)", f"{rewards.groups} ({len(rewards.flat_groups)})"),
        *((f"left out, calls: {reason}", count) for reason, count in sorted(account.left_out_calls.items())),
        *((f"left out, sessions: {reason}", count) for reason, count in sorted(account.left_out_sessions.items())),
        *((f"drift, calls: {what}", count) for what, count in sorted(account.drifts.items())),
        *_prompt_rows(account.all_prompts),
        *((f"rows with refused turns: {code}", count) for code, count in sorted(account.refused_rows.items())),
        *((f"left out, turns: {reason}", count) for reason, count in sorted(account.left_out_turns.items())),
        *sorted(account.texts.items()),
        *((f"rows with {what}", count) for what, count in sorted(account.warnings.items())),
        *(("file", file) for file in files),
    ]
    print_table("export", ("what", "value"), rows)
    for sign in account.collapse.signs:
        console.print(Text(f"! {sign}", style="yellow"))
    if account.unfaithful_rows:
        console.print(
            f"[yellow]{account.unfaithful_rows} rows are not faithful: {account.off_context_tokens} trained tokens were"
            f" sampled in another context than the one in the row[/yellow]"
        )
    if len(account.models) > 1:
        names = ", ".join(sorted(account.models))
        console.print(Text(f"the rows are of several models ({names}); --model trains one of them", style="yellow"))
    if MIXED_MODELS in account.refused_rows:
        said = "rows were sampled by more than one model and refused; --model NAME trains the tokens of one"
        console.print(f"[yellow]{account.refused_rows[MIXED_MODELS]} {said}[/yellow]")
    if account.refused:
        said = "rows had turns refused; `polarproxy verify` names the calls, --no-strict keeps them"
        console.print(f"[yellow]{account.refused} {said}[/yellow]")
    if not account.rows:
        console.print("[yellow]no rows: every session is left out, for the reasons above[/yellow]")
