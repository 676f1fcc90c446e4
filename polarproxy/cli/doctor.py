"""`polarproxy doctor`: what an engine can do for us."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from polarproxy.cli.config import load
from polarproxy.cli.opening import Json
from polarproxy.cli.output import errors, print_json, print_table
from polarproxy.proxy.doctor import Check, examine
from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings


def doctor(
    upstream: Annotated[str | None, typer.Option(help="Base URL of the inference engine.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, vllm, llamacpp or plain.")] = None,
    upstream_key: Annotated[str | None, typer.Option(help="API key for the engine.")] = None,
    as_json: Json = False,
) -> None:
    """Try out what the engine can do, and say what each missing ability costs.

    Sends a handful of requests of a few tokens each. Exit code 1 when calls of this engine could not be trained.
    """
    settings = load({"upstream": upstream, "engine": engine, "upstream_key": upstream_key}, None)
    checks = asyncio.run(_examine(settings))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        rows = [(_mark(check), check.name, check.detail, None if check.ok else check.cost) for check in checks]
        print_table(f"engine at {settings.upstream}", ("", "ability", "found", "what it costs"), rows)
    if any(check.needed and not check.ok for check in checks):
        errors.print(_verdict(checks), style="yellow", markup=False)
        raise typer.Exit(1)


def _verdict(checks: list[Check]) -> str:
    # The first check is whether the engine answers at all.
    answers = checks[0]
    if not answers.ok:
        return f"{answers.detail}; nothing was tried"
    return "calls of this engine are recorded, but cannot be trained"


def _mark(check: Check) -> str:
    return "ok" if check.ok else "MISSING" if check.needed else "missing"


async def _examine(settings: Settings) -> list[Check]:
    upstream = Upstream(settings)
    try:
        return await examine(upstream, settings.engine)
    finally:
        await upstream.close()
