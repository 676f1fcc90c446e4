"""The control routes: making and closing sessions, rewards, the policy version, counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from aiohttp import web
from sqlalchemy.exc import DBAPIError, IntegrityError

from polarproxy.credit.given import GivenReward
from polarproxy.errors import BadReply, BadRequest, BadReward, EngineFailed, NotOffered, StoreConflict, StoreUnavailable
from polarproxy.model import PromptMode, Session, SessionStatus
from polarproxy.proxy.forced import read_forced
from polarproxy.proxy.keys import is_session_id
from polarproxy.store.ids import new_id
from polarproxy.store.spooling import patience
from polarproxy.store.terms import SAMPLING, Terms, read_sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.proxy.parts import Parts

_T = TypeVar("_T")


class NewSession(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /api/sessions`; everything is optional."""

    session_id: str | None = None
    task_id: str | None = None
    group_id: str | None = None
    harness: str | None = None
    model: str | None = None
    prompts: PromptMode | None = None
    sampling: dict[str, int | float] = {}
    """Parameters that every request of the session is sent with, whatever its client asks for."""
    metadata: dict[str, str] = {}


class _Closing(msgspec.Struct, forbid_unknown_fields=True):
    status: SessionStatus = SessionStatus.COMPLETED


class _ClosingMany(msgspec.Struct, forbid_unknown_fields=True):
    sessions: dict[str, SessionStatus]


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


