"""`polarproxy serve`."""

from __future__ import annotations

import asyncio
import gc
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop
from rich.text import Text

from polarproxy.cli.config import joined, load
from polarproxy.cli.lock import only_proxy
from polarproxy.cli.output import console
from polarproxy.cli.runner import base_url, running_proxy
from polarproxy.cli.secrets import key_path, signing_key
from polarproxy.cli.workers import listen_together, supervise
from polarproxy.errors import BadReply, BadSettings, EngineFailed
from polarproxy.settings import Settings
from polarproxy.store.database import open_database, parse_url, sqlite_file
from polarproxy.store.migrate import upgrade

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from polarproxy.cli.workers import Worker
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.upstream import Upstream


def serve(
    upstream: Annotated[
        list[str] | None,
        typer.Option(help="Base URL of the inference engine; given several times, the engines share the sessions."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; anything but loopback requires keys.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that serve the port together; more than one need PostgreSQL.")
    ] = None,
    db: Annotated[str | None, typer.Option(help="Where calls are stored: sqlite:///FILE or postgresql://…")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, vllm, llamacpp or plain.")] = None,
    upstream_key: Annotated[str | None, typer.Option(help="API key for the engine.")] = None,
    auth: Annotated[str | None, typer.Option(help="auto, off, or required (signed session keys only).")] = None,
    admin_key: Annotated[str | None, typer.Option(help="Key of the control routes.")] = None,
    key_file: Annotated[str | None, typer.Option(help="File with the key that signs session keys.")] = None,
    policy_version: Annotated[int | None, typer.Option(help="Version of the weights that sample now.")] = None,
    connect_timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait for a connection to the engine.")
    ] = None,
    read_timeout: Annotated[float | None, typer.Option(help="Seconds that the engine may be silent.")] = None,
    health_interval: Annotated[
        float | None, typer.Option(help="Seconds between two looks at the engines, when there are several.")
    ] = None,
    store_timeout: Annotated[float | None, typer.Option(help="Seconds to wait for a call to be stored.")] = None,
    queue_size: Annotated[int | None, typer.Option(help="Calls that may wait to be stored.")] = None,
    spool: Annotated[
        str | None, typer.Option(help="Folder that takes calls while the database is away; each proxy has its own.")
    ] = None,
    max_body_mb: Annotated[int | None, typer.Option(help="Largest request body, in MiB.")] = None,
    keep_bodies: Annotated[
        str | None, typer.Option(help="Store requests as they were sent: full, errors (of failed calls only) or none.")
    ] = None,
    model_map: Annotated[
        str | None, typer.Option(help="asked=served,… ('*' for all others); 'off' sends names on as they are.")
    ] = None,
    keepalive: Annotated[
        float | None, typer.Option(help="Seconds of silence in a stream before a sign of life; 0: never.")
    ] = None,
    rollouts: Annotated[
        int | None, typer.Option(help="Run tasks (POST /api/tasks): so many harnesses at once; default: none.")
    ] = None,
    harnesses: Annotated[
        str | None, typer.Option(help="Folder of harness recipes of your own; they come before ours.")
    ] = None,
    runtime: Annotated[str | None, typer.Option(help="Where they run, unless a task says otherwise.")] = None,
    delegate_requests: Annotated[
        str | None, typer.Option(help="URL of an SQS queue with rollouts of a trainer; needs --rollouts.")
    ] = None,
    delegate_responses: Annotated[str | None, typer.Option(help="URL of the SQS queue for the answers.")] = None,
    pause_limit: Annotated[
        float | None, typer.Option(help="Seconds that a request waits while generation is paused.")
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="template: the engine renders every prompt; exact: later turns go on from recorded tokens."),
    ] = None,
    websocket: Annotated[bool | None, typer.Option(help="Serve the Responses API over WebSocket too.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings file; default: ./polarproxy.toml if there is one.")
    ] = None,
) -> None:
    """Record everything that harnesses ask of a model, and answer as the engine itself would.

    Every setting can also stand in polarproxy.toml or in the environment (POLARPROXY_UPSTREAM, POLARPROXY_DB, …). Flags win
    over the environment, the environment over the file.

    Example: polarproxy serve --upstream http://127.0.0.1:8000 --db sqlite:///polar.db
    """
    flags = {
        "upstream": joined(upstream),
        "host": host,
        "port": port,
        "workers": workers,
        "db": db,
        "engine": engine,
        "upstream_key": upstream_key,
        "auth": auth,
        "admin_key": admin_key,
        "key_file": key_file,
        "policy_version": policy_version,
        "connect_timeout": connect_timeout,
        "read_timeout": read_timeout,
        "health_interval": health_interval,
        "store_timeout": store_timeout,
        "queue_size": queue_size,
        "spool": spool,
        "max_body_mb": max_body_mb,
        "keep_bodies": keep_bodies,
        "model_map": model_map,
        "keepalive": keepalive,
        "rollouts": rollouts,
        "harnesses": harnesses,
        "runtime": runtime,
        "delegate_requests": delegate_requests,
        "delegate_responses": delegate_responses,
        "pause_limit": pause_limit,
        "prompts": prompts,
        "websocket": websocket,
    }
    settings = load(flags, config)
    if settings.workers > 1:
        _run(settings, _serve(settings, _one_of_several(settings)))
        return
    with only_proxy(settings):
        _run(settings, _serve(settings))


