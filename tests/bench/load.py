"""Loads: so many clients, each playing whole conversations one after the other, for so long."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.canned import SIZES, RequestTemplate, Size, request_template
from tests.bench.client import Connection, Reply, request_head

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.process import Bystanders
    from tests.bench.targets import Running

# What is left running when the last reply is in (a checkpoint, a log line) is still that load's cost.
_SETTLE_SECONDS = 0.05
# Sessions are made before the clock starts; so many requests per second are provided for at most.
_MOST_REQUESTS_PER_SECOND = 1_500


@dataclass(frozen=True)
class Load:
    """`pace_us` None: unstreamed. No request is begun after `seconds`; those under way are finished."""

    name: str
    size: Size
    concurrency: int
    seconds: float
    pace_us: int | None = None
    # Clients start so far apart. For paced streams no divisor of the pace, so that neither their starts nor their events
    # come in one burst.
    start_gap_us: int = 0
    ask: bool = False

    @property
    def streamed(self) -> bool:
        return self.pace_us is not None


def loads(scale: float, *, ask: bool) -> tuple[Load, ...]:
    """All loads that are measured in rounds, each about `scale` seconds long."""
    return (
        Load("tiny c=1", SIZES["tiny"], 1, 0.5 * scale, ask=ask),
        Load("8k c=1", SIZES["8k"], 1, 0.8 * scale, ask=ask),
        Load("8k c=32", SIZES["8k"], 32, 1.6 * scale, ask=ask),
        Load("100k c=1", SIZES["100k"], 1, 0.8 * scale, ask=ask),
        # Long, because it is what a whole machine does between two events that tells: few streams would be a gamble.
        Load("stream 66 ev, 5 ms, c=1", SIZES["s64"], 1, 3.0 * scale, pace_us=5_000, ask=ask),
        Load("stream 66 ev, 20 ms, c=32", SIZES["s64"], 32, 1.5 * scale, pace_us=20_000, start_gap_us=13_125, ask=ask),
        Load("stream 514 ev, unpaced, c=8", SIZES["s512"], 8, 1.2 * scale, pace_us=0, ask=ask),
    )


@dataclass(frozen=True)
class Measured:
    """One load on one target in one round. The µs are medians over its requests or events."""

    requests: int
    cpu_us: float | None  # per request; None for the bare engine
    latency_us: float
    rate: float  # requests per second
    noise: float  # share of the two cores that other processes had meanwhile
    # Of streams only, else None: the first sampled token after the request, one event's transit, events per second.
    first_token_us: float | None
    event_us: float | None
    events_per_second: float | None


class Requests:
    """The requests of one load, cut at the session's number; built once, before the clock starts."""

    def __init__(self, load: Load) -> None:
        self._templates: list[list[RequestTemplate]] = [
            [
                request_template(load.size, variant, turn, pace_us=load.pace_us, ask=load.ask)
                for turn in range(load.size.turns)
            ]
            for variant in range(load.size.variants)
        ]

    def session(self, port: int, api_key: str, number: int) -> Iterator[bytes]:
        """The requests of one session, in order; sessions go through the variants in turn."""
        for template in self._templates[number % len(self._templates)]:
            body = template.body(number)
            yield request_head(port, api_key, len(body)) + body


class Client:
    """Runs loads against one target. Session numbers go up over the whole run, so that no request repeats."""

    def __init__(self, target: Running, bystanders: Bystanders) -> None:
        self._target = target
        self._bystanders = bystanders
        self._numbers = itertools.count(1)
        self._tokens = 0

    def require_recorded(self) -> None:
        """Raises RuntimeError when a target that records did not store each token of the replies it delivered."""
        stored = self._target.recorded_tokens() if self._target.recorded_tokens else self._tokens
        if stored != self._tokens:
            raise RuntimeError(f"{self._target.name} delivered {self._tokens} sampled tokens and stored {stored}")

    async def measure(self, load: Load, requests: Requests) -> Measured:
        """Raises RuntimeError at the first reply that is not complete."""
        wanted = int(load.seconds * _MOST_REQUESTS_PER_SECOND / load.size.turns) + load.concurrency
        keys = iter(self._target.api_keys(min(wanted, 100 * load.concurrency)))
        child = self._target.child
        before, others, started = child.cpu_ns() if child else 0, self._bystanders.cpu_ns(), time.monotonic()
        replies = await self.play(load, requests, keys)
        wall = time.monotonic() - started
        noise = (self._bystanders.cpu_ns() - others) / 2e9 / wall
        await asyncio.sleep(_SETTLE_SECONDS)
        cpu_us = (child.cpu_ns() - before) / 1e3 / len(replies) if child else None
        return _measured(load, replies, wall, noise, cpu_us)

    async def play(self, load: Load, requests: Requests, keys: Iterator[str]) -> list[Reply]:
        deadline = time.monotonic() + load.seconds
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._worker(load, requests, keys, deadline, rank))
                for rank in range(load.concurrency)
            ]
        return [reply for task in tasks for reply in task.result()]

    async def _worker(
        self, load: Load, requests: Requests, keys: Iterator[str], deadline: float, rank: int
    ) -> list[Reply]:
        connection = await Connection.open(self._target.port)
        await asyncio.sleep(load.start_gap_us / 1e6 * rank)
        replies: list[Reply] = []
        try:
            for api_key in keys:
                for request in requests.session(self._target.port, api_key, next(self._numbers)):
                    if replies and time.monotonic() > deadline:
                        return replies
                    reply = await connection.exchange(request, streamed=load.streamed)
                    if fault := reply.fault(streamed=load.streamed):
                        raise RuntimeError(f"{self._target.name}, {load.name}: {fault}")
                    replies.append(reply)
                    self._tokens += load.size.completion_tokens
            return replies
        finally:
            connection.close()


def _measured(load: Load, replies: list[Reply], wall: float, noise: float, cpu_us: float | None) -> Measured:
    transits = [transit for reply in replies for transit in reply.transits]
    return Measured(
        requests=len(replies),
        cpu_us=cpu_us,
        latency_us=statistics.median(reply.ended - reply.sent for reply in replies) / 1e3,
        rate=len(replies) / wall,
        noise=noise,
        first_token_us=statistics.median(r.arrivals[0] - r.sent for r in replies) / 1e3 if load.streamed else None,
        event_us=statistics.median(transits) / 1e3 if load.streamed else None,
        events_per_second=len(transits) / wall if load.streamed else None,
    )
