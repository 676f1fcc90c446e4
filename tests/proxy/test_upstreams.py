"""Engines come and go while the proxy runs, by the control routes; other processes of the database follow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from polarproxy.model import CallStatus
from tests.fakes import FakeEngine, Faults, Script, always, compose
from tests.postgres import Server
from tests.proxy.rig import BODY, SECONDS, Answer, Rig, rig, until

SESSIONS = [f"s{number}" for number in range(24)]
HELD = always(compose("one two"), faults=Faults(hold_after=1))
QUICK: dict[str, Any] = {"health_interval": 0.05}


class Engines:
    """Engines that say their own names, and the proxies before some of them."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self.urls: dict[str, str] = {}

    async def engine(self, name: str, script: Script | None = None, model: str = "fake") -> FakeEngine:
        made = await self._stack.enter_async_context(FakeEngine(script or always(compose(name)), model=model))
        self.urls[name] = made.url
        return made

    async def close(self) -> None:
        """Ends all, before their database goes."""
        await self._stack.aclose()

    async def proxy(self, *names: str, **settings: Any) -> Rig:
        upstream = ",".join(self.urls[name] for name in names)
        return await self._stack.enter_async_context(rig(self._folder, upstream=upstream, **(QUICK | settings)))


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    async with AsyncExitStack() as stack, asyncio.timeout(3 * SECONDS):
        yield Engines(stack, tmp_path)


async def homes(one: Rig) -> dict[str, str]:
    """Who answers each session now."""
    found = {}
    for session in SESSIONS:
        answer = await one.ask(prefix=f"/s/{session}")
        assert answer.status == 200, answer.body
        found[session] = answer.json["choices"][0]["message"]["content"]
    return found


async def shown(one: Rig) -> dict[str, Any]:
    """By URL."""
    answer = await one.control("GET", "/api/upstreams")
    return {entry["url"]: entry for entry in answer.json["upstreams"]}


async def add(one: Rig, url: str, query: str = "") -> Answer:
    return await one.control("POST", f"/api/upstreams{query}", {"url": url})


async def drain(one: Rig, url: str, query: str = "") -> Answer:
    return await one.control("POST", f"/api/upstreams/{(await shown(one))[url]['id']}/drain{query}")


async def remove(one: Rig, url: str, query: str = "") -> Answer:
    return await one.control("DELETE", f"/api/upstreams/{(await shown(one))[url]['id']}{query}")


async def all_asked(one: Rig) -> int:
    """Waits until every session's call is at its engine; how many of them the first engine holds."""
    members = one.parts.fleet.members
    await until(lambda: sum(member.calls for member in members) == len(SESSIONS))
    await until(lambda: members[0].in_flight == members[0].calls)
    assert members[0].calls > 2
    return members[0].calls


async def test_the_list_tells_what_each_is_and_does(engines: Engines) -> None:
    for name in "ab":
        await engines.engine(name)
    one = await engines.proxy("a", "b")
    spread = await homes(one)
    seen = await shown(one)
    assert list(seen) == [engines.urls["a"], engines.urls["b"]]
    entry = seen[engines.urls["a"]]
    count = list(spread.values()).count("a")
    assert (entry["calls"], entry["sessions"], entry["in_flight"]) == (count, count, 0)
    assert (entry["state"], entry["healthy"], entry["trouble"]) == ("active", True, None)
    assert (entry["engine"], entry["models"], entry["max_model_len"]) == ("vllm", ["fake"], 32_768)


async def test_one_that_is_added_gets_its_share_and_only_that(engines: Engines) -> None:
    for name in "abc":
        await engines.engine(name)
    one = await engines.proxy("a", "b")
    before = await homes(one)
    answer = await add(one, engines.urls["c"] + "/v1/")
    assert (answer.status, answer.json["upstreams"][0]["url"]) == (201, engines.urls["c"])
    after = await homes(one)
    assert {after[session] for session in SESSIONS if after[session] != before[session]} == {"c"}
    assert (await add(one, engines.urls["c"])).status == 409


