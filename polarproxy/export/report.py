"""The report of an export: coverage, what is left out and why, and what the rewards teach."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy import __version__
from polarproxy.batch.sample import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.export.account import Account
    from polarproxy.export.plan import Layout
    from polarproxy.export.unfinished import Done

REPORT_VERSION = 1


def report(account: Account, layout: Layout | None = None, files: Sequence[Done] = ()) -> dict[str, Any]:
    """The report as JSON values: of a whole export with its layout and its files, or of what is in one file."""
    return _told(account) | (
        {} if layout is None else {"layout": asdict(layout), "files": [_file(one) for one in files]}
    )


def encode_report(account: Account, layout: Layout | None = None, files: Sequence[Done] = ()) -> bytes:
    """The report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report(account, layout, files)), indent=2) + b"\n"


def _file(file: Done) -> dict[str, Any]:
    counts = {"sessions": file.tally.sessions, "rows": file.tally.rows, "tokens": file.tally.tokens}
    return {"name": file.name, "bytes": file.size, "xxh3_128": file.digest} | counts


def _told(account: Account) -> dict[str, Any]:
    return {
        "report_version": REPORT_VERSION,
        "format_version": FORMAT_VERSION,
        "polarproxy": __version__,
        "advantage": account.options.advantage,
        "weighting": account.options.weighting,
        "merge": account.options.merge,
        "on_collapse": account.options.on_collapse,
        "subagents": account.options.credit.subagents,
        "reward_version": asdict(account.reward_version),
        "policy": {
            "version": account.policy_version,
            "max_lag": account.options.max_lag,
            "rows_by_lag": {str(lag): count for lag, count in sorted(account.lags.items())},
        },
        "where": account.options.where.text,
        "model": account.options.model,
        "models": dict(sorted(account.models.items())),
        "sessions": account.sessions,
        "calls": account.calls,
        "kinds": dict(sorted(account.kinds.items())),
        "rows": account.rows,
        "tokens": account.tokens,
        "sampled_tokens": {"captured": account.captured_tokens, "trained": account.trained_tokens},
        "coverage": account.coverage,
        "left_out": {
            "calls": dict(sorted(account.left_out_calls.items())),
            "sessions": dict(sorted(account.left_out_sessions.items())),
            "turns": dict(sorted(account.left_out_turns.items())),
            "tokens": dict(sorted(account.left_out_tokens.items())),
        },
        "cut": {
            "max_tokens": account.options.max_tokens,
            "rows": account.cut_rows,
            "tokens": account.cut_tokens,
            "trained_tokens": account.cut_trained_tokens,
            "rows_without_training": account.untrained_rows,
        },
        "drift": dict(sorted(account.drifts.items())),
        "unfaithful": {"rows": account.unfaithful_rows, "tokens": account.off_context_tokens},
        "refused_rows": {"rows": account.refused, "by_code": dict(sorted(account.refused_rows.items()))},
        "findings": dict(sorted(account.findings.items())),
        "exact_prompts": account.all_prompts.told()
        | {"sessions": {name: count.told() for name, count in sorted(account.prompts.items())}},
        "rewards": asdict(account.rewards),
        "collapse": asdict(account.collapse),
        "texts": dict(sorted(account.texts.items())),
        "warnings": dict(sorted(account.warnings.items())),
    }
