"""How rows are credited, as flags of `polarproxy export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from polarproxy.errors import BadExport
from polarproxy.export.options import ADVANTAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

_PANEL = "Credit"

Advantage = Annotated[str, typer.Option(help=f"{', '.join(ADVANTAGES)} (rows without credit).", rich_help_panel=_PANEL)]
AdvantageOfFormat = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(ADVANTAGES)} (without credit, also of sessions without a reward). Default: grpo; none for formats"
        " made of conversations.",
        rich_help_panel=_PANEL,
    ),
]
OnCollapse: TypeAlias = Annotated[
    Literal["keep", "drop", "fail"],
    typer.Option(help="What to do with groups whose rewards do not differ.", rich_help_panel=_PANEL),
]
SubAgentCredit: TypeAlias = Annotated[
    Literal["share", "own", "exclude"],
    typer.Option(
        "--subagents",
        help="Sub-agents share the session's advantage, have their own by their turn rewards, or are not trained.",
        rich_help_panel=_PANEL,
    ),
]
PolicyVersion = Annotated[
    int | None,
    typer.Option(min=0, help="The weights that are to be trained; default: the latest known.", rich_help_panel=_PANEL),
]
MaxLag = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Leave sessions out that weights sampled more than so many versions before.",
        rich_help_panel=_PANEL,
    ),
]
ComponentWeight = Annotated[
    list[str] | None,
    typer.Option(
        help="gdpo: NAME=NUMBER; 1 for the others (penalties are taken off); repeatable.", rich_help_panel=_PANEL
    ),
]
Gamma = Annotated[float, typer.Option(help="gtpo: discount of later turns.", rich_help_panel=_PANEL)]
FormatPenalty = Annotated[
    float, typer.Option(help="gtpo: what a turn gets that breaks the format.", rich_help_panel=_PANEL)
]
Alpha = Annotated[
    float,
    typer.Option(help="gtpo: the most that a failure gets for code like a success; 0: none.", rich_help_panel=_PANEL),
]
Scope: TypeAlias = Annotated[
    Literal["batch", "group"], typer.Option(help="gtpo: over what turns are normalised.", rich_help_panel=_PANEL)
]
Overlong: TypeAlias = Annotated[
    Literal["filter", "penalty", "keep"],
    typer.Option(help="dapo: what becomes of sessions that were cut at the length limit.", rich_help_panel=_PANEL),
]
OverlongLimit = Annotated[
    int | None, typer.Option(min=1, help="dapo: sampled tokens at which the penalty is -1.", rich_help_panel=_PANEL)
]
OverlongBuffer = Annotated[
    int, typer.Option(min=1, help="dapo: the penalty begins so many tokens before it.", rich_help_panel=_PANEL)
]


def weights(texts: Iterable[str]) -> dict[str, float]:
    """Weights by name, from NAME=NUMBER; raises `BadExport`."""
    found = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError as error:
            raise BadExport(f"{text!r} is no weight of a component; write NAME=NUMBER") from error
    return found
