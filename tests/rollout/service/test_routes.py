"""The task service over HTTP: submit, look, listen, cancel, and being called back."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from polarproxy.errors import PolarproxyError
from polarproxy.proxy.control_app import as_web
from polarproxy.proxy.replies import refuse_for
from polarproxy.rollout.service.callbacks import DELIVERY, SIGNATURE, TIMESTAMP, Callbacks, sign
from polarproxy.rollout.service.routes import TaskRoutes
from polarproxy.store.task_rows import CallbackState
from tests.rollout.service.shop import SIMPLE, Service, service, until

TASK = {"instruction": SIMPLE, "harness": "none"}


@asynccontextmanager
async def listening(routes: Any) -> AsyncIterator[str]:
    """A server of these routes on loopback; its base URL."""
    app = web.Application(middlewares=[_refusing])
    for method, path, handler in routes:
        app.router.add_route(method, path, handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@web.middleware
async def _refusing(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
    except PolarproxyError as error:
        return as_web(refuse_for(error))
    return answer


@asynccontextmanager
async def served(folder: Path, **more: Any) -> AsyncIterator[tuple[Service, str]]:
    async with service(folder, **more) as made:
        ending = asyncio.Event()
        routes = TaskRoutes(made.store, lambda _: None, made.runner.wake, ending)
        async with listening(routes.all) as base:
            yield made, base
            ending.set()


async def ask(method: str, url: str | URL, body: Any = None, **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.request(method, url, json=body, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_a_task_by_http(tmp_path: Path) -> None:
    async with served(tmp_path) as (made, base):
        status, task = await ask("POST", f"{base}/api/tasks", TASK | {"num_samples": 2, "metadata": {"ü": "😀"}})
        assert status == 201
        assert task["rollouts"].get("waiting", 0) + task["rollouts"].get("running", 0) == 2
        await made.done(task["task_id"])
        status, shown = await ask("GET", f"{base}/api/tasks/{task['task_id']}")
        assert (status, shown["state"], shown["usable"]) == (200, "done", 2)
        assert (shown["statuses"], shown["rollouts"]) == ({"completed": 2}, {"done": 2})
        assert shown["request"]["metadata"] == {"ü": "😀"}
        _, sessions = await ask("GET", f"{base}/api/tasks/{task['task_id']}/sessions")
        assert [(one["number"], one["status"], one["detail"]["turns"]) for one in sessions] == [
            (0, "completed", 1),
            (1, "completed", 1),
        ]
        _, listed = await ask("GET", f"{base}/api/tasks?state=done&limit=5")
        assert [one["task_id"] for one in listed] == [task["task_id"]]
        assert (await ask("GET", f"{base}/api/tasks?state=open"))[1] == []


async def test_submitting_twice_is_one_task(tmp_path: Path) -> None:
    async with served(tmp_path) as (made, base):
        key = {"Idempotency-Key": "k"}
        answers = await asyncio.gather(*(ask("POST", f"{base}/api/tasks", TASK, **key) for _ in range(8)))
        assert sorted(status for status, _ in answers) == [200] * 7 + [201]
        assert len({task["task_id"] for _, task in answers}) == 1
        status, refused = await ask("POST", f"{base}/api/tasks", TASK | {"num_samples": 2}, **key)
        assert (status, "'k'" in refused["error"]["message"]) == (409, True)
        for odd in ("", "é", "k" * 256):
            assert (await ask("POST", f"{base}/api/tasks", TASK, **{"Idempotency-Key": odd}))[0] == 400
        await made.done(answers[0][1]["task_id"])


BAD: list[Any] = [
    [],
    {},
    {"instruction": " ", "harness": "x"},
    TASK | {"num_samples": 0},
    TASK | {"num_samples": 2, "enough": 3},
    TASK | {"timeout_s": 0},
    TASK | {"evaluator": {"kind": "magic"}},
    TASK | {"evaluator": {"kind": "tests"}},
    TASK | {"evaluator": {"kind": "function", "function": "nobody:nothing"}},
    TASK | {"reward": {"components": []}},
    TASK | {"callback_url": "ftp://x"},
    TASK | {"callback_url": "http://"},
    TASK | {"callback_url": "http://["},
    TASK | {"callback_url": "http://host:99999/"},
    TASK | {"runtime": {"folder": "/a", "git": "/b"}},
    TASK | {"runtime": {"limits": {"memory_mb": 0}}},
    TASK | {"runtime": {"limits": {"memory_mb": 10**13}}},
    TASK | {"runtime": {"limits": {"memroy_mb": 64}}},
    TASK | {"evaluator": {"kind": "tests", "runner": "unittest", "files": {"../test.py": ""}}},
    TASK | {"evaluator": {"kind": "tests", "runner": "unittest", "files": {"/etc/test.py": ""}}},
    TASK | {"keep": {"statuses": ["wonderful"]}},
    TASK | {"unknown": 1},
    TASK | {"sampling": {"temprature": 1}},
    TASK | {"sampling": {"temperature": "hot"}},
    TASK | {"sampling": {"temperature": True}},
    TASK | {"sampling": {"temperature": 10**400}},
    TASK | {"priority": 2**40},
]


@pytest.mark.parametrize("body", BAD)
async def test_what_is_no_task(tmp_path: Path, body: Any) -> None:
    async with served(tmp_path, running=False) as (made, base):
        status, said = await ask("POST", f"{base}/api/tasks", body)
        assert (status, bool(said["error"]["message"])) == (400, True)
        assert made.store.tasks() == []


async def test_what_is_not_there(tmp_path: Path) -> None:
    async with served(tmp_path, running=False) as (_, base):
        for method, path in (("GET", ""), ("GET", "/sessions"), ("DELETE", "")):
            for odd in (
                "nobody",
                "%ff",
                "%00",
                "%ed%a0%80",
                "%F0%9F%98%80",
                "..%2f..",
                "t" * 4000,
                "%0a",
                "%25ff",
                "'",
            ):
                there = URL(f"{base}/api/tasks/{odd}{path}", encoded=True)
                assert (await ask(method, there))[0] == 404, (method, odd)
        for path in (
            "tasks?limit=x",
            "tasks?limit=0",
            "tasks?state=odd",
            "events?after=x",
            f"events?after={2**63}",
            "events?after=-1",
        ):
            assert (await ask("GET", f"{base}/api/{path}"))[0] == 400


async def test_cancelling(tmp_path: Path) -> None:
    async with served(tmp_path) as (made, base):
        _, task = await ask("POST", f"{base}/api/tasks", TASK | {"instruction": SIMPLE + "import time; time.sleep(60)"})
        await until(lambda: made.rig.received)
        status, shown = await ask("DELETE", f"{base}/api/tasks/{task['task_id']}")
        assert (status, shown["state"]) == (200, "cancelled")
        (one,) = await made.done(task["task_id"], seconds=10)
        assert one.state.value == "skipped"
        assert (await ask("DELETE", f"{base}/api/tasks/{task['task_id']}"))[0] == 200


async def test_listening(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, base), aiohttp.ClientSession() as http:
        async with http.get(f"{base}/api/events") as stream:
            assert stream.content_type == "text/event-stream"
            _, task = await ask("POST", f"{base}/api/tasks", TASK)
            seen: list[tuple[int, str, Any]] = []
            while not seen or seen[-1][1] != "task_done":
                lines = (await stream.content.readuntil(b"\n\n")).decode().splitlines()
                told = dict(line.split(": ", 1) for line in lines if line and not line.startswith(":"))
                seen.append((int(told["id"]), told["event"], json.loads(told["data"])))
        assert [name for _, name, _ in seen] == [
            "task_submitted",
            "rollout_started",
            "rollout_completed",
            "task_done",
        ]
        assert {data["task_id"] for _, _, data in seen} == {task["task_id"]}
        again = {"Last-Event-ID": str(seen[1][0])}
        async with http.get(f"{base}/api/events?task={task['task_id']}", headers=again) as stream:
            assert b"event: rollout_completed" in await stream.content.readuntil(b"\n\n")


async def test_being_called_back(tmp_path: Path) -> None:
    got: list[tuple[str, str, str, bytes]] = []

    async def hear(request: web.Request) -> web.Response:
        head = request.headers
        got.append((head[TIMESTAMP], head[SIGNATURE], head[DELIVERY], await request.read()))
        return web.Response(status=200 if len(got) == 3 else 500)

    async with served(tmp_path) as (made, base), listening([("POST", "/hear", hear)]) as ear:
        calling = asyncio.create_task(Callbacks(made.store, "secret", first_wait_s=0.01).run())
        _, task = await ask("POST", f"{base}/api/tasks", TASK | {"callback_url": f"{ear}/hear"})
        await until(lambda: made.store.task(task["task_id"]).callback is CallbackState.DELIVERED)
        calling.cancel()
        assert len(got) == 3
        for timestamp, signature, delivery, body in got:
            assert signature == sign("secret", timestamp, body) != sign("other", timestamp, body)
            assert delivery == task["task_id"]
        told = json.loads(got[0][3])
        assert (told["state"], told["usable"], told["sessions"][0]["status"]) == ("done", 1, "completed")


def test_a_signature_is_what_the_documentation_says() -> None:
    digest = hmac.new(b"key", b"17.{}", hashlib.sha256).hexdigest()
    assert sign("key", "17", b"{}") == f"sha256={digest}"


async def test_nobody_hears(tmp_path: Path) -> None:
    async with served(tmp_path) as (made, base):
        calling = asyncio.create_task(Callbacks(made.store, "secret", first_wait_s=0.01, tries=2).run())
        _, task = await ask("POST", f"{base}/api/tasks", TASK | {"callback_url": "http://127.0.0.1:9/"})
        await until(lambda: made.store.task(task["task_id"]).callback is CallbackState.FAILED)
        calling.cancel()


async def test_who_hears_and_says_nothing_or_sends_elsewhere(tmp_path: Path) -> None:
    """Neither keeps the others waiting, and no redirect is followed."""
    got: list[str] = []

    async def hang(_: web.Request) -> web.Response:
        got.append("hang")
        await asyncio.sleep(600)
        return web.Response()

    async def elsewhere(_: web.Request) -> web.Response:
        got.append("elsewhere")
        return web.Response(status=307, headers={"Location": "/hear"})

    async def hear(_: web.Request) -> web.Response:
        got.append("hear")
        return web.Response()

    routes = [("POST", "/hang", hang), ("POST", "/elsewhere", elsewhere), ("POST", "/hear", hear)]
    async with served(tmp_path) as (made, base), listening(routes) as ear:
        ids = []
        for path in ("hang", "elsewhere", "hear"):
            _, task = await ask("POST", f"{base}/api/tasks", TASK | {"callback_url": f"{ear}/{path}"})
            ids.append(task["task_id"])
        await made.done(*ids)
        calling = asyncio.create_task(Callbacks(made.store, "secret", first_wait_s=0.01, tries=2, patience_s=1.0).run())
        await until(lambda: all(made.store.task(one).callback is not CallbackState.PENDING for one in ids))
        calling.cancel()
        states = [made.store.task(one).callback for one in ids]
    assert states == [CallbackState.FAILED, CallbackState.FAILED, CallbackState.DELIVERED]
    assert sorted(got) == ["elsewhere", "elsewhere", "hang", "hang", "hear"]
