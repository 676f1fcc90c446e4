"""How much a target grows per open stream."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.canned import SIZES, conversation
from tests.bench.load import Client, Load, Requests
from tests.bench.reply import streamed_reply

if TYPE_CHECKING:
    from tests.bench.process import Bystanders
    from tests.bench.targets import Running

STREAMS = 200
_PACE_US = 50_000
_SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Growth:
    """Resident bytes of the target: before the streams, and at most while they were open."""

    before: int
    most: int
    stream_bytes: int

    @property
    def per_stream(self) -> float:
        return (self.most - self.before) / STREAMS


def stream_bytes() -> int:
    """What the engine sends for one stream, without HTTP framing."""
    reply = streamed_reply(conversation(SIZES["s64"], 0)[0])
    return sum(map(len, reply.events(b"0" * 16, 0)))


async def measure_growth(target: Running, bystanders: Bystanders) -> Growth:
    """Opens 200 slow streams at once on a target that has just been started and has served a few quick ones."""
    assert target.child, "the bare engine has no growth to measure"
    client = Client(target, bystanders)
    warm = Load("warm-up", SIZES["s64"], 8, 0.2, pace_us=0)
    await client.play(warm, Requests(warm), itertools.islice(target.api_keys(64), 64))
    slow = Load("open streams", SIZES["s64"], STREAMS, 0.0, pace_us=_PACE_US, start_gap_us=4_300)
    requests = Requests(slow)
    keys = itertools.islice(target.api_keys(STREAMS), STREAMS)
    before = most = target.child.rss()
    playing = asyncio.create_task(client.play(slow, requests, keys))
    while not playing.done():
        await asyncio.sleep(_SAMPLE_SECONDS)
        most = max(most, target.child.rss())
    await playing
    return Growth(before, most, stream_bytes())
