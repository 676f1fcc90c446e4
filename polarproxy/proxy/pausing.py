"""The control routes that hold generation while weights are changed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
from aiohttp import web

from polarproxy.errors import UNREADABLE, BadRequest

if TYPE_CHECKING:
    from polarproxy.proxy.parts import Parts

_LOOK_S = 0.05


class _Pause(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /api/generation/pause`."""

    wait_s: Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)] = 0.0
    """How long to wait for the calls that are with the engines; what is left then is told, and goes on."""


async def show(parts: Parts, _http: web.Request) -> web.Response:
    """`GET /api/generation`."""
    state = {
        "paused": parts.gate.paused,
        "paused_s": round(parts.gate.paused_s, 3),
        "waiting": parts.gate.waiting,
        "in_flight": _in_flight(parts),
        "policy_version": parts.arrivals.policy_version,
    }
    return web.Response(body=msgspec.json.encode(state), content_type="application/json")


async def pause(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/generation/pause`: from now on requests wait, at all processes of the database."""
    try:
        wanted = msgspec.json.decode(await http.read() or b"{}", type=_Pause)
    except UNREADABLE as error:
        raise BadRequest(f"the body is not what this route takes: {error}") from error
    await parts.muster.pause(paused=True)
    deadline = time.monotonic() + wanted.wait_s
    while _in_flight(parts) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)  # what other processes are busy with raises no event here
    return await show(parts, http)


async def resume(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/generation/resume`: requests that wait go on."""
    await parts.muster.pause(paused=False)
    return await show(parts, http)


def _in_flight(parts: Parts) -> int:
    """Requests that are with the engines, at all processes."""
    return sum(parts.muster.load(member.name).in_flight for member in parts.fleet.members)
