"""The flags of formats that are made of conversations."""

from __future__ import annotations

from typing import Annotated

import typer

from polarproxy.export.texts.options import Pairs

BestOf = Annotated[
    int | None, typer.Option(help="sft, nova-rft: only the sessions with the highest rewards of each group, so many.")
]
Dedup = Annotated[bool, typer.Option("--dedup", help="sft, dpo: leave out what was written already, word for word.")]
Margin = Annotated[
    float | None,
    typer.Option(help="dpo: by how much the reward of what is chosen must be higher. Default: by anything."),
]
PairsOf = Annotated[
    Pairs | None, typer.Option(help="dpo: the best and the worst session of a group (default), or every two.")
]
