"""`polarproxy upstreams`, against a proxy that runs."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.command import Command, Done
from tests.fakes import FakeEngine, always, compose
from tests.proxy.rig import Rig, rig
from tests.redirects import redirecting

ADMIN = "open sesame"


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(always(compose("hi"))) as made:
        yield made


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path, admin_key=ADMIN) as one:
        yield one


async def ran(polarproxy: Command, one: Rig, *arguments: object, key: str = ADMIN) -> Done:
    options = ("--proxy", one.base, "--admin-key", key)
    return await asyncio.to_thread(polarproxy, "upstreams", *arguments, *options)


async def test_from_list_to_remove(polarproxy: Command, proxy: Rig, engine: FakeEngine) -> None:
    done = await ran(polarproxy, proxy, "list")
    assert (done.code, proxy.engine.url in done.out, "well" in done.out) == (0, True, True)
    added = (await ran(polarproxy, proxy, "add", engine.url, "--json")).json
    assert [one["url"] for one in added["upstreams"]] == [engine.url]
    assert (await ran(polarproxy, proxy, "drain", added["upstreams"][0]["id"])).code == 0
    listed = (await ran(polarproxy, proxy, "list", "--json")).json
    assert [one["state"] for one in listed["upstreams"]] == ["active", "draining"]
    done = await ran(polarproxy, proxy, "remove", engine.url + "/")
    assert (done.code, engine.url in done.out) == (0, False)


async def test_what_goes_wrong_is_said_in_a_sentence(polarproxy: Command, proxy: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for code, why, arguments in (
        (1, f"the engine at {dead} does not answer", ("add", dead)),
        (2, "must be an http:// or https:// URL", ("add", "gpu-1")),
        (2, "there is no upstream u7", ("drain", "u7")),
        (1, "is the last upstream", ("remove", proxy.engine.url, "--force")),
        (1, "it was not added (--force adds it all the same)", ("add", "http://127.0.0.1:9")),
    ):
        done = await ran(polarproxy, proxy, *arguments)
        assert (done.code, why in done.err) == (code, True), done.err
    done = await ran(polarproxy, proxy, "list", key="guessed")
    assert (done.code, "give --admin-key" in done.err) == (2, True)
    done = polarproxy("upstreams", "list", "--proxy", dead)
    assert (done.code, f"no proxy answers at {dead}" in done.err) == (1, True)
    assert polarproxy("upstreams", "list", "--proxy", "localhost:1").code == 2
    done = await asyncio.to_thread(polarproxy, "upstreams", "list", "--proxy", proxy.engine.url)
    assert (done.code, "not polarproxy's" in done.err) == (2, True)


@pytest.mark.parametrize(
    "flags", [("--proxy", "http://a:xx"), ("--proxy", "http://127.0.0.1:1/ x"), ("--admin-key", "a\nb")]
)
def test_what_no_request_can_hold_is_refused_before(polarproxy: Command, flags: tuple[str, str]) -> None:
    done = polarproxy("upstreams", "list", *flags)
    assert (done.code, "must be" in done.err) == (2, True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_goes_nowhere_but_to_the_proxy_that_was_named(polarproxy: Command, status: int) -> None:
    with redirecting(status) as there:
        options = ("--proxy", there.url, "--admin-key", ADMIN)
        done = polarproxy("upstreams", "list", *options)
        added = polarproxy("upstreams", "add", "http://127.0.0.1:9", *options)
    assert (done.code, added.code) == (1, 1)
    assert f"answers {status}, go to /elsewhere" in done.err.replace("\n", " ")
    assert (len(there.asked), there.followed) == (2, False)
