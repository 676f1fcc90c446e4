"""Drift for people and for programs: where two sequences part, with both sides spelled out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from polarproxy.cli.spelling import CONTEXT, spell
from polarproxy.trajectory.symptoms import DriftClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polarproxy.trajectory.drift import Drift, Window

CHANGED = "bold red"


def drift_lines(drift: Drift, texts: Mapping[int, bytes]) -> Iterable[Text]:
    """A drift in three lines: what it is, and how both sides go on. What differs stands between ⟦ and ⟧."""
    yield Text.assemble(
        (drift.call_id, "bold"),
        " differs from ",
        (drift.earlier_call_id, "bold"),
        f" from token {drift.position} on: ",
        (drift.drift_class, CHANGED),
    )
    # The same text on both sides: what differs is where its tokens begin.
    between = "|" if drift.drift_class is DriftClass.RETOKENIZED else ""
    yield Text(f"  {drift.earlier_call_id}: ") + _window(drift.there, texts, between)
    yield Text(f"  {drift.call_id}: ") + _window(drift.here, texts, between)


def _window(window: Window, texts: Mapping[int, bytes], between: str) -> Text:
    pieces = [[token] for token in window.changed] if between else [window.changed]
    changed = _on_one_line(between.join(spell(piece, texts) for piece in pieces))
    return Text.assemble(
        (_on_one_line(spell(window.before, texts)), CONTEXT),
        (f"⟦{changed}⟧", CHANGED),
        (_on_one_line(spell(window.after, texts)), CONTEXT),
    )


def _on_one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def drift_json(drift: Drift, texts: Mapping[int, bytes]) -> dict[str, object]:
    """A drift as JSON values."""
    return {
        "call_id": drift.call_id,
        "class": drift.drift_class,
        "earlier_call_id": drift.earlier_call_id,
        "position": drift.position,
        "here": _window_json(drift.here, texts),
        "there": _window_json(drift.there, texts),
    }


def _window_json(window: Window, texts: Mapping[int, bytes]) -> dict[str, object]:
    parts = {"before": window.before, "changed": window.changed, "after": window.after}
    return {
        "token_ids": {name: list(ids) for name, ids in parts.items()},
        "text": {name: spell(ids, texts) for name, ids in parts.items()},
    }
