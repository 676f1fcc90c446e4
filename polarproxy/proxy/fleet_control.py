"""The control routes for upstreams: looking at them, adding, draining and removing them while the proxy runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from polarproxy.errors import UNREADABLE, BadRequest, BadSettings, EngineUnreachable, NotFound, UpstreamInUse
from polarproxy.model.plurals import counted
from polarproxy.proxy.http.origin import Origin
from polarproxy.settings import read_upstream
from polarproxy.store.roster import UpstreamState

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.upstream import Upstream


class NewUpstream(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /api/upstreams`."""

    url: str


@dataclass(frozen=True, slots=True)
class Shown:
    """One upstream, as it is told."""

    id: str
    url: str
    state: UpstreamState
    healthy: bool
    trouble: str | None
    """None: it is well."""
    engine: str | None
    """None, as in what follows: it has not answered yet."""
    models: tuple[str, ...]
    max_model_len: int | None
    logprobs_mode: str | None
    in_flight: int
    """Requests under way, at all processes."""
    calls: int
    sessions: int
    """Sessions whose latest call went there; 0 for all while there is one upstream."""


async def list_upstreams(parts: Parts, _http: web.Request) -> web.Response:
    """`GET /api/upstreams`."""
    return _json(parts, list(parts.fleet.members))


async def add_upstream(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/upstreams`: looked at first. One that drains is taken back into service."""
    name = _read(await http.read())
    there = next((member for member in parts.fleet.members if member.name == name), None)
    if there is not None and not there.draining:
        raise UpstreamInUse(f"{name} is an upstream already")
    if there is None and not _forced(http):
        trouble = await parts.fleet.try_out(name)
        if trouble is not None:
            raise EngineUnreachable(f"{trouble}; it was not added (?force=true adds it all the same)")
    await parts.muster.change(name, UpstreamState.ACTIVE)
    added = _member(parts, lambda member: member.name == name)
    await added.check()
    return _json(parts, [added], 200 if there is not None else 201)


async def drain_upstream(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/upstreams/{id}/drain`: new calls go elsewhere, also those of its sessions; calls under way finish."""
    member = _named(parts, http)
    _can_be_spared(parts, member, forced=_forced(http))
    await parts.muster.change(member.name, UpstreamState.DRAINING)
    return _json(parts, [member])


async def remove_upstream(parts: Parts, http: web.Request) -> web.Response:
    """`DELETE /api/upstreams/{id}`: after it has drained, or by force, which breaks off what it is busy with."""
    member = _named(parts, http)
    forced = _forced(http)
    _can_be_spared(parts, member, forced=forced)
    busy = parts.muster.load(member.name).in_flight
    if not forced and not member.draining:
        raise UpstreamInUse(f"{member.name} takes calls; drain it first (?force=true breaks off {busy} under way)")
    if not forced and busy:
        raise UpstreamInUse(
            f"{member.name} is busy with {counted(busy, 'call')}; wait for the end (?force=true breaks off what is under way)"
        )
    await parts.muster.change(member.name, UpstreamState.CUT if forced else UpstreamState.REMOVED)
    return _json(parts, list(parts.fleet.members))


def _read(body: bytes) -> str:
    """The name of the upstream that the body speaks of, which is its URL; raises `BadRequest`."""
    try:
        base = read_upstream(msgspec.json.decode(body, type=NewUpstream).url)
        origin = Origin.of(base)
    except UNREADABLE as error:
        raise BadRequest(f"the body is not what this route takes: {error}") from error
    except BadSettings as error:
        raise BadRequest(str(error)) from error
    if origin.authorization is not None:
        raise BadRequest("an upstream that is added may have no password in its URL, which is stored; use upstream_key")
    return f"{origin}{origin.prefix}"


def _forced(http: web.Request) -> bool:
    return http.query.get("force", "") in ("", "1", "true") and "force" in http.query


def _named(parts: Parts, http: web.Request) -> Upstream:
    return _member(parts, lambda member: member.id == http.match_info["id"])


def _member(parts: Parts, wanted: Callable[[Upstream], bool]) -> Upstream:
    found = next(filter(wanted, parts.fleet.members), None)
    if found is None:
        known = ", ".join(f"{member.id} ({member.name})" for member in parts.fleet.members)
        raise NotFound(f"there is no such upstream; there are {known}")
    return found


def _can_be_spared(parts: Parts, member: Upstream, *, forced: bool) -> None:
    others = [one for one in parts.fleet.members if one is not member and not one.draining]
    if not others:
        raise UpstreamInUse(f"{member.name} is the last upstream that takes calls; add another one first")
    left = sorted(set(member.models).difference(*(one.models for one in others)))
    if left and not member.draining and not forced:
        raise UpstreamInUse(
            f"nothing else serves {', '.join(left)}, calls for which would go to another model (?force=true lets them)"
        )


def _json(parts: Parts, members: list[Upstream], status: int = 200) -> web.Response:
    shown = {
        "upstreams": [_shown(parts, member) for member in members],
        "warnings": parts.fleet.differences(),
        "processes": 1 + len(parts.muster.others),
    }
    return web.Response(status=status, body=msgspec.json.encode(shown), content_type="application/json")


def _shown(parts: Parts, member: Upstream) -> Shown:
    load, facts = parts.muster.load(member.name), member.known
    return Shown(
        id=member.id,
        url=member.name,
        state=UpstreamState.DRAINING if member.draining else UpstreamState.ACTIVE,
        healthy=member.trouble is None,
        trouble=member.trouble,
        engine=None if facts is None else facts.name,
        models=member.models,
        max_model_len=None if facts is None else facts.max_model_len,
        logprobs_mode=None if facts is None else str(facts.logprobs_mode),
        in_flight=load.in_flight,
        calls=load.calls,
        sessions=load.sessions,
    )