def _read(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not what this route takes: {error}") from error


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


async def _store(parts: Parts, change: Callable[..., _T], *arguments: Any) -> _T:
    """Runs a change of the store beside the event loop; raises `StoreUnavailable` when it is not done in time."""
    timeout = parts.settings.store_timeout
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.to_thread(change, *arguments)
    except TimeoutError as error:
        raise StoreUnavailable(f"the store did not commit within {timeout:g} s; it may do so all the same") from error
    except IntegrityError as error:
        raise StoreConflict(f"that contradicts what is stored: {error.orig}") from error
    except DBAPIError as error:
        raise StoreUnavailable(f"the store could not commit: {error.orig}") from error


def access(base: str, session_id: str, key: str) -> dict[str, Any]:
    """Base URLs and environment variables with which each family of harnesses reaches this session."""
    root = f"{base}/s/{session_id}"
    return {
        "session_id": session_id,
        "api_key": key,
        "base_urls": {"openai": f"{root}/v1", "anthropic": root, "gemini": root, "bedrock": root},
        "env": {
            "openai": {"OPENAI_BASE_URL": f"{root}/v1", "OPENAI_API_BASE": f"{root}/v1", "OPENAI_API_KEY": key},
            "anthropic": {"ANTHROPIC_BASE_URL": root, "ANTHROPIC_API_KEY": key},
            "gemini": {"GOOGLE_GEMINI_BASE_URL": root, "GEMINI_API_KEY": key},
            "bedrock": {
                "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": root,
                "AWS_ACCESS_KEY_ID": key,
                "AWS_SECRET_ACCESS_KEY": "unused",
                "AWS_REGION": "us-east-1",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
        },
    }


async def make_session(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/sessions`."""
    wanted = _read(await http.read(), NewSession)
    session_id = new_id("s") if wanted.session_id is None else wanted.session_id
    if not is_session_id(session_id):
        raise BadRequest(f"{session_id!r} cannot name a session; use up to 128 letters, digits, '.', '_' and '-'")
    if SAMPLING in wanted.metadata:
        raise BadRequest(f"metadata: {SAMPLING} is what `sampling` of the request becomes; say it there")
    forced = read_forced(wanted.sampling)
    metadata = wanted.metadata | ({SAMPLING: forced} if wanted.sampling else {})
    session = Session(
        session_id=session_id,
        created_at=datetime.now(UTC),
        task_id=wanted.task_id,
        group_id=wanted.group_id if wanted.group_id is not None else wanted.task_id,
        harness=wanted.harness,
        model=wanted.model,
        prompts=wanted.prompts,
        metadata=tuple(sorted(metadata.items())),
    )
    if wanted.prompts is PromptMode.EXACT:
        await _require_exact_prompts(parts)
    await _add_session(parts, session, named=wanted.session_id is not None)
    parts.arrivals.made(session_id, Terms(session.prompts, read_sampling(forced)))
    return _json(access(f"{http.scheme}://{http.host}", session_id, parts.signer.key(session_id)), 201)


async def _require_exact_prompts(parts: Parts) -> None:
    """Raises `NotOffered` when no engine takes exact prompts. One that cannot be asked now may be able to."""
    refusals: list[str] = []
    for upstream in parts.fleet.asked:
        try:
            refused = await parts.exact.refusal(upstream)
        except (EngineFailed, BadReply):
            return
        if refused is None:
            return
        refusals.append(refused)
    raise NotOffered(f"exact prompts are not to be had: {'; '.join(dict.fromkeys(refusals))}")


async def _add_session(parts: Parts, session: Session, *, named: bool) -> None:
    """Raises `StoreConflict` when there is one of this name, `StoreUnavailable`."""
    spool = parts.spool
    if spool is None:
        await _insert(parts, session)
        return
    try:
        if spool.away:
            raise StoreUnavailable("the database is away")
        async with asyncio.timeout(patience(parts.settings.store_timeout)):
            await _insert(parts, session)
    except (StoreUnavailable, TimeoutError) as error:
        if named:
            raise StoreUnavailable(
                f"the database is away, and nothing else knows whether there is a session {session.session_id!r}; try again,"
                " or let the proxy find a name"
            ) from error
        await parts.writer.write(session, parts.settings.store_timeout)


async def _insert(parts: Parts, session: Session) -> None:
    if await _store(parts, parts.repository.session_state, session.session_id) is not None:
        raise StoreConflict(f"there is a session {session.session_id!r} already")
    await _store(parts, parts.repository.add_session, session)


async def _of_session(parts: Parts, change: Callable[..., _T], session_id: str, *arguments: Any) -> _T:
    """Asks the store of a session; raises `StoreUnavailable` as long as that waits in the spool."""
    if parts.spool is not None and parts.spool.holds_session(session_id):
        raise StoreUnavailable(f"session {session_id} is on its way from the spool to the database; try again")
    return await _store(parts, change, session_id, *arguments)


def spool_state(parts: Parts) -> dict[str, Any]:
    """What is said of the spool; nothing when there is none."""
    spool = parts.spool
    if spool is None:
        return {}
    state = {
        "folder": str(spool.folder),
        "database_away": spool.away,
        "records": len(spool),
        "bytes": spool.size,
        "refused": len(spool.refused),
        "torn_bytes": spool.torn,
        "damaged_bytes": spool.damaged,
    }
    return {"spool": state}


async def show_session(parts: Parts, http: web.Request) -> web.Response:
    """`GET /api/sessions/{session_id}`."""
    return _json(asdict(await _of_session(parts, parts.repository.session, http.match_info["session_id"])))


async def close_session(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/sessions/{session_id}/close`."""
    session_id, wanted = http.match_info["session_id"], _read(await http.read(), _Closing)
    await _of_session(parts, parts.repository.set_status, session_id, wanted.status)
    parts.arrivals.closed(session_id, wanted.status)
    return _json({"session_id": session_id, "status": wanted.status})


async def close_sessions(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/sessions/close`: many at once, in one transaction; answers which of them there are not."""
    statuses = _read(await http.read(), _ClosingMany).sessions
    for session_id in statuses:
        if parts.spool is not None and parts.spool.holds_session(session_id):
            raise StoreUnavailable(f"session {session_id} is on its way from the spool to the database; try again")
    gone = await _store(parts, parts.repository.set_statuses, statuses)
    for session_id, status in statuses.items():
        parts.arrivals.closed(session_id, status)
    return _json({"unknown": gone})


async def add_reward(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/sessions/{session_id}/rewards`."""
    session_id, wanted = http.match_info["session_id"], _read(await http.read(), GivenReward)
    try:
        reward = wanted.reward()
    except BadReward as error:
        raise BadRequest(f"session {session_id}: {error}") from error
    await _of_session(parts, parts.repository.add_reward, session_id, reward)
    return _json({"session_id": session_id, "reward": reward.value}, 201)


async def show_rewards(parts: Parts, http: web.Request) -> web.Response:
    """`GET /api/sessions/{session_id}/rewards`: every reward that was set, the last one counts."""
    history = await _of_session(parts, parts.repository.reward_history, http.match_info["session_id"])
    return _json([asdict(given) for given in history])


async def set_policy(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/policy`: which weights sample from now on."""
    version = _read(await http.read(), _Policy).version
    in_force = await _store(parts, parts.repository.set_policy_version, version)
    parts.arrivals.policy_version = in_force
    if version < in_force:
        raise BadRequest(f"policy version {version} is older than the current {in_force}")
    return _json({"version": version})


async def show_stats(parts: Parts, _http: web.Request) -> web.Response:
    """`GET /api/stats`: counts of all processes of the database since they started, and of each."""
    reports = (parts.muster.own(), *parts.muster.others)
    total: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    for report in reports:
        total.update(report.counts)
        exact.update(report.exact_prompts)
    each = [
        {"host": one.host, "pid": one.pid, "worker": one.worker, **one.counts, "exact_prompts": one.exact_prompts}
        for one in reports
    ]
    return _json(
        {**total, "exact_prompts": exact, "trouble": parts.writer.trouble, "processes": each, **spool_state(parts)}
    )
