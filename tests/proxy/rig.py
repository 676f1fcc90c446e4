"""A proxy between a real client and the fake engine, all on loopback, recording to a database of its own."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import aiohttp

from polarproxy.cli.runner import running_proxy
from polarproxy.model import CapturedCall
from polarproxy.proxy.parts import Parts
from polarproxy.settings import Settings
from tests.database import fresh
from tests.fakes import FakeEngine, Received, Script, Turn, always, compose

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
BODY: dict[str, Any] = {"model": "fake", "messages": [USER]}
IDS: dict[str, Any] = {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}
SECONDS = 20.0
_PATIENT = aiohttp.ClientTimeout(total=SECONDS)

Headers: TypeAlias = Mapping[str, str]
Scripted: TypeAlias = Script | Callable[[Received], Turn]


@dataclass(frozen=True)
class Answer:
    """What a client was answered."""

    status: int
    headers: Headers
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The `error` object of an answer in the dialect's form."""
        return self.json["error"]

    @property
    def events(self) -> list[bytes]:
        """The events of a stream, each without its blank line."""
        return self.body.split(b"\n\n")[:-1]


async def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Waits until `condition` holds; raises `TimeoutError`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (what is waited for lies in a database, which signals nothing)
            await asyncio.sleep(0.005)


@dataclass
class Rig:
    """`base` is the proxy's URL. Requests go to session `s1` unless they say where else."""

    engine: FakeEngine
    base: str
    parts: Parts
    http: aiohttp.ClientSession

    async def send(self, method: str, url: str, data: bytes | None = None, headers: Headers | None = None) -> Answer:
        # The client warns of large bodies that are sent in one piece.
        body = None if data is None else BytesIO(data) if len(data) >= 1 << 20 else data
        async with self.http.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
            return Answer(response.status, response.headers, await response.read())

    async def ask(
        self, body: bytes | Mapping[str, Any] = BODY, prefix: str = "/s/s1", headers: Headers | None = None
    ) -> Answer:
        """A chat request through the proxy."""
        return await self.send("POST", self.base + prefix + CHAT, _encoded(body), _JSON | dict(headers or {}))

    async def ask_engine(self, body: bytes | Mapping[str, Any] = BODY, headers: Headers | None = None) -> Answer:
        """The same request straight to the engine."""
        return await self.send("POST", self.engine.url + CHAT, _encoded(body), _JSON | dict(headers or {}))

    @asynccontextmanager
    async def asking(
        self, body: Mapping[str, Any] = BODY, prefix: str = "/s/s1", headers: Headers | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A chat request whose answer is read piece by piece."""
        url, data = self.base + prefix + CHAT, _encoded(body)
        async with self.http.post(url, data=data, headers=_JSON | dict(headers or {})) as response:
            yield response

    async def control(self, method: str, path: str, body: Any = None, headers: Headers | None = None) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return await self.send(method, self.base + path, data, headers)

    def calls(self, session: str = "s1") -> list[CapturedCall]:
        """What is stored of a session right now."""
        return self.parts.repository.calls(session)

    async def recorded(self, count: int = 1, session: str = "s1") -> list[CapturedCall]:
        """The calls of a session, once there are `count`; some are stored after their client is gone."""
        await until(lambda: len(self.calls(session)) >= count)
        found = self.calls(session)
        assert len(found) == count
        return found

    async def call(self, session: str = "s1") -> CapturedCall:
        """The one call of a session."""
        return (await self.recorded(1, session))[0]

    async def delivered(self, session: str = "s1") -> CapturedCall:
        """The one call of a session, once it is known to be delivered."""
        await until(lambda: any(captured.delivered for captured in self.calls(session)))
        return await self.call(session)

    @property
    def received(self) -> list[Received]:
        """The chat requests that the engine received, without those by which the proxy gets to know it."""
        return [
            request for request in self.engine.requests if request.path.startswith(CHAT + "?") or request.path == CHAT
        ]


_JSON = {"Content-Type": "application/json"}


def _encoded(body: bytes | Mapping[str, Any]) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@asynccontextmanager
async def rig(folder: Path, script: Scripted | None = None, **settings: Any) -> AsyncIterator[Rig]:
    """`settings` are the proxy's; the engine is the fake one unless `upstream` names another."""
    # A logprob that temperature moves by more than a probe's tolerance.
    probed = always(compose("1", logprob=lambda _: -0.5))
    async with FakeEngine(script or always(compose("Hello you.")), text_script=probed) as engine:
        known: dict[str, Any] = {"upstream": engine.url, "port": 0, "db": f"sqlite:///{folder}/polar.db"}
        if not (folder / "polar.db").exists():
            fresh(folder / "polar.db")
        async with (
            running_proxy(Settings(**(known | settings))) as (base, parts),
            aiohttp.ClientSession(timeout=_PATIENT) as http,
        ):
            yield Rig(engine, base, parts, http)


class Starter(Protocol):
    """Gives a rig that ends with the test."""

    async def __call__(self, script: Scripted | None = None, **settings: Any) -> Rig: ...
