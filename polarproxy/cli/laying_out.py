"""What an export is of, and in which files, as flags of `polarproxy export`."""

from __future__ import annotations

from typing import Annotated

import typer

from polarproxy.export.where import KEYS

_PANEL = "What and where"

WhereTerms = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help=f"Terms that must all hold, such as 'harness=codex,opencode reward>0.5 time>=2026-11-01 kind=main'. Keys:"
        f" {', '.join(KEYS)}, reward.COMPONENT. Filters of sessions also choose who is in a baseline, reward does not; kind,"
        " model and version choose turns, the others stay as context. Repeatable.",
        rich_help_panel=_PANEL,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Rows keep so many tokens from their beginning; what is cut is counted, credit stays as it is.",
        rich_help_panel=_PANEL,
    ),
]
SplitShares = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="Parts by task, such as train=0.9,val=0.1; sessions of one task or group are never parted, and a task stays"
        " in its part as others come.",
        rich_help_panel=_PANEL,
    ),
]
Shards = Annotated[
    int,
    typer.Option(
        min=1,
        help="At most so many files (of each part); a group is never cut. An export that was broken off goes on with the"
        " files that are missing.",
        rich_help_panel=_PANEL,
    ),
]
Shuffle = Annotated[
    int | None,
    typer.Option(
        "--shuffle",
        metavar="SEED",
        help="Groups, and sessions within them, in an order that this number gives; default: by name.",
        rich_help_panel=_PANEL,
    ),
]
