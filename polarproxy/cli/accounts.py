"""The account of an export, for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from polarproxy.batch.sample import MIXED_MODELS
from polarproxy.cli.output import console, errors, print_table
from polarproxy.model.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.export.account import Account
    from polarproxy.export.running import Job, Outcome
    from polarproxy.trajectory.prompting import PromptCount


def print_outcome(done: Outcome, job: Job) -> None:
    """What an export wrote."""
    if done.anew is not None:
        console.print(Text(f"an export to these files had been broken off; it was begun again: {done.anew}"))
    if done.kept:
        said = "files were finished by an export that was broken off; the rest was written now"
        console.print(Text(f"{done.kept} of {len(done.files)} {said}"))
    if done.deleted:
        console.print(Text(f"files of the export before were deleted, unchanged since: {_few(done.deleted)}"))
    if done.beside:
        errors.print(
            Text(f"beside these files lie others that look like shards of them: {_few(done.beside)}", style="yellow")
        )
    print_account(done.account, [*(job.out.with_name(file.name) for file in done.files), job.report])


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _prompt_rows(count: PromptCount) -> list[tuple[str, object]]:
    if not count.calls:
        return []
    return [
        ("turns gone on from exactly", f"{count.exact}, {count.saved_tokens} sampled tokens kept as they were"),
        *((f"not exact, calls: {reason}", number) for reason, number in sorted(count.fallbacks.items())),
        *([("engine used another prompt", count.faults)] if count.faults else []),
    ]


def _cut_rows(account: Account) -> list[tuple[str, object]]:
    if not account.cut_rows:
        return []
    said = f"{account.cut_rows}, {account.cut_tokens} tokens off, {account.cut_trained_tokens} of them trained"
    gone = [("rows with nothing trained before the cut", account.untrained_rows)] if account.untrained_rows else []
    return [("rows cut at --max-tokens", said), *gone]


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
        *((f"left out, tokens: {reason}", count) for reason, count in sorted(account.left_out_tokens.items())),
        *sorted(account.texts.items()),
        *((f"rows with {what}", count) for what, count in sorted(account.warnings.items())),
        *_cut_rows(account),
        *(("file", file) for file in files),
    ]
    print_table("export", ("what", "value"), rows)
    for sign in account.collapse.signs:
        console.print(Text(f"! {sign}", style="yellow"))
    if account.unfaithful_rows:
        console.print(
            f"[yellow]not faithful: {counted(account.unfaithful_rows, 'row')} with"
            f" {counted(account.off_context_tokens, 'trained token')} sampled in another context than the row's[/yellow]"
        )
    if len(account.models) > 1:
        names = ", ".join(sorted(account.models))
        console.print(Text(f"the rows are of several models ({names}); --model trains one of them", style="yellow"))
    if MIXED_MODELS in account.refused_rows:
        said = "sampled by more than one model, of which the one that sampled most is trained, the others are context"
        console.print(f"[yellow]{counted(account.refused_rows[MIXED_MODELS], 'row')} {said}[/yellow]")
    if account.refused:
        said = "had turns refused; `polarproxy verify` names the calls, --no-strict keeps them"
        console.print(f"[yellow]{counted(account.refused, 'row')} {said}[/yellow]")
    if not account.rows:
        console.print("[yellow]no rows: every session is left out, for the reasons above[/yellow]")
