"""The sessions that `tests.bench.merge` works on, and the way of grouping that it compares with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polarproxy.model import (
    Call,
    CallStatus,
    CapturedCall,
    Completion,
    Dialect,
    FinishReason,
    Logprobs,
    TokenIds,
    TokenSource,
)
from tests.trajectory.build import SAMPLING, WHEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Ids = NDArray[np.int32]
VOCABULARY = 150_000


@dataclass(frozen=True)
class Session:
    """Calls as the store gives them, and their prompts as Python lists, which is how JSON gives them."""

    calls: list[CapturedCall]
    prompts: list[list[int]]

    @property
    def size(self) -> int:
        """Bytes of all prompts and completions as int32."""
        return sum(
            len((one.call.prompt_token_ids or TokenIds()).raw) + len(one.call.completions[0].token_ids.raw)
            for one in self.calls
        )


def asked_again(count: int) -> Session:
    """A harness that asks the same thing again and again, and is cut at the same limit each time."""
    prompt, calls = np.arange(500, dtype=np.int32), []
    for ordinal in range(count):
        made = _call(ordinal, prompt, np.asarray([7, ordinal], np.int32))
        cut = replace(made.call.completions[0], finish_reason=FinishReason.LENGTH)
        calls.append(replace(made, call=replace(made.call, completions=(cut,))))
    return Session(calls, [])


def _call(ordinal: int, prompt: Ids, sampled: Ids) -> CapturedCall:
    logprobs = Logprobs(np.full(len(sampled), -0.5, "<f4").tobytes())
    completion = Completion(0, TokenIds(sampled.tobytes()), logprobs, FinishReason.STOP)
    call = Call(
        call_id=f"c{ordinal}",
        session_id="s",
        ordinal=ordinal,
        arrived_at=WHEN,
        dialect=Dialect.CHAT,
        path="/v1/chat/completions",
        streamed=True,
        engine="vllm",
        status=CallStatus.COMPLETED,
        http_status=200,
        error=None,
        requested_model="m",
        served_model="m",
        prompt_token_ids=TokenIds(prompt.tobytes()),
        completions=(completion,),
        token_source=TokenSource.ENGINE,
        usage=None,
        sampling=SAMPLING,
    )
    return CapturedCall(call, delivered=True)


@dataclass(frozen=True)
class Sizes:
    """Tokens of a conversation."""

    first: int
    sampled: int
    between: int


class Source:
    """Random tokens; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def ids(self, count: int) -> Ids:
        return self._rng.integers(0, VOCABULARY, count, dtype=np.int32)

    def turns(
        self, sizes: Sizes, count: int, head: Ids | None = None, *, drifting: bool = False
    ) -> Iterator[tuple[Ids, Ids]]:
        """Prompt and sampled tokens of each turn. `drifting`: the second token of each reply comes back as another."""
        context = self.ids(sizes.first) if head is None else np.concatenate([head, self.ids(sizes.first)])
        for _ in range(count):
            sampled = self.ids(sizes.sampled)
            yield context, sampled
            told = sampled.copy()
            told[1] += drifting
            context = np.concatenate([context, told, self.ids(sizes.between)])


def _session(turns: Sequence[tuple[Ids, Ids]]) -> Session:
    calls = [_call(ordinal, prompt, sampled) for ordinal, (prompt, sampled) in enumerate(turns)]
    return Session(calls, [prompt.tolist() for prompt, _ in turns])


def long(*, drifting: bool = False) -> Session:
    """50 turns that grow to 55,000 tokens."""
    return _session(list(Source(1).turns(Sizes(6_000, 300, 700), 50, drifting=drifting)))


def with_nonces() -> Session:
    """The same, with three numbers near the beginning that change from turn to turn: every prompt tells the last one again,
    and all of those before it."""
    turns = []
    for number, (prompt, sampled) in enumerate(Source(1).turns(Sizes(6_000, 300, 700), 50)):
        changed = prompt.copy()
        changed[[100, 200, 3_000]] = number
        turns.append((changed, sampled))
    return _session(turns)


def agents(count: int = 33, turns: int = 30) -> Session:
    """Agents that share a head of 4,000 tokens and take turns, up to 22,000 tokens each."""
    source = Source(2)
    head = source.ids(4_000)
    conversations = [list(source.turns(Sizes(500, 150, 450), turns, head)) for _ in range(count)]
    return _session([conversation[turn] for turn in range(turns) for conversation in conversations])


def small(count: int) -> list[Session]:
    """Sessions of 10 turns up to 2,000 tokens."""
    return [_session(list(Source(3 + number).turns(Sizes(500, 50, 100), 10))) for number in range(count)]


def group_by_lists(prompts: Sequence[list[int]]) -> list[int]:
    """For each call the chain that it joins: the one whose last prompt is the longest that its own begins with."""
    tips: list[list[int]] = []
    chosen: list[int] = []
    for prompt in prompts:
        best = -1
        for chain, tip in enumerate(tips):
            if len(tip) <= len(prompt) and prompt[: len(tip)] == tip and (best < 0 or len(tip) > len(tips[best])):
                best = chain
        if best < 0:
            best = len(tips)
            tips.append(prompt)
        else:
            tips[best] = prompt
        chosen.append(best)
    return chosen