async def test_an_engine_can_be_added_to_a_single_one(engines: Engines) -> None:
    for name in "ab":
        await engines.engine(name)
    one = await engines.proxy("a")
    assert set((await homes(one)).values()) == {"a"}
    assert (await add(one, engines.urls["b"])).status == 201
    assert set((await homes(one)).values()) == {"a", "b"}


async def test_what_does_not_answer_is_not_added_unless_it_must(engines: Engines) -> None:
    await engines.engine("a")
    one = await engines.proxy("a")
    dead = "http://127.0.0.1:9"
    answer = await add(one, dead)
    assert answer.status == 502
    assert answer.error["message"] == (
        f"the engine at {dead} does not answer; it was not added (?force=true adds it all the same)"
    )
    assert list(await shown(one)) == [engines.urls["a"]]
    assert (await add(one, dead, "?force=true")).status == 201
    assert (await shown(one))[dead]["healthy"] is False
    assert set((await homes(one)).values()) == {"a"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "the body is not"),
        ({}, "required field `url`"),
        ({"url": "gpu-1:8000"}, "must be an http:// or https:// URL"),
        ({"url": "http://:80"}, "names no host"),
        ({"url": "http://me:secret@host"}, "no password in its URL"),
        ({"url": "http://host", "weight": 2}, "unknown field `weight`"),
    ],
)
async def test_what_is_no_upstream_is_refused(engines: Engines, body: Any, why: str) -> None:
    await engines.engine("a")
    one = await engines.proxy("a")
    answer = await one.control("POST", "/api/upstreams", body)
    assert answer.status == 400
    assert why in answer.error["message"]
    assert "secret" not in answer.error["message"]


async def test_a_draining_one_finishes_and_gets_nothing_new(engines: Engines) -> None:
    held = await engines.engine("a", HELD)
    await engines.engine("b")
    one = await engines.proxy("a", "b")
    asking = [asyncio.create_task(one.ask(prefix=f"/s/{session}")) for session in SESSIONS]
    busy = await all_asked(one)
    url = engines.urls["a"]
    answer = await drain(one, url)
    (entry,) = answer.json["upstreams"]
    assert (answer.status, entry["state"], entry["in_flight"]) == (200, "draining", busy)
    assert set((await homes(one)).values()) == {"b"}
    refused = await remove(one, url)
    assert (refused.status, f"busy with {busy} calls" in refused.error["message"]) == (409, True)
    held.release()
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
    assert (await remove(one, url)).status == 200
    assert list(await shown(one)) == [engines.urls["b"]]
    for session in SESSIONS:
        statuses = [captured.call.status for captured in await one.recorded(2, session)]
        assert statuses == [CallStatus.COMPLETED] * 2


async def test_one_that_drains_can_be_taken_back(engines: Engines) -> None:
    for name in "ab":
        await engines.engine(name)
    one = await engines.proxy("a", "b")
    before = await homes(one)
    await drain(one, engines.urls["a"])
    assert set((await homes(one)).values()) == {"b"}
    answer = await add(one, engines.urls["a"])
    assert (answer.status, answer.json["upstreams"][0]["state"]) == (200, "active")
    assert await homes(one) == before


async def test_force_breaks_off_what_is_under_way(engines: Engines) -> None:
    await engines.engine("a", HELD)
    await engines.engine("b")
    one = await engines.proxy("a", "b")
    asking = [asyncio.create_task(one.ask(prefix=f"/s/{session}")) for session in SESSIONS]
    await all_asked(one)
    url = engines.urls["a"]
    refused = await remove(one, url)
    assert (refused.status, "drain it first" in refused.error["message"]) == (409, True)
    assert (await remove(one, url, "?force=true")).status == 200
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200, 502}
    assert set((await homes(one)).values()) == {"b"}


