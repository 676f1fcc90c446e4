"""Two proxies over one PostgreSQL database are one: sessions, places, closing, rewards, versions, kept responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from polarproxy.model import CallStatus, SessionStatus
from polarproxy.store.terms import SAMPLING
from tests.fakes import Faults, always, compose
from tests.postgres import Server, running
from tests.proxy.rig import BODY, CHAT, Answer, Rig, Scripted, _encoded, rig
from tests.store.samples import a_session

STREAM = {**BODY, "stream": True}
HELD = always(compose("one two"), faults=Faults(hold_after=1))


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.temporary() as made:
        yield made


class Pair:
    """Starts proxies over one database, with one signing key."""

    def __init__(self, stack: AsyncExitStack, url: str, folder: Path) -> None:
        self._stack = stack
        self._settings: dict[str, Any] = {"db": url, "key_file": str(folder / "key")}
        self._folder = folder

    async def __call__(self, script: Scripted | None = None, **settings: Any) -> tuple[Rig, Rig]:
        both = [rig(self._folder, script, **(self._settings | settings)) for _ in range(2)]
        first, second = [await self._stack.enter_async_context(one) for one in both]
        return first, second


@pytest.fixture
async def pair(url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        yield Pair(stack, url, tmp_path)


async def test_calls_of_one_session_have_places_of_their_own(pair: Pair) -> None:
    first, second = await pair(always(compose("Hello you.")))
    bodies = [BODY, STREAM] * 10
    answers = await asyncio.gather(*(one.ask(body) for body in bodies for one in (first, second)))
    assert {answer.status for answer in answers} == {200}
    calls = await first.recorded(len(answers))
    assert [captured.call.ordinal for captured in calls] == list(range(len(answers)))
    assert {captured.call.status for captured in calls} == {CallStatus.COMPLETED}
    assert [captured.call for captured in second.calls()] == [captured.call for captured in calls]
    assert list(first.parts.repository.verify()) == []


async def test_places_are_those_of_arrival_whoever_is_done_first(pair: Pair) -> None:
    slow, quick = await pair(HELD)
    asking = asyncio.create_task(slow.ask(STREAM))
    await slow.engine.until(lambda _: bool(slow.received))
    quick.engine.release()
    assert (await quick.ask()).status == 200
    slow.engine.release()
    assert (await asking).status == 200
    assert [captured.call.streamed for captured in await quick.recorded(2)] == [True, False]


async def test_what_one_forces_upon_a_session_the_other_asks_with_at_once(pair: Pair) -> None:
    """Also when a call of the session came first, as one may while a spool still has the session itself."""
    first, second = await pair()
    assert (await second.ask(prefix="/s/new")).status == 200
    await second.recorded(1, "new")
    meant = a_session("new", origin="api", metadata=((SAMPLING, '{"temperature":0.25}'),))
    await first.parts.writer.write(meant, 20)
    wanted = {"session_id": "made", "sampling": {"temperature": 0.25}}
    assert (await first.control("POST", "/api/sessions", wanted)).status == 201
    for session in ("new", "made"):
        assert (await second.ask(BODY | {"temperature": 1}, prefix=f"/s/{session}")).status == 200
        call = (await second.recorded(2 if session == "new" else 1, session))[-1].call
        assert call.sampling.temperature == 0.25
        assert [loss.where for loss in call.losses] == ["temperature"]


async def test_a_session_made_at_one_serves_at_the_other(pair: Pair) -> None:
    first, second = await pair(auth="required")
    admin = {"Authorization": f"Bearer {first.parts.signer.admin_key}"}
    made = (await first.control("POST", "/api/sessions", {"session_id": "mine", "task_id": "t"}, admin)).json
    key = {"Authorization": f"Bearer {made['api_key']}"}
    assert (await second.send("POST", second.base + CHAT, _encoded(BODY), key)).status == 200
    assert (await second.control("POST", "/api/sessions", {"session_id": "mine"}, admin)).status == 409
    reward = {"aggregate_reward_score": 0.5}
    assert (await second.control("POST", "/api/sessions/mine/rewards", reward, admin)).status == 201
    seen = (await first.control("GET", "/api/sessions/mine", None, admin)).json
    assert (seen["task_id"], seen["reward"]["value"]) == ("t", 0.5)
    assert len(first.calls("mine")) == 1


async def test_a_session_closed_at_one_takes_no_calls_at_the_other(pair: Pair) -> None:
    first, second = await pair(HELD)
    under_way = asyncio.create_task(second.ask())
    await second.engine.until(lambda _: bool(second.received))
    await first.control("POST", "/api/sessions", {"session_id": "s1"})
    assert (await first.control("POST", "/api/sessions/s1/close", {"status": "completed"})).status == 200
    for one in (first, second):
        asked = len(one.received)
        assert (await one.ask()).status == 409
        assert len(one.received) == asked
    # What was taken before is still recorded.
    second.engine.release()
    assert (await under_way).status == 200
    assert len(await second.recorded(1)) == 1
    assert second.parts.repository.session("s1").status is SessionStatus.COMPLETED


async def test_a_policy_version_set_at_one_holds_at_the_other(pair: Pair) -> None:
    first, second = await pair(HELD, policy_version=3)
    under_way = asyncio.create_task(second.ask())
    await second.engine.until(lambda _: bool(second.received))
    assert (await first.control("POST", "/api/policy", {"version": 8})).status == 200
    second.engine.release()
    assert (await under_way).status == 200
    assert (await second.ask()).status == 200
    spans = [(one.call.policy_version_min, one.call.policy_version_max) for one in await second.recorded(2)]
    assert spans == [(3, 8), (8, 8)]
    assert (await second.control("POST", "/api/policy", {"version": 7})).status == 400


async def test_a_response_kept_by_one_goes_on_at_the_other(pair: Pair) -> None:
    first, second = await pair(always(compose("answer")))

    async def make(one: Rig, **more: Any) -> Any:
        body = _encoded({"model": "fake", "input": "hi", **more})
        return (await one.send("POST", f"{one.base}/s/s1/v1/responses", body)).json

    made = await make(first)
    again = await second.send("GET", f"{second.base}/s/s1/v1/responses/{made['id']}")
    assert again.json == made
    await make(second, input="more", previous_response_id=made["id"])
    asked = json.loads(second.received[-1].body)["messages"]
    assert [message["content"] for message in asked] == ["hi", "answer", "more"]


@pytest.mark.parametrize("prefix", ["/s/s1", ""])
async def test_what_no_column_takes_as_it_is_is_recorded(pair: Pair, prefix: str) -> None:
    """U+0000 in a name and in a message."""
    first, _ = await pair(always(compose("Hello.")))
    body = BODY | {"model": "fa\x00ke", "messages": [{"role": "user", "content": "\x00"}]}
    assert (await first.ask(body, prefix)).status == 200
    (session,) = first.parts.repository.session_ids()
    (captured,) = await first.recorded(1, session)
    assert captured.call.requested_model == "fa\x00ke"
    assert json.loads(captured.call.request_body) == body


async def test_a_database_that_dies_takes_nothing_acknowledged_along(tmp_path: Path, postgres: Server) -> None:
    """Replies whose call cannot be stored end with 503; with the database the proxy is well again."""
    del postgres
    with running() as server:
        settings: dict[str, Any] = {"db": server.fresh(), "key_file": str(tmp_path / "key")}
        async with rig(tmp_path, HELD, **settings) as one:
            under_way = [asyncio.create_task(one.ask(body)) for body in (BODY, STREAM, BODY)]
            await one.engine.until(lambda _: len(one.received) == len(under_way))
            server.kill()
            one.engine.release()
            whole, stream, another = await asyncio.gather(*under_way, return_exceptions=True)
            assert isinstance(stream, aiohttp.ClientPayloadError)
            for answer in (whole, another):
                assert isinstance(answer, Answer)
                assert answer.status == 503
            refused = await one.ask()
            assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
            assert (await one.send("GET", f"{one.base}/readyz")).status == 503
            await asyncio.to_thread(server.start)
            assert (await one.ask()).status == 200
            assert (await one.send("GET", f"{one.base}/readyz")).status == 200
            (captured,) = await one.recorded(1)
            assert captured.call.ordinal == 3


async def test_a_conversation_without_a_session_is_split_between_proxies_and_never_mixed(pair: Pair) -> None:
    """Each proxy knows the conversations that it served. What it did not serve it cannot tell from another one."""
    first, second = await pair()
    openings = ["one task", "another task"]
    held: list[list[Any]] = [[{"role": "user", "content": opening}] for opening in openings]
    for one in (first, second, first, second):
        for messages in held:
            answer = (await one.ask({"model": "fake", "messages": messages}, "")).json
            messages += [answer["choices"][0]["message"], {"role": "user", "content": "go on"}]
    found = {}
    for session in first.parts.repository.session_ids():
        bodies = [json.loads(captured.call.request_body)["messages"] for captured in await first.recorded(2, session)]
        found[session] = ({body[0]["content"] for body in bodies}, sorted(map(len, bodies)))
    # Every call is kept, in two sessions a conversation, each with the turns of one proxy.
    assert sorted((sorted(said), turns) for said, turns in found.values()) == sorted(
        ([opening], turns) for opening in openings for turns in ([1, 5], [3, 7])
    )
