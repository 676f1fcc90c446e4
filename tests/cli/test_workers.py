"""`serve --workers`: several processes on one port and one database are one proxy, and none is left behind."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from polarproxy.cli.workers import listen, listen_together
from polarproxy.model import CallStatus
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.fakes import FakeEngine, Faults, always, compose
from tests.postgres import Server
from tests.postgres import running as running_server
from tests.proxy.rig import BODY, CHAT, until

SECONDS = 60.0
COUNT = 3


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.temporary() as made:
        yield made


@dataclass
class Running:
    """`polarproxy serve --workers`, with its log as it grows."""

    process: asyncio.subprocess.Process
    log: Path
    base: str = ""

    @property
    def text(self) -> str:
        return self.log.read_text()

    async def says(self, pattern: str) -> re.Match[str]:
        """Waits for it to print this."""
        await until(lambda: re.search(pattern, self.text) or self.process.returncode is not None, SECONDS)
        found = re.search(pattern, self.text)
        assert found, self.text
        return found

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    async def ended(self) -> int | None:
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


class Start:
    """Starts the program; it has ended when the test has."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack, self._folder, self._count = stack, folder, 0

    async def __call__(self, *arguments: object) -> Running:
        self._count += 1
        log = self._folder / f"log{self._count}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POLARPROXY_")}
        with log.open("wb") as written:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "polarproxy", "serve", "--port", "0", "--key-file", str(self._folder / "key")),
                *map(str, arguments),
                stdout=written,
                stderr=written,
                env=environment | {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": "1"},
            )
        self._stack.push_async_callback(self._end, process)
        return Running(process, log)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.terminate()
            await process.wait()

    async def ready(self, engine: FakeEngine, url: str, *arguments: object) -> Running:
        """A proxy all of whose workers serve."""
        running = await self("--upstream", engine.url, "--db", url, "--workers", COUNT, *arguments)
        running.base = (await running.says(r"listens on (http://\S+) with")).group(1)
        await until(lambda: len(running.workers()) == COUNT, SECONDS)
        seen: set[int] = set()
        async with asyncio.timeout(SECONDS):
            while len(seen) < COUNT:
                seen.add((await me(running))["pid"])
        return running


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:
        yield Start(stack, tmp_path)


@contextmanager
def stored(url: str) -> Iterator[Repository]:
    engine = open_database(url)
    yield Repository(engine)
    engine.dispose()


