"""Drawings of a collapse report, with matplotlib, which is an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polarproxy.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from polarproxy.credit.collapse import Collapse, Observed

_MOST_GROUPS = 60
"""More bars than that cannot be told apart; the groups with the least spread are drawn."""


def write_plots(folder: Path, found: Collapse, seen: Sequence[Observed]) -> list[Path]:
    """Draws groups, components and trends; raises `BadSettings` without matplotlib, or when the folder cannot be written."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadSettings("matplotlib is missing; install it with: pip install 'polarproxy[plots]'") from error
    drawn: list[tuple[str, Any]] = []
    for name, draw in (("groups", _groups), ("components", _components), ("trends", _trends)):
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        draw(figure, found, seen)
        drawn.append((name, figure))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.png" for name, _ in drawn]
        for path, (_, figure) in zip(paths, drawn, strict=True):
            figure.savefig(path, dpi=120)
    except OSError as error:
        raise BadSettings(f"{folder} cannot be written: {error.strerror or error}") from error
    return paths


def _groups(figure: Any, found: Collapse, _seen: Sequence[Observed]) -> None:
    axes = figure.subplots()
    scored = sorted(
        (one for one in found.groups if one.mean is not None), key=lambda one: (one.std or 0.0, one.group_id)
    )
    shown = scored[:_MOST_GROUPS]
    axes.bar(
        range(len(shown)),
        [one.mean or 0.0 for one in shown],
        yerr=[one.std or 0.0 for one in shown],
        color=["tab:red" if one.flat else "tab:blue" for one in shown],
    )
    axes.set_xticks(range(len(shown)), [_label(one.group_id) for one in shown], rotation=90)
    axes.set_ylabel("mean reward, ± std")
    axes.set_title(f"{len(shown)} of {len(found.groups)} groups, least spread first; red: none")


def _components(figure: Any, found: Collapse, _seen: Sequence[Observed]) -> None:
    left, right = figure.subplots(1, 2)
    names = [_label(one.name) for one in found.components]
    left.barh(names, [one.within_group_std or 0.0 for one in found.components])
    left.set_title("std within groups")
    right.barh(names, [one.share or 0.0 for one in found.components])
    right.set_title("share of the variance of rewards")


def _trends(figure: Any, _found: Collapse, seen: Sequence[Observed]) -> None:
    seen = sorted(seen, key=lambda one: one.made_at)
    series: tuple[tuple[str, list[float | None]], ...] = (
        ("reward", [one.rollout.reward for one in seen]),
        ("sampled tokens", [None if one.length is None else float(one.length) for one in seen]),
        ("repetition", [one.repetition for one in seen]),
    )
    for axes, (name, values) in zip(figure.subplots(1, 3), series, strict=True):
        points = [(place, value) for place, value in enumerate(values) if value is not None]
        axes.plot([place for place, _ in points], [value for _, value in points], ".", alpha=0.6)
        axes.set_title(name)
        axes.set_xlabel("session, by time")


def _label(text: str) -> str:
    """Text without what matplotlib would take for mathematics."""
    short = text if len(text) <= 24 else text[:23] + "…"
    return short.replace("$", r"\$")