def _run(settings: Settings, serving: Coroutine[None, None, None]) -> None:
    """A proxy that starts programs does without uvloop: that closes the pipe of a program a second time, by when the number
    may be that of another file."""
    (asyncio.run if settings.rollouts else uvloop.run)(serving)


def _one_of_several(settings: Settings) -> Worker:
    """Returns in each worker; in the parent, ends the program when they have ended. Raises `BadSettings`, `WrongDatabase`."""
    if sqlite_file(settings.db) is not None:
        raise BadSettings(
            f"{settings.workers} workers cannot share a SQLite file: the order of a session's calls is given out in the memory"
            " of one process; set db to a PostgreSQL database, or leave out workers"
        )
    # What is wrong with the settings is said once, here, and a new database is made ready once.
    key_path(settings)
    engine = open_database(settings.db, create=True)
    try:
        upgrade(engine)
    finally:
        engine.dispose()
    signing_key(settings)
    listeners = listen_together(settings.host, settings.port, settings.workers)
    _announce(settings, base_url(listeners[0]))
    role = supervise(listeners, lambda text: console.print(text, markup=False))
    if isinstance(role, int):
        raise typer.Exit(role)
    return role


async def _serve(settings: Settings, worker: Worker | None = None) -> None:
    """`worker` None: it is the only one here."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if worker is not None:
        loop.add_reader(worker.parent, stop.set)
    async with running_proxy(settings, worker) as (base, parts):
        if worker is None:
            _announce(settings, base)
        greeting = asyncio.create_task(_greet(parts)) if worker is None or worker.speaks else None
        _tune_garbage_collector()
        await stop.wait()
        if greeting is not None:
            greeting.cancel()
        if worker is None:
            console.print("stopping: open replies may finish, then everything queued is stored")


def _announce(settings: Settings, base: str) -> None:
    records = parse_url(settings.db).render_as_string(hide_password=True)
    several = f" with {settings.workers} workers" if settings.workers > 1 else ""
    console.print(
        Text("polarproxy listens on ") + Text(base, style="bold") + Text(f"{several} and records to {records}")
    )
    if settings.admin_key is not None:
        console.print("control routes take the admin key that was set")
    elif settings.auth_required:
        command = f"polarproxy admin-key --key-file {shlex.quote(str(key_path(settings).resolve()))}"
        console.print(f"control routes take the admin key that this prints: {command}", markup=False)


async def _greet(parts: Parts) -> None:
    """Says where calls go while the database is away, and what answers upstream, as soon as that is known."""
    if parts.spool is not None:
        console.print(f"while the database is away, calls go to {parts.settings.spool}", markup=False)
    await parts.fleet.acquaint()
    for member in parts.fleet.members:
        facts = member.known
        if facts is None:
            console.print(member.why_unknown(), style="yellow", markup=False)
        else:
            said = f"engine: {facts.name} at {member.name}, model {facts.model}, logprobs {facts.logprobs_mode}"
            console.print(said, markup=False)
        if facts is not None and parts.settings.prompts == "exact":
            await _say_exact(parts, member)
    for difference in parts.fleet.differences():
        console.print(difference, style="yellow", markup=False)


async def _say_exact(parts: Parts, member: Upstream) -> None:
    try:
        refusal = await parts.exact.refusal(member)
    except (EngineFailed, BadReply) as error:
        refusal = f"it is not known whether they can be made: {error}"
    if refusal is None:
        console.print(f"prompts are exact at {member.name}", markup=False)
    else:
        console.print(
            f"no exact prompts at {member.name}, the engine renders them: {refusal}", style="yellow", markup=False
        )


def _tune_garbage_collector() -> None:
    """What exists now stays; calls come and go without cycles, so looking for those may be rare."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
