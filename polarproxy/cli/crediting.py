"""How rows are credited, as flags of `polarproxy export`."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from polarproxy.credit.similarity import by_embedding, ngram_cosine
from polarproxy.errors import BadExport, BadReward
from polarproxy.export.options import ADVANTAGES
from polarproxy.rollout.judging import find_function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.credit.similarity import Similarity

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
Embedding = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="gtpo: how alike code is, by a Python function from a text to a vector of numbers; default: token n-grams.",
        rich_help_panel=_PANEL,
    ),
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


def similarity(embedding: str | None) -> Similarity:
    """By the embedding of this name, or by token n-grams; raises `BadExport` when there is no such function."""
    if embedding is None:
        return ngram_cosine
    try:
        alike = by_embedding(find_function(embedding))
    except BadReward as error:
        raise BadExport(f"--embedding: {error}") from error

    def guarded(left: str, right: str) -> float:
        try:
            found = alike(left, right)
        # Anything may come out of somebody else's function.
        except (Exception, SystemExit) as error:
            raise BadExport(f"--embedding: {embedding} raised {type(error).__name__}: {error}") from error
        if not isfinite(found):
            raise BadExport(f"--embedding: {embedding} makes vectors with numbers that are not finite")
        return found

    # An export that was broken off goes on with the same function only.
    guarded.__module__, _, guarded.__qualname__ = embedding.partition(":")
    return guarded


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
