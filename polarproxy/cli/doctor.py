"""`polarproxy doctor`: what an engine can do for us."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from polarproxy.cli.config import joined, load
from polarproxy.cli.opening import Json
from polarproxy.cli.output import errors, print_json, print_table
from polarproxy.proxy.doctor import Check, examine
from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings


def doctor(
    upstream: Annotated[
        list[str] | None, typer.Option(help="Base URL of the inference engine; may be given several times.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="auto, vllm, llamacpp or plain.")] = None,
    upstream_key: Annotated[str | None, typer.Option(help="API key for the engine.")] = None,
    as_json: Json = False,
) -> None:
    """Try out what the engine can do, and say what each missing ability costs.

    Sends a handful of requests of a few tokens each. Exit code 1 when calls of this engine could not be trained.
    """
    settings = load({"upstream": joined(upstream), "engine": engine, "upstream_key": upstream_key}, None)
    found = asyncio.run(_examine_all(settings))
    if as_json:
        print_json([{"upstream": name} | asdict(check) for name, checks in found.items() for check in checks])
    useless = False
    for name, checks in found.items():
        if not as_json:
            rows = [(_mark(check), check.name, check.detail, None if check.ok else check.cost) for check in checks]
            print_table(f"engine at {name}", ("", "ability", "found", "what it costs"), rows)
        if any(check.needed and not check.ok for check in checks):
            useless = True
            errors.print(_verdict(checks), style="yellow", markup=False)
    if useless:
        raise typer.Exit(1)


def _verdict(checks: list[Check]) -> str:
    # The first check is whether the engine answers at all.
    answers = checks[0]
    if not answers.ok:
        return f"{answers.detail}; nothing was tried"
    return "calls of this engine are recorded, but cannot be trained"


def _mark(check: Check) -> str:
    return "ok" if check.ok else "MISSING" if check.needed else "missing"


async def _examine_all(settings: Settings) -> dict[str, list[Check]]:
    """The checks of each engine, by its name."""
    return dict([await _examine(base, settings) for base in settings.upstreams])


async def _examine(base: str, settings: Settings) -> tuple[str, list[Check]]:
    upstream = Upstream(base, settings)
    try:
        return upstream.name, await examine(upstream, settings.engine)
    finally:
        await upstream.close()
