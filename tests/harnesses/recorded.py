"""The recorded requests of real coding agents, with the prose replaced; `tests.harnesses.record` makes them anew."""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

FOLDER = Path(__file__).parent.parent / "fixtures" / "harnesses"
NAMES = ("claude-code", "codex", "codex-socket", "qwen-code", "gemini-cli", "opencode", "mini-swe-agent")
_SUFFIX = ".jsonl.zst"


@dataclass(frozen=True)
class Recorded:
    """One request, as the agent sent it but for what was replaced."""

    harness: str
    version: str
    scenario: str
    sequence: int
    """From 0, by arrival, within the scenario."""
    method: str
    """`SOCKET`: a message on a WebSocket, with path and headers of the request that opened it."""
    path: str
    """With the query string."""
    headers: list[list[str]]
    body: Any
    """JSON. None: there was none."""
    reply: Any = None
    """Of a message on a socket: id and output of our response, which the next message goes on from. None: no message."""

    def __str__(self) -> str:
        return f"{self.harness}/{self.scenario}/{self.sequence}"

    @property
    def route(self) -> str:
        return self.path.partition("?")[0]

    @property
    def raw(self) -> bytes:
        """The body as bytes."""
        return b"" if self.body is None else json.dumps(self.body, ensure_ascii=False).encode()

    def header(self, name: str) -> str | None:
        """None: it was not sent."""
        return next((value for known, value in self.headers if known.lower() == name), None)


@cache
def recorded(harness: str) -> tuple[Recorded, ...]:
    """All requests of an agent, in order."""
    lines = zstandard.ZstdDecompressor().decompress((FOLDER / f"{harness}{_SUFFIX}").read_bytes()).splitlines()
    return tuple(Recorded(**json.loads(line)) for line in lines)


def everything() -> list[Recorded]:
    return [request for name in NAMES for request in recorded(name)]


def store(harness: str, requests: list[Recorded]) -> None:
    """Writes all requests of an agent."""
    lines = (json.dumps(asdict(request), ensure_ascii=False, separators=(",", ":")) + "\n" for request in requests)
    packed = zstandard.ZstdCompressor(level=19).compress("".join(lines).encode())
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{harness}{_SUFFIX}").write_bytes(packed)
