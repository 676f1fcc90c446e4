"""Trainers take batches over HTTP: complete groups, leases, acknowledgements, long polls; and who may."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from yarl import URL

from tests.proxy.rig import Answer, Rig, Starter

NEXT = "/api/batches/next"


async def rolled_out(rig: Rig, name: str, group: str, reward: float | None) -> None:
    """A session with one call, closed."""
    made = await rig.control("POST", "/api/sessions", {"session_id": name, "group_id": group})
    assert made.status == 201
    assert (await rig.ask(prefix=f"/s/{name}")).status == 200
    await rig.delivered(name)
    assert (await rig.control("POST", f"/api/sessions/{name}/close")).status == 200
    if reward is not None:
        await rewarded(rig, name, reward)


async def rewarded(rig: Rig, name: str, reward: float) -> None:
    answer = await rig.control("POST", f"/api/sessions/{name}/rewards", {"aggregate_reward_score": reward})
    assert answer.status == 201


async def a_group(rig: Rig, group: str = "g") -> None:
    await rolled_out(rig, f"{group}1", group, 1.0)
    await rolled_out(rig, f"{group}2", group, 0.0)


async def take(rig: Rig, query: str = "", **headers: str) -> Answer:
    return await rig.control("GET", f"{NEXT}?{query}", headers=headers)


async def test_a_batch_is_taken_and_acknowledged(start: Starter) -> None:
    rig = await start()
    await a_group(rig)
    batch = await take(rig)
    assert (batch.status, batch.headers["content-type"]) == (200, "application/json")
    said = batch.json
    assert [row["session_id"] for row in said["rows"]] == ["g1", "g2"]
    assert said["rows"][0]["advantages"] != said["rows"][1]["advantages"]
    lease = batch.headers["x-polarproxy-lease"]
    assert (said["lease_id"], said["batch_id"]) == (lease, batch.headers["x-polarproxy-batch"])
    assert batch.headers["x-polarproxy-rows"] == "2"
    assert (await take(rig)).status == 204
    first, second = [await rig.control("POST", f"/api/batches/{lease}/ack") for _ in range(2)]
    assert (first.json["first"], second.json["first"]) == (True, False)
    assert (first.status, second.status) == (200, 200)
    state = (await rig.control("GET", "/api/batches")).json
    assert state["consumers"] == [{"name": "default", "leased": 0, "acked": 1, "rows": 2}]
    assert (await take(rig, f"lease_id={lease}")).status == 409
    other = await take(rig, "consumer=other&format=arrow")
    assert pa.ipc.open_stream(other.body).read_all().num_rows == 2


async def test_the_same_lease_is_the_same_bytes_also_after_a_restart(start: Starter) -> None:
    rig = await start()
    await a_group(rig)
    first = await take(rig, "lease_id=step-1")
    await rewarded(rig, "g1", 7.0)
    again = await take(rig, "lease_id=step-1")
    restarted = await start()
    third = await take(restarted, "lease_id=step-1")
    assert first.status == again.status == third.status == 200
    assert first.body == again.body == third.body


async def test_a_lease_runs_out_or_is_given_back(start: Starter) -> None:
    rig = await start()
    await a_group(rig)
    first = await take(rig, "lease_id=a&lease=1")
    await asyncio.sleep(1.05)
    second = await take(rig, "lease_id=b")
    assert first.headers["x-polarproxy-batch"] == second.headers["x-polarproxy-batch"]
    lost = await take(rig, "lease_id=a")
    assert (lost.status, "handed out again as 'b'" in lost.error["message"]) == (409, True)
    assert (await rig.control("POST", "/api/batches/b/release")).json["released"] is True
    third = await take(rig, "lease_id=c")
    assert third.headers["x-polarproxy-batch"] == first.headers["x-polarproxy-batch"]


async def test_who_waits_is_answered_when_a_group_becomes_complete(start: Starter) -> None:
    rig = await start()
    await rolled_out(rig, "g1", "g", 1.0)
    await rolled_out(rig, "g2", "g", None)
    empty = await take(rig)
    assert (empty.status, empty.headers["x-polarproxy-unrewarded"]) == (204, "1")
    waiting = asyncio.create_task(take(rig, "wait=20"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await rewarded(rig, "g2", 0.0)
    async with asyncio.timeout(10):
        assert (await waiting).status == 200


async def test_nobody_is_kept_waiting_when_the_proxy_ends(start: Starter) -> None:
    rig = await start()
    waiting = asyncio.create_task(take(rig, "wait=60"))
    await asyncio.sleep(0.3)
    rig.parts.ending.set()
    async with asyncio.timeout(10):
        assert (await waiting).status == 204


async def test_many_at_once_get_different_batches(start: Starter) -> None:
    rig = await start()
    for number in range(4):
        await rolled_out(rig, f"s{number}", f"g{number}", 1.0)
    answers = await asyncio.gather(*(take(rig) for _ in range(6)))
    got = [answer.headers["x-polarproxy-batch"] for answer in answers if answer.status == 200]
    assert len(got) == len(set(got)) == 4


async def test_the_guide_does_what_it_says(start: Starter) -> None:
    rig = await start()
    for number in range(2):
        await a_group(rig, f"g{number}")
    page = (Path(__file__).parents[2] / "docs" / "guides" / "pulling-batches.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for there, here in (
        ("http://127.0.0.1:8080", rig.base),
        ("groups=8&group_size=4", "groups=1&group_size=2"),
        ("wait=60", "wait=5"),
    ):
        assert there in code
        code = code.replace(there, here)
    scope: dict[str, Any] = {}
    exec(compile(code, "guide", "exec"), scope)
    seen: list[list[str]] = []

    def fail_once(rows: list[dict[str, Any]]) -> None:
        seen.append([row["session_id"] for row in rows])
        if len(seen) == 1:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        await asyncio.to_thread(scope["train"], fail_once, steps=2)
    await asyncio.to_thread(scope["train"], fail_once, steps=2)
    assert seen == [["g01", "g02"], ["g01", "g02"], ["g11", "g12"]]
    await asyncio.to_thread(scope["train"], fail_once, steps=2)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{NEXT}?colour=red", 400),
        ("GET", f"{NEXT}?groups=0", 400),
        ("GET", f"{NEXT}?advantage=luck", 400),
        ("GET", f"{NEXT}?consumer=%00", 400),
        ("GET", f"{NEXT}?model=%ed%a0%80", 400),
        ("GET", f"{NEXT}?model=m%ff", 400),
        ("GET", f"{NEXT}?model=a&model=b", 400),
        ("GET", "/api/batches?consumer=%ff", 400),
        ("POST", "/api/batches/nobody/ack?consumer=%ff", 400),
        ("POST", "/api/batches/nobody/release?consumer=%e4%b8", 400),
        ("POST", "/api/batches/nobody/ack", 404),
        ("POST", "/api/batches/nobody/release", 404),
    ],
)
async def test_what_cannot_be_meant_is_refused(start: Starter, method: str, path: str, status: int) -> None:
    rig = await start()
    answer = await rig.control(method, path)
    assert answer.status == status
    assert answer.error["message"]


async def test_a_query_that_cannot_be_read_hands_out_nothing(start: Starter) -> None:
    rig = await start()
    await a_group(rig)
    for query in ("model=%ed%a0%80", "model=m%", "model=%zz", "model=%f"):
        # As it stands: a client would write the % as %25.
        async with rig.http.get(URL(f"{rig.base}{NEXT}?{query}", encoded=True)) as answer:
            assert answer.status == 400, query
    assert (await take(rig, "advantage=grpo")).headers["x-polarproxy-rows"] == "2"


async def test_batches_take_the_admin_key(start: Starter) -> None:
    rig = await start(auth="required")
    session = {"Authorization": f"Bearer {rig.parts.signer.key('s1')}"}
    admin: dict[str, Any] = {"Authorization": f"Bearer {rig.parts.signer.admin_key}"}
    for method, path in (("GET", NEXT), ("GET", "/api/batches"), ("POST", "/api/batches/x/ack")):
        assert (await rig.control(method, path)).status == 401
        assert (await rig.control(method, path, headers=session)).status == 403
    assert (await rig.control("GET", NEXT, headers=admin)).status == 204
