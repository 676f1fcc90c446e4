"""`polarproxy export`: training rows as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import track

from polarproxy.cli import crediting as flags
from polarproxy.cli import laying_out as layout_flags
from polarproxy.cli import texts as text_flags
from polarproxy.cli.accounts import print_outcome
from polarproxy.cli.opening import Db, Json, Merge, open_repository
from polarproxy.cli.output import errors, print_json, print_table
from polarproxy.cli.recipes import known_recipes
from polarproxy.cli.requests import Requests
from polarproxy.cli.scoring import RewardFile, score
from polarproxy.cli.transcripts import Transcriber
from polarproxy.credit.estimators import CreditOptions
from polarproxy.errors import BadExport
from polarproxy.export.collect import Collection
from polarproxy.export.crediting import Watch
from polarproxy.export.files import FORMATS, format_named, format_of
from polarproxy.export.format import Format, Reading
from polarproxy.export.options import NO_CREDIT, Options
from polarproxy.export.plan import Layout, read_splits
from polarproxy.export.report import report
from polarproxy.export.running import Job, run
from polarproxy.export.texts.choosing import LINES
from polarproxy.export.texts.options import TextOptions
from polarproxy.export.where import read_where

_FORMAT_HELP = f"Default: what the file's suffix says. One of: {', '.join(one.name for one in FORMATS)}."
_FORMS = "; ".join(f"{one.name}: {', '.join(one.forms)}" for one in FORMATS if one.forms)


def _list_formats(wanted: bool) -> None:
    if wanted:
        rows = [(one.name, one.suffix, ", ".join(one.forms) or None, one.about) for one in FORMATS]
        print_table("formats", ("--format", "suffix", "--form", "what it is"), rows)
        raise typer.Exit


def export(
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; its report is written beside it. Default: samples, with the format's suffix."
        ),
    ] = None,
    format: Annotated[str | None, typer.Option(help=_FORMAT_HELP)] = None,
    formats: Annotated[
        bool, typer.Option("--formats", callback=_list_formats, is_eager=True, help="List the formats and exit.")
    ] = False,
    form: Annotated[
        str | None, typer.Option(help=f"Of a format that has several ({_FORMS}); default: the first.")
    ] = None,
    advantage: flags.AdvantageOfFormat = None,
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
    reward: RewardFile = None,
    where: layout_flags.WhereTerms = None,
    max_tokens: layout_flags.MaxTokens = None,
    split: layout_flags.SplitShares = None,
    shards: layout_flags.Shards = 1,
    shuffle: layout_flags.Shuffle = None,
    gamma: flags.Gamma = 0.9,
    format_penalty: flags.FormatPenalty = -0.1,
    alpha: flags.Alpha = 0.5,
    embedding: flags.Embedding = None,
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
    if kind.needs == "conversations" and max_tokens is not None:
        raise BadExport(f"{kind.name} is made of conversations, not of token rows; leave --max-tokens out")
    layout = Layout(read_splits(split) if split is not None else (), shards, shuffle)
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
            similarity=flags.similarity(embedding),
            subagents=subagents,
        )
        options = Options(
            advantage or (NO_CREDIT if kind.needs == "conversations" else "grpo"),
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
            read_where(where or ()),
            max_tokens,
        )
        read = Transcriber(repository).transcribe
        if reward is not None or options.advantage != NO_CREDIT:
            score(repository, reward, options)
        collection = Collection(repository, options, known_recipes(), _watch("reading"), read)
        job = Job(out, kind, form, layout, Reading(Requests(repository).read, repository.token_texts), texts)
        done = run(collection, job, _watch("exporting"))
    if as_json:
        print_json(report(done.account, layout, done.files))
    else:
        print_outcome(done, job)
    account = done.account
    nothing = not account.texts[LINES] if kind.needs == "conversations" else not account.rows
    if account.refused or nothing:
        raise typer.Exit(1)


def _watch(what: str) -> Watch:
    """A progress bar on a terminal."""
    return lambda sessions, count: track(sessions, what, count, console=errors, disable=not errors.is_terminal)


def _what_and_where(name: str | None, out: Path | None) -> tuple[Format, Path]:
    if out is not None and not out.name:
        raise BadExport(f"--out {str(out)!r} names no file; write for example --out samples.parquet")
    if out is None:
        kind = format_named(name or FORMATS[0].name)
        return kind, Path(f"samples{kind.suffix}")
    return format_of(out) if name is None else format_named(name), out
