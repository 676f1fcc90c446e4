"""`polarproxy verify`: whether what is stored can be trained on, checked again from the store alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import track

from polarproxy.cli.opening import Db, Json, Merge, open_repository
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.cli.recipes import known_recipes, rebuilt
from polarproxy.cli.rescoring import TOLERANCE, print_rescored, rescore_all
from polarproxy.errors import StoreDamaged
from polarproxy.proxy.rescore import Bar
from polarproxy.trajectory.integrity import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.integrity_session import SessionIntegrity
    from polarproxy.trajectory.recipes import Recipe

_SHOWN = 20


def verify(
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    version: Annotated[
        int | None, typer.Option(help="The policy version in training now; lag is counted to it.")
    ] = None,
    rescore: Annotated[
        bool,
        typer.Option("--rescore", help="Also let the engine score every trained token again, in its row (--upstream)."),
    ] = False,
    upstream: Annotated[str | None, typer.Option(help="Base URL of the engine that scores.")] = None,
    tolerance: Annotated[
        float, typer.Option(help="Largest difference between two logprobs that counts as none.")
    ] = TOLERANCE,
    merge: Merge = "prefix_merging",
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Check that ids, logprobs and the engine's counts agree, that every trained token stands in its own context, and how
    it was sampled: whole sessions, from the store alone.

    Errors are what a strict export refuses; warnings are what a trainer must know. With --rescore the engine says again how
    likely each trained token is after the tokens before it in its row, which must be what was recorded; the engine must have
    the weights that sampled (--version). Exit code 1 when there is an error, or a token that differs.

    Example: polarproxy verify --session demo-1 --rescore --upstream http://127.0.0.1:8000
    """
    recipes = known_recipes()
    checked: list[SessionIntegrity] = []
    damaged: dict[str, str] = {}
    with open_repository(db) as repository:
        names = repository.session_ids() if session is None else [repository.session(session).session_id]
        for name in track(names, "verifying", console=errors, disable=not errors.is_terminal):
            try:
                checked.append(_check(repository, name, recipes))
            except StoreDamaged as error:
                damaged[name] = str(error)
        latest = repository.latest_policy_version() if version is None else version
        whole = [name for name in names if name not in damaged]
        rescored = rescore_all(repository, upstream, whole, Bar(tolerance, latest), merge) if rescore else None
    if as_json:
        print_json(_as_json(checked, damaged, latest) | ({} if rescored is None else {"rescore": rescored.as_json()}))
    else:
        _print(checked, damaged, latest)
        if rescored is not None:
            print_rescored(rescored)
    if damaged or not all(found.sound for found in checked) or (rescored is not None and not rescored.sound):
        raise typer.Exit(1)


def _check(repository: Repository, session_id: str, recipes: Sequence[Recipe]) -> SessionIntegrity:
    return rebuilt(repository.session(session_id), repository.calls(session_id), recipes).integrity()


def _as_json(checked: Sequence[SessionIntegrity], damaged: dict[str, str], latest: int) -> dict[str, Any]:
    return {
        "sessions": [_session(found, latest) for found in checked],
        "damaged": damaged,
        "errors": _total(checked, Severity.ERROR),
        "warnings": _total(checked, Severity.WARNING),
        "policy_version": latest,
    }


def _session(found: SessionIntegrity, latest: int) -> dict[str, Any]:
    lag = None if found.versions is None else found.versions.lag(latest)
    findings = [asdict(finding) | {"severity": finding.severity} for finding in found.findings]
    told = {name: value for name, value in asdict(found).items() if name != "errors"}
    return told | {"findings": findings, "sound": found.sound, "lag": lag}


def _total(checked: Sequence[SessionIntegrity], severity: Severity) -> dict[str, int]:
    total: Counter[str] = Counter()
    for found in checked:
        total.update(found.counts(severity))
    return dict(sorted(total.items()))


def _print(checked: Sequence[SessionIntegrity], damaged: dict[str, str], latest: int) -> None:
    captured, trained = sum(f.captured_tokens for f in checked), sum(f.trained_tokens for f in checked)
    left_out: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for found in checked:
        left_out.update(found.left_out)
        kinds.update(found.kinds)
    spans = [found.versions for found in checked if found.versions is not None]
    rows: list[tuple[str, object]] = [
        ("sessions (sound)", f"{len(checked) + len(damaged)} ({sum(found.sound for found in checked)})"),
        ("calls", ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or 0),
        ("rows", sum(found.rows for found in checked)),
        ("sampled tokens trained", f"{trained} of {captured}" + (f" ({trained / captured:.1%})" if captured else "")),
        *((f"left out: {reason}", count) for reason, count in sorted(left_out.items())),
    ]
    if spans:
        rows.append(("policy versions", f"{min(s.first for s in spans)} to {max(s.last for s in spans)}"))
        rows.append((f"lag behind version {latest}", max(s.lag(latest) for s in spans)))
    rows += [(f"ERROR {code}", count) for code, count in _total(checked, Severity.ERROR).items()]
    rows += [(f"warning {code}", count) for code, count in _total(checked, Severity.WARNING).items()]
    print_table("integrity", ("what", "value"), rows)
    _print_errors(checked, damaged)


def _print_errors(checked: Sequence[SessionIntegrity], damaged: dict[str, str]) -> None:
    wrong: list[tuple[str, str, str | None, str]] = [("damaged", name, None, what) for name, what in damaged.items()]
    wrong += [
        (finding.code.value, found.session_id, finding.call_id, finding.detail)
        for found in checked
        for finding in found.findings
        if finding.severity is Severity.ERROR
    ]
    if not wrong:
        console.print("every id, logprob and count agrees, and every trained token stands in its own context")
        return
    print_table("errors", ("code", "session", "call", "what"), wrong[:_SHOWN])
    if len(wrong) > _SHOWN:
        console.print(f"and {len(wrong) - _SHOWN} more; --json lists all")
