"""One proxy before several engines: sessions keep to one, and go on at another only when it is away."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import BadSettings
from polarproxy.model import CallStatus
from polarproxy.proxy.fleet import Fleet
from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings
from polarproxy.store.roster import UpstreamState
from tests.fakes import FakeEngine, Faults, Received, Turn, always, compose
from tests.proxy.http.socket_engine import Peer, socket_engine, upstream_of
from tests.proxy.rig import BODY, CHAT, SECONDS, Rig, Scripted, _encoded, rig, until

QUICK: dict[str, Any] = {"health_interval": 0.05, "connect_timeout": 2.0}


@asynccontextmanager
async def engine(
    name: str, script: Scripted | None = None, *, model: str = "fake", port: int = 0
) -> AsyncIterator[FakeEngine]:
    """Says its own name."""
    async with FakeEngine(script or always(compose(name)), model=model, port=port) as made:
        yield made


class Several:
    """A proxy before engines of these names."""

    def __init__(self, one: Rig, engines: dict[str, FakeEngine]) -> None:
        self.rig, self.engines = one, engines

    async def said(self, session: str, body: dict[str, Any] = BODY) -> str:
        """Who answered."""
        answer = await self.rig.ask(body, f"/s/{session}")
        assert answer.status == 200, answer.body
        return str(answer.json["choices"][0]["message"]["content"])

    def home(self, session: str) -> str:
        """Who should answer, by what the proxy itself says of the calls that it recorded."""
        urls = {made.url: name for name, made in self.engines.items()}
        last = self.rig.calls(session)[-1].call
        assert last.upstream is not None
        return urls[last.upstream]

    def member(self, name: str) -> Upstream:
        (found,) = [one for one in self.rig.parts.fleet.members if one.name == self.engines[name].url]
        return found


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened, asyncio.timeout(3 * SECONDS):
        yield opened


async def several(stack: AsyncExitStack, folder: Path, engines: dict[str, FakeEngine], **settings: Any) -> Several:
    upstream = ",".join(made.url for made in engines.values())
    one = await stack.enter_async_context(rig(folder, upstream=upstream, **(QUICK | settings)))
    return Several(one, engines)


@pytest.fixture
async def three(stack: AsyncExitStack, tmp_path: Path) -> Several:
    engines = {name: await stack.enter_async_context(engine(name)) for name in ("a", "b", "c")}
    return await several(stack, tmp_path, engines)


async def test_a_session_keeps_to_one_engine_and_sessions_are_spread(three: Several) -> None:
    sessions = [f"s{number}" for number in range(24)]
    first = {session: await three.said(session) for session in sessions}
    assert set(first.values()) == {"a", "b", "c"}
    for session in sessions:
        assert await three.said(session) == first[session] == three.home(session)


async def test_sessions_of_an_engine_that_is_away_go_on_at_another_and_come_back(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    other = await stack.enter_async_context(engine("b"))
    async with engine("a") as first:
        place = int(first.url.rpartition(":")[2])
        fleet = await several(stack, tmp_path, {"a": first, "b": other})
        sessions = [f"s{number}" for number in range(16)]
        for session in sessions:
            wanted = {"session_id": session, "sampling": {"temperature": 0.25}}
            assert (await fleet.rig.control("POST", "/api/sessions", wanted)).status == 201
        homes = {session: await fleet.said(session) for session in sessions}
        assert set(homes.values()) == {"a", "b"}
    assert [await fleet.said(session) for session in sessions] == ["b"] * len(sessions)
    for session in sessions:
        both = [captured.call for captured in await fleet.rig.recorded(2, session)]
        assert [call.status for call in both] == [CallStatus.COMPLETED] * 2
        assert [call.sampling.temperature for call in both] == [0.25] * 2, "forced sampling was lost on the way"
    async with engine("a", port=place):
        await until(lambda: all(member.trouble is None for member in fleet.rig.parts.fleet.members))
        assert {session: await fleet.said(session) for session in sessions} == homes


async def test_what_an_engine_may_have_taken_is_never_sent_to_another(stack: AsyncExitStack, tmp_path: Path) -> None:
    """It dies with the request, and is known to be away as soon as it does; the client is told, and nobody else is asked."""

    def dying(_: Received) -> Turn:
        engines["a"].healthy = False
        fleet.member("a").trouble = "it is away"
        return Turn((compose("x"),), Faults(refuse=True))

    engines = {
        "a": await stack.enter_async_context(engine("a", dying)),
        "b": await stack.enter_async_context(engine("b")),
    }
    fleet = await several(stack, tmp_path, engines, health_interval=60.0)
    sessions = [f"s{number}" for number in range(12)]
    statuses = {session: (await fleet.rig.ask(prefix=f"/s/{session}")).status for session in sessions}
    (lost,) = [session for session, status in statuses.items() if status != 200]
    assert statuses[lost] == 502
    assert sum(request.path == CHAT for request in engines["b"].requests) == len(sessions) - 1
    (captured,) = await fleet.rig.recorded(1, lost)
    assert (captured.call.status, captured.call.upstream) == (CallStatus.ENGINE_ERROR, engines["a"].url)


async def test_our_own_questions_are_not_counted_as_calls_under_way() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with socket_engine(silent) as made, upstream_of(made) as upstream:
        asking = asyncio.create_task(upstream.ask("GET", "/health"))
        await until(lambda: made.opened == 1)
        assert upstream.in_flight == 0
        sending = asyncio.create_task(upstream.send("GET", "/v1/x", {}, None))
        await until(lambda: upstream.in_flight == 1)
        for task in (asking, sending):
            task.cancel()
        await asyncio.gather(asking, sending, return_exceptions=True)
        assert upstream.in_flight == 0


async def test_an_engine_that_says_it_is_not_well_is_left(three: Several) -> None:
    sessions = [f"s{number}" for number in range(12)]
    before = {session: await three.said(session) for session in sessions}
    three.engines["a"].healthy = False
    await until(lambda: three.member("a").trouble is not None)
    during = {session: await three.said(session) for session in sessions}
    assert "a" not in during.values()
    assert all(during[session] == home for session, home in before.items() if home != "a")
    ready = (await three.rig.send("GET", three.rig.base + "/readyz")).json
    assert ready["problems"] == []
    assert "GET /health answers 503" in ready["warnings"][0]
    three.engines["a"].healthy = True
    await until(lambda: three.member("a").trouble is None)
    assert {session: await three.said(session) for session in sessions} == before


async def test_with_all_away_the_session_hears_of_it(stack: AsyncExitStack, tmp_path: Path) -> None:
    async with engine("a") as first, engine("b") as second:
        fleet = await several(stack, tmp_path, {"a": first, "b": second})
        assert await fleet.said("s1") in ("a", "b")
    answer = await fleet.rig.ask()
    assert answer.status == 502
    assert "cannot be reached" in answer.error["message"]
    assert (await fleet.rig.send("GET", fleet.rig.base + "/readyz")).status == 503
    _, captured = await fleet.rig.recorded(2)
    assert captured.call.status is CallStatus.ENGINE_ERROR


async def test_a_model_goes_to_those_that_serve_it(stack: AsyncExitStack, tmp_path: Path) -> None:
    engines = {
        "a": await stack.enter_async_context(engine("a", model="small")),
        "b": await stack.enter_async_context(engine("b", model="large")),
        "c": await stack.enter_async_context(engine("c", model="large")),
    }
    fleet = await several(stack, tmp_path, engines)
    sessions = [f"s{number}" for number in range(10)]
    assert {await fleet.said(session, BODY | {"model": "small"}) for session in sessions} == {"a"}
    assert {await fleet.said(session, BODY | {"model": "large"}) for session in sessions} == {"b", "c"}
    # A name that nobody serves is the first engine's model.
    assert {await fleet.said(session, BODY | {"model": "gpt-4o"}) for session in sessions} == {"a"}
    listed = (await fleet.rig.send("GET", fleet.rig.base + "/v1/models")).json
    assert [entry["id"] for entry in listed["data"]] == ["small", "large"]
    anthropic = {"anthropic-version": "2023-06-01"}
    listed = (await fleet.rig.send("GET", fleet.rig.base + "/v1/models", None, anthropic)).json
    assert [entry["id"] for entry in listed["data"]] == ["small", "large"]


async def test_every_route_of_a_session_goes_to_its_engine(three: Several) -> None:
    """Other dialects, counting, the WebSocket, and what is passed on."""
    home = await three.said("s1")

    def asked() -> dict[str, int]:
        return {name: len(made.requests) for name, made in three.engines.items()}

    async def went(method: str, path: str, body: dict[str, Any] | None = None) -> str:
        before = asked()
        data = None if body is None else _encoded(body)
        await three.rig.send(method, f"{three.rig.base}/s/s1{path}", data, {"Content-Type": "application/json"})
        (found,) = [
            name
            for name, made in three.engines.items()
            if any(request.path not in ("/health", "/v1/models") for request in made.requests[before[name] :])
        ]
        return found

    prompt: dict[str, Any] = {"model": "fake", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    contents = {"contents": [{"parts": [{"text": "hi"}]}]}
    for path, body in (
        ("/v1/messages", prompt),
        ("/v1/messages/count_tokens", prompt),
        ("/v1/responses", {"model": "fake", "input": "hi"}),
        ("/v1/completions", {"model": "fake", "prompt": "hi"}),
        ("/v1beta/models/fake:generateContent", contents),
        ("/v1/embeddings", {"model": "fake", "input": "hi"}),
    ):
        assert await went("POST", path, body) == home, path
    assert await went("GET", "/v1/whatever") == home
    url = three.rig.base.replace("http", "ws") + "/s/s1/v1/responses"
    async with three.rig.http.ws_connect(url) as ws:
        await ws.send_str(json.dumps({"type": "response.create", "model": "fake", "input": "hi"}))
        async for message in ws:
            if json.loads(message.data)["type"] == "response.completed":
                break
    assert {captured.call.upstream for captured in three.rig.calls()} == {three.engines[home].url}


async def test_a_conversation_without_a_session_keeps_to_one_engine(three: Several) -> None:
    used = set()
    for number in range(12):
        messages: list[Any] = [{"role": "user", "content": f"conversation {number}"}]
        for _ in range(3):
            answer = await three.rig.ask({"model": "fake", "messages": messages}, "")
            messages += [answer.json["choices"][0]["message"], {"role": "user", "content": "go on"}]
    sessions = three.rig.parts.repository.session_ids()
    assert len(sessions) == 12
    for session in sessions:
        (home,) = {captured.call.upstream for captured in three.rig.calls(session)}
        used.add(home)
    assert len(used) == 3


async def test_engines_that_differ_are_told_apart(stack: AsyncExitStack, tmp_path: Path) -> None:
    raw = await stack.enter_async_context(
        FakeEngine(always(compose("a")), text_script=always(compose("1", logprob=lambda _: -0.5)), processed=False)
    )
    processed = await stack.enter_async_context(
        FakeEngine(always(compose("b")), text_script=always(compose("1", logprob=lambda _: -0.5)))
    )
    fleet = await several(stack, tmp_path, {"a": raw, "b": processed})
    for number in range(12):
        await fleet.said(f"s{number}")
    modes = {
        (call.upstream, str(call.sampling.logprobs_mode))
        for number in range(12)
        for call in (captured.call for captured in fleet.rig.calls(f"s{number}"))
    }
    assert modes == {(raw.url, "raw"), (processed.url, "processed")}
    warnings = (await fleet.rig.send("GET", fleet.rig.base + "/readyz")).json["warnings"]
    assert warnings == [f"the engines differ in their mode of logprobs: raw at {raw.url}; processed at {processed.url}"]


async def test_password_and_user_of_an_engine_are_not_recorded(stack: AsyncExitStack, tmp_path: Path) -> None:
    made = await stack.enter_async_context(engine("a"))
    one = await stack.enter_async_context(rig(tmp_path, upstream=made.url.replace("://", "://me:secret@")))
    assert (await one.ask()).status == 200
    assert (await one.call()).call.upstream == made.url
    sent = next(request for request in made.requests if request.path == CHAT)
    assert sent.headers["Authorization"].startswith("Basic ")


async def test_an_engine_that_hangs_holds_up_nobody_elses_calls(stack: AsyncExitStack, tmp_path: Path) -> None:
    other = await stack.enter_async_context(engine("b"))
    async with engine("a") as first:
        place = int(first.url.rpartition(":")[2])
        fleet = await several(stack, tmp_path, {"a": first, "b": other}, read_timeout=1.0)
        homes = {session: await fleet.said(session) for session in (f"s{number}" for number in range(40))}
        hanging = fleet.member("a")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", place):
        lost, served = [next(session for session, home in homes.items() if home == name) for name in ("a", "b")]
        asking = asyncio.create_task(fleet.rig.ask(prefix=f"/s/{lost}"))
        await until(lambda: hanging.known is None)
        assert await fleet.said(served) == "b"
        # Nobody has waited for what becomes of it.
        assert hanging.trouble is None
        assert (await asking).status == 504


async def test_what_is_passed_on_goes_on_to_an_engine_that_is_there(stack: AsyncExitStack, tmp_path: Path) -> None:
    other = await stack.enter_async_context(engine("b"))
    async with engine("a") as first:
        fleet = await several(stack, tmp_path, {"a": first, "b": other}, health_interval=60.0)
        assert {await fleet.said(f"s{number}") for number in range(12)} == {"a", "b"}
    answers = [
        await fleet.rig.send("GET", f"{fleet.rig.base}/s/s{number}/v1/models/fake/whatever") for number in range(12)
    ]
    assert {answer.status for answer in answers} == {404}
    assert sum("/v1/models/fake/whatever" in request.path for request in other.requests) == 12
    listed = await fleet.rig.send("GET", fleet.rig.base + "/v1/models")
    assert [entry["id"] for entry in listed.json["data"]] == ["fake"]


NAMES = [f"http://engine-{number}:8000" for number in range(4)]
CHANGES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(UpstreamState))


@given(set_up=st.lists(st.sampled_from(NAMES), min_size=1, unique=True), changes=st.lists(CHANGES, max_size=5))
def test_the_engines_are_those_of_the_settings_with_what_was_decided_last(
    set_up: list[str], changes: list[dict[str, UpstreamState]]
) -> None:
    """Whatever was decided before; one that stays keeps its connections, and there is always one."""

    async def change() -> None:
        fleet = Fleet(Settings(upstream=",".join(set_up)))
        for decided in changes:
            before = {member.name: member for member in fleet.members}
            out = {name for name, state in decided.items() if state in (UpstreamState.REMOVED, UpstreamState.CUT)}
            wanted = [name for name in dict.fromkeys((*set_up, *decided)) if name not in out]
            await fleet.change(decided)
            assert [member.name for member in fleet.members] == (wanted or list(before))
            assert all(before.get(member.name, member) is member for member in fleet.members)
            draining = {name for name, state in decided.items() if state is UpstreamState.DRAINING}
            assert {member.name for member in fleet.members if member.draining} == draining
        await fleet.close()

    asyncio.run(change())


@pytest.mark.parametrize("named", ["http://a:80,http://a", "http://A,http://a", "http://me:x@a,http://you:y@a"])
def test_an_engine_cannot_be_named_twice(named: str) -> None:
    with pytest.raises(BadSettings, match="upstream names an engine twice: http://a, http://a"):
        Fleet(Settings(upstream=named))
