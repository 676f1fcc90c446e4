"""A proxy with a spool, whose database another process keeps locked: clients notice nothing, and are told what is not known."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from polarproxy.errors import BadSpool
from polarproxy.store.arrivals import OwnArrivals
from tests.fakes import always, compose
from tests.proxy.rig import BODY, Rig, Starter, until

STREAM = {**BODY, "stream": True}
REPLY = always(compose("one two three four"))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    other = sqlite3.connect(folder / "polar.db", isolation_level=None, timeout=20.0)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


async def begin(start: Starter, folder: Path, **settings: object) -> Rig:
    return await start(REPLY, spool=str(folder / "spool"), store_timeout=0.6, **settings)


async def drained(rig: Rig) -> None:
    spool = rig.parts.spool
    assert spool is not None
    await until(lambda: not len(spool) and not spool.away)


async def test_clients_are_served_and_the_calls_are_stored_later(start: Starter, tmp_path: Path) -> None:
    rig = await begin(start, tmp_path)
    with locked(tmp_path):
        whole, stream = await rig.ask(), b""
        async with rig.asking(STREAM) as response:
            stream = await response.read()
        assert whole.status == 200
        assert stream.endswith(b"data: [DONE]\n\n")
        state = (await rig.control("GET", "/readyz")).json
        assert (await rig.control("GET", "/readyz")).status == 200
        assert state["problems"] == []
        assert state["spool"]["database_away"]
        assert state["spool"]["records"] >= 2
        assert any("the database is away; " in text for text in state["warnings"])
        assert rig.calls() == []
    await drained(rig)
    found = rig.calls()
    assert [captured.call.ordinal for captured in found] == [0, 1]
    assert [captured.delivered for captured in found] == [True, True]
    counts = (await rig.control("GET", "/api/stats")).json
    assert (counts["store_failures"], counts["not_stored"], counts["trouble"]) == (0, 0, None)
    assert counts["spool"]["records"] == 0
    assert (await rig.control("GET", "/readyz")).json["warnings"] == []


async def test_sessions_can_be_made_when_the_proxy_names_them(start: Starter, tmp_path: Path) -> None:
    rig = await begin(start, tmp_path)
    with locked(tmp_path):
        made = await rig.control("POST", "/api/sessions", {"task_id": "t"})
        named = await rig.control("POST", "/api/sessions", {"session_id": "mine"})
        assert made.status == 201
        assert (named.status, named.headers["Retry-After"]) == (503, "2")
        session = made.json["session_id"]
        assert (await rig.ask(prefix=f"/s/{session}")).status == 200
        # Nothing is known of it where it is asked; later it will be.
        for method, path, body in (
            ("GET", f"/api/sessions/{session}", None),
            ("POST", f"/api/sessions/{session}/close", {}),
            ("POST", f"/api/sessions/{session}/rewards", {"aggregate_reward_score": 1.0}),
        ):
            answer = await rig.control(method, path, body)
            assert (answer.status, answer.headers.get("Retry-After")) == (503, "2"), path
        assert (await rig.control("GET", "/api/sessions/none")).status == 404
    await drained(rig)
    assert (await rig.control("GET", f"/api/sessions/{session}")).json["task_id"] == "t"
    assert (await rig.control("POST", f"/api/sessions/{session}/close", {})).status == 200
    assert (await rig.ask(prefix=f"/s/{session}")).status == 409
    assert len(rig.calls(session)) == 1


async def test_a_session_that_is_closed_takes_nothing_while_the_database_is_away(
    start: Starter, tmp_path: Path
) -> None:
    rig = await begin(start, tmp_path)
    assert (await rig.ask()).status == 200
    await rig.recorded(1)
    assert (await rig.control("POST", "/api/sessions/s1/close", {})).status == 200
    with locked(tmp_path):
        assert (await rig.ask(prefix="/s/other")).status == 200
        assert (await rig.ask()).status == 409


async def test_a_response_that_waits_is_not_said_to_be_unknown(start: Starter, tmp_path: Path) -> None:
    rig = await begin(start, tmp_path)
    asked = {"model": "fake", "input": "hi"}
    url = f"{rig.base}/s/s1/v1/responses"
    with locked(tmp_path):
        first = await rig.control("POST", "/s/s1/v1/responses", asked)
        assert first.status == 200
        response = first.json["id"]
        answers = [
            await rig.control("POST", "/s/s1/v1/responses", asked | {"previous_response_id": response}),
            await rig.send("GET", f"{url}/{response}"),
        ]
        assert [answer.status for answer in answers] == [503, 503]
    await drained(rig)
    assert (await rig.send("GET", f"{url}/{response}")).json["id"] == response
    again = await rig.control("POST", "/s/s1/v1/responses", asked | {"previous_response_id": response})
    assert again.status == 200
    await drained(rig)
    assert (await rig.send("GET", f"{url}/resp_none")).status == 404


async def test_a_client_that_leaves_meanwhile_is_recorded(start: Starter, tmp_path: Path) -> None:
    rig = await begin(start, tmp_path)
    with locked(tmp_path):
        asking = asyncio.create_task(rig.ask())
        await until(lambda: rig.received)
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: len(rig.parts.spool or ()) > 0)
    await drained(rig)
    assert len(rig.calls()) == 1


async def test_two_proxies_do_not_share_a_spool(start: Starter, tmp_path: Path) -> None:
    await begin(start, tmp_path)
    with pytest.raises(BadSpool, match="another polarproxy uses the spool"):
        await begin(start, tmp_path, db=f"sqlite:///{tmp_path}/other.db")


async def test_what_is_forced_upon_a_session_is_left_out_while_it_cannot_be_known(
    start: Starter, tmp_path: Path
) -> None:
    rig = await begin(start, tmp_path)
    made = await rig.control("POST", "/api/sessions", {"session_id": "f", "sampling": {"temperature": 0.25}})
    assert made.status == 201
    with locked(tmp_path):
        # So that the spool takes over.
        assert (await rig.ask(prefix="/s/other")).status == 200
        assert (await rig.ask(prefix="/s/f")).status == 200
        assert json.loads(rig.engine.requests[-1].body)["temperature"] == 0.25
        arrivals = rig.parts.arrivals
        assert isinstance(arrivals, OwnArrivals)
        arrivals._live["f"].terms = None  # as after a restart, when its making waits in the spool
        assert (await rig.ask(prefix="/s/f")).status == 200
        assert "temperature" not in json.loads(rig.engine.requests[-1].body)
    await drained(rig)
    assert (await rig.ask(prefix="/s/f")).status == 200
    assert json.loads(rig.engine.requests[-1].body)["temperature"] == 0.25
    await rig.recorded(3, "f")
    known, unknown, again = [captured.call for captured in rig.calls("f")]
    assert [known.losses, again.losses] == [(), ()]
    assert [loss.where for loss in unknown.losses] == ["sampling"]
    assert unknown.sampling.temperature is None


async def test_a_session_made_while_the_database_is_away_is_sampled_as_it_was_made(
    start: Starter, tmp_path: Path
) -> None:
    rig = await begin(start, tmp_path)
    with locked(tmp_path):
        made = await rig.control("POST", "/api/sessions", {"sampling": {"temperature": 0.25}})
        assert made.status == 201
        session = made.json["session_id"]
        assert (await rig.ask(prefix=f"/s/{session}")).status == 200
    await drained(rig)
    call = (await rig.call(session)).call
    assert (call.sampling.temperature, call.losses) == (0.25, ())


async def test_upon_a_conversation_without_a_session_nothing_can_be_forced(start: Starter, tmp_path: Path) -> None:
    rig = await begin(start, tmp_path)
    with locked(tmp_path):
        whole = await rig.ask(prefix="")
        assert whole.status == 200
        arrivals = rig.parts.arrivals
        assert isinstance(arrivals, OwnArrivals)
        ((session, live),) = arrivals._live.items()
        live.terms = None  # as of any other session after a restart
        messages = [*BODY["messages"], whole.json["choices"][0]["message"], {"role": "user", "content": "on"}]
        assert (await rig.ask(BODY | {"messages": messages}, prefix="")).status == 200
    await drained(rig)
    assert [captured.call.losses for captured in await rig.recorded(2, session)] == [(), ()]