async def send(running: Running, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of the answer."""
    status, answer = await sent(running, method, path, body)
    return status, json.loads(answer)


async def sent(running: Running, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """On a connection of its own, so that any worker may have it."""
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        http.request(method, running.base + path, json=body) as answer,
    ):
        return answer.status, await answer.read()


async def stats(running: Running) -> Any:
    return (await send(running, "GET", "/api/stats"))[1]


async def me(running: Running) -> Any:
    """The process that answers."""
    return (await stats(running))["processes"][0]


async def test_several_workers_are_one_proxy(start: Start, url: str) -> None:
    async with FakeEngine(always(compose("Hello you."))) as engine:
        running = await start.ready(engine, url)
        await running.says("engine: vllm at")
        made = (await send(running, "POST", "/api/sessions", {"session_id": "mine"}))[1]
        assert made["api_key"].startswith("sk-polar-mine-")
        answers = await asyncio.gather(*(send(running, "POST", "/s/mine" + CHAT, BODY) for _ in range(40)))
        assert {status for status, _ in answers} == {200}
        workers = {}
        for _ in range(100):
            one = await me(running)
            workers[one["worker"]] = one
        assert workers.keys() == {1, 2, 3}
        assert sum(one["calls"] for one in workers.values()) == 40
        assert all(one["calls"] for one in workers.values())
        # Each knows what the others told a second ago.
        async with asyncio.timeout(SECONDS):
            while (summed := await stats(running))["calls"] != 40:
                pass
        assert len(summed["processes"]) == COUNT

        kept = (await send(running, "POST", "/s/mine/v1/responses", {"model": "fake", "input": "hi"}))[1]
        again = [await send(running, "GET", f"/s/mine/v1/responses/{kept['id']}") for _ in range(2 * COUNT)]
        assert [answer for _, answer in again] == [kept] * len(again)

        assert (await send(running, "POST", "/api/policy", {"version": 4}))[0] == 200
        for _ in range(2 * COUNT):
            await send(running, "POST", "/s/mine" + CHAT, BODY)
        await send(running, "POST", "/api/sessions/mine/close")
        closed = [(await send(running, "POST", "/s/mine" + CHAT, BODY))[0] for _ in range(2 * COUNT)]
        assert closed == [409] * len(closed)
    with stored(url) as repository:
        calls = [captured.call for captured in repository.calls("mine")]
        assert list(repository.verify()) == []
    assert [call.ordinal for call in calls] == list(range(40 + 1 + 2 * COUNT))
    assert {call.policy_version_min for call in calls[-2 * COUNT :]} == {4}


async def test_a_worker_that_is_killed_is_replaced_and_nobody_is_turned_away(start: Start, url: str) -> None:
    async with FakeEngine(always(compose("Hello you."))) as engine:
        running = await start.ready(engine, url)
        await running.says("engine: vllm at")
        before = running.workers()
        before[0].kill()
        answers = [await send(running, "POST", "/s/s1" + CHAT, BODY) for _ in range(30)]
        assert {status for status, _ in answers} == {200}
        said = await running.says(rf"worker (\d) \(process {before[0].pid}\) was ended by SIGKILL; another one starts")
        await until(lambda: len(running.workers()) == COUNT, SECONDS)
        async with asyncio.timeout(SECONDS):
            while (one := await me(running))["worker"] != int(said.group(1)):
                pass
        assert one["pid"] != before[0].pid
        assert len(re.findall("engine: vllm at", running.text)) == 1


async def test_open_replies_finish_when_it_is_ended(start: Start, url: str) -> None:
    held = always(compose("one two three"), faults=Faults(hold_after=1))
    async with FakeEngine(held) as engine:
        running = await start.ready(engine, url)
        workers = running.workers()
        bodies = [BODY, BODY | {"stream": True}] * 6
        asking = [
            asyncio.create_task(sent(running, "POST", f"/s/s{number}" + CHAT, body))
            for number, body in enumerate(bodies)
        ]
        await engine.until(lambda _: sum(request.path == CHAT for request in engine.requests) >= len(asking), SECONDS)
        running.process.terminate()
        await running.says("stopping: open replies may finish")
        engine.release()
        answers = await asyncio.gather(*asking)
        assert {status for status, _ in answers} == {200}
        assert [body.endswith(b"data: [DONE]\n\n") for _, body in answers] == [False, True] * 6
        assert await running.ended() == 0
        assert not any(map(alive, workers))
    with stored(url) as repository:
        sessions = [repository.calls(f"s{number}") for number in range(len(bodies))]
    statuses = [captured.call.status for calls in sessions for captured in calls]
    assert statuses == [CallStatus.COMPLETED] * len(asking)


async def test_workers_end_when_their_parent_is_killed(start: Start, url: str) -> None:
    async with FakeEngine(always(compose("Hello you."))) as engine:
        running = await start.ready(engine, url)
        workers = running.workers()
        running.process.kill()
        assert await running.ended() == -signal.SIGKILL
        await until(lambda: not any(map(alive, workers)), SECONDS)
        port = int(running.base.rpartition(":")[2])
        socket.create_server(("127.0.0.1", port)).close()


async def test_a_worker_that_dies_while_the_database_is_away_comes_back_with_it(
    start: Start, postgres: Server, tmp_path: Path
) -> None:
    del postgres
    async with FakeEngine(always(compose("Hello you."))) as engine:
        with running_server() as server:
            running = await start.ready(engine, server.fresh())
            first = running.workers()
            server.kill()
            first[0].kill()
            await running.says(rf"process {first[0].pid}\) was ended by SIGKILL")
            await running.says(r"ended with exit code \d; another one starts in 2 s")
            assert sum(map(alive, first)) == COUNT - 1
            await asyncio.to_thread(server.start)
            await until(lambda: len(running.workers()) == COUNT, SECONDS)
            async with asyncio.timeout(SECONDS):
                while (await me(running))["pid"] in [worker.pid for worker in first]:
                    pass
            assert (await send(running, "POST", "/s/s1" + CHAT, BODY))[0] == 200
            running.process.terminate()
            assert await running.ended() == 0


async def test_a_sqlite_file_takes_one(start: Start, tmp_path: Path) -> None:
    running = await start("--db", f"sqlite:///{tmp_path}/polar.db", "--workers", 2)
    assert await running.ended() == 2
    assert "error: 2 workers cannot share a SQLite file" in running.text
    assert "Traceback" not in running.text
    assert not (tmp_path / "polar.db").exists()


async def test_a_port_that_somebody_has_is_not_shared_with_him(start: Start, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        running = await start("--db", url, "--workers", 2, "--port", port)
        assert await running.ended() == 2
    assert f"error: cannot listen on 127.0.0.1:{port}" in running.text


# The supervisor alone, with workers that do nothing but end


DYING = """
import os, sys, time
from polarproxy.cli.workers import Worker, listen_together, supervise
role = supervise(listen_together("127.0.0.1", 0, 2), lambda text: print(text, flush=True))
if isinstance(role, Worker):
    {work}
sys.exit(role)
"""


def supervised(work: str) -> "subprocess.Popen[str]":
    program = DYING.format(work=work)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_one_that_dies_over_and_over_is_given_time() -> None:
    process = supervised("role.number == 1 and (print(time.monotonic(), flush=True), sys.exit(3)); time.sleep(60)")
    assert process.stdout is not None
    starts, lines = zip(*[(process.stdout.readline(), process.stdout.readline()) for _ in range(3)], strict=True)
    began = list(map(float, starts))
    assert [1 + number <= later - before for number, (before, later) in enumerate(pairwise(began))] == [True, True]
    assert [line.partition("; ")[2].strip() for line in lines] == [
        "another one starts in 1 s",
        "another one starts in 2 s",
        "another one starts in 4 s",
    ]
    assert all("worker 1 (process " in line and "ended with exit code 3" in line for line in lines)
    process.terminate()
    # The one that is due is not started any more.
    out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out.count("\n"), "stopping" in out) == (0, 1, True)


def test_one_that_cannot_work_as_it_is_set_up_ends_all() -> None:
    process = supervised("sys.exit(2) if role.number == 1 else time.sleep(60)")
    out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, "worker 1 cannot work like this; all are stopped" in out) == (2, True)


def test_one_that_worked_once_is_started_again_whatever_it_ends_with() -> None:
    process = supervised("sys.exit(3 if role.speaks else 2) if role.number == 1 else time.sleep(60)")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    assert ["exit code 3" in lines[0], "exit code 2; another one starts in 2 s" in lines[1]] == [True, True]
    process.terminate()
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0


def test_one_that_fails_to_end_in_order_is_told_by_the_exit_code() -> None:
    # In naps: a signal that comes just before a sleep begins does not end it.
    naps = "[time.sleep(0.02) for _ in range(3000)]"
    work = f"import signal; signal.signal(15, lambda *_: sys.exit(1)); os.write(1, b'up\\n'); {naps}"
    process = supervised(work)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    process.terminate()
    assert process.wait(SECONDS) == 1
    process.stdout.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_every_kind_of_address_can_be_listened_on(host: str) -> None:
    with listen(host, 0) as alone:
        assert alone.getsockname()[0] in (host, "127.0.0.1")
    for one in listen_together(host, 0, 2):
        one.close()