async def test_the_last_one_stays(engines: Engines) -> None:
    for name in "ab":
        await engines.engine(name)
    one = await engines.proxy("a", "b")
    assert (await drain(one, engines.urls["a"])).status == 200
    for act in (drain, remove):
        for query in ("", "?force=true"):
            answer = await act(one, engines.urls["b"], query)
            assert (answer.status, "is the last upstream" in answer.error["message"]) == (409, True)


async def test_a_model_that_nobody_else_serves_is_not_taken_away_unnoticed(engines: Engines) -> None:
    await engines.engine("a", model="small")
    await engines.engine("b", model="large")
    one = await engines.proxy("a", "b")
    assert (await one.ask(BODY | {"model": "large"})).status == 200
    answer = await drain(one, engines.urls["b"])
    assert (answer.status, "nothing else serves large" in answer.error["message"]) == (409, True)
    assert (await drain(one, engines.urls["b"], "?force=true")).status == 200


async def test_they_are_for_the_admin_key(engines: Engines) -> None:
    await engines.engine("a")
    one = await engines.proxy("a", auth="required")
    for method, path in (
        ("GET", "/api/upstreams"),
        ("POST", "/api/upstreams"),
        ("POST", "/api/upstreams/u1/drain"),
        ("DELETE", "/api/upstreams/u1"),
    ):
        assert (await one.control(method, path, {})).status == 401
        key = {"Authorization": f"Bearer {one.parts.signer.key('s1')}"}
        assert (await one.control(method, path, {}, key)).status == 403
    admin = {"Authorization": f"Bearer {one.parts.signer.admin_key}"}
    assert (await one.control("DELETE", "/api/upstreams/u1", None, admin)).status == 404


# Several processes


async def pair(engines: Engines, url: str, folder: Path, *names: str) -> tuple[Rig, Rig]:
    first, second = [await engines.proxy(*names, db=url, key_file=str(folder / "key")) for _ in range(2)]
    return first, second


async def test_what_is_changed_at_one_holds_at_the_other(engines: Engines, tmp_path: Path, postgres: Server) -> None:
    for name in "abc":
        await engines.engine(name)
    with postgres.temporary() as url:
        first, second = await pair(engines, url, tmp_path, "a", "b")
        assert await homes(first) == await homes(second)
        await add(first, engines.urls["c"])
        await until(lambda: len(second.parts.fleet.members) == 3)
        await until(lambda: all(member.trouble is None for member in second.parts.fleet.members))
        spread = await homes(first)
        assert set(spread.values()) == {"a", "b", "c"}
        assert await homes(second) == spread
        await drain(second, engines.urls["a"])
        await until(lambda: first.parts.fleet.members[0].draining)
        assert "a" not in (await homes(first)).values()
        await remove(second, engines.urls["a"])
        await until(lambda: len(first.parts.fleet.members) == 2)
        assert await homes(first) == await homes(second)
        # One that starts now has what the others have.
        third = await engines.proxy("a", "b", db=url, key_file=str(tmp_path / "key"))
        assert list(await shown(third)) == [engines.urls["b"], engines.urls["c"]]
        await engines.close()


async def test_what_one_is_busy_with_counts_at_the_other(engines: Engines, tmp_path: Path, postgres: Server) -> None:
    held = await engines.engine("a", HELD)
    await engines.engine("b")
    with postgres.temporary() as url:
        first, second = await pair(engines, url, tmp_path, "a", "b")
        asking = [asyncio.create_task(first.ask(prefix=f"/s/{session}")) for session in SESSIONS]
        name = engines.urls["a"]
        busy = await all_asked(first)
        await until(lambda: second.parts.muster.load(name).in_flight == busy)
        await drain(second, name)
        refused = await remove(second, name)
        assert (refused.status, f"busy with {busy} calls" in refused.error["message"]) == (409, True)
        held.release()
        assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
        await until(lambda: second.parts.muster.load(name).in_flight == 0)
        assert (await remove(second, name)).status == 200
        await engines.close()
