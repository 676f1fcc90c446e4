"""Canned conversations: the token ids, texts and requests that load client and engine agree on.

A *conversation* is a system message, a user message and then alternating replies and tool-like user messages; the
prompt of turn t+1 is exactly prompt + completion of turn t plus some interstitial tokens, as with a well-behaved
chat template. Tokens are drawn from a Zipf-like vocabulary whose entries are short words, so that ids compress and
the messages are about as long as real text of that many tokens. Everything is seeded: both processes build the same.

Requests differ like this: each size has some variants (conversations) of a few turns each, and every session that
replays one carries its own number, written into the first user message, into the `user` field and (as two token
ids) into the prompt. So no two requests of a run are equal, no two sessions share a prompt, and the turns of one
session extend each other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import msgspec

MODEL = "canned-8b"
EOS = 151_645
# Ids from here on spell a session's number, see `session_ids`.
SESSION_ID_BASE = 100_000
SESSION_PLACEHOLDER = "session-000000"
# Where the two ids of the session stand in every prompt, and what stands there before they are known.
SESSION_AT = 5
SESSION_SLOT = (999_998, 999_999)
INTERSTITIAL_TOKENS = 100


@dataclass(frozen=True)
class Size:
    """One shape of conversation. `prompt_tokens` is the mean over the turns; streams send one event per token."""

    name: str
    prompt_tokens: int
    completion_tokens: int
    variants: int
    turns: int
    interstitial_tokens: int = INTERSTITIAL_TOKENS

    @property
    def first_prompt_tokens(self) -> int:
        growth = self.completion_tokens + self.interstitial_tokens
        return self.prompt_tokens - growth * (self.turns - 1) // 2


SIZES = {
    size.name: size
    for size in (
        Size("tiny", 64, 16, variants=24, turns=4, interstitial_tokens=8),
        Size("8k", 8_000, 500, variants=12, turns=4),
        Size("100k", 100_000, 500, variants=2, turns=3),
        Size("s64", 8_000, 64, variants=12, turns=4),
        Size("s512", 8_000, 512, variants=12, turns=4),
    )
}


@dataclass(frozen=True)
class Turn:
    """One call. `messages` are what the client sends; the session's number is still `SESSION_PLACEHOLDER` in both."""

    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    completion_words: list[str]
    logprobs: list[float]
    messages: list[dict[str, str]]


class _Vocabulary:
    def __init__(self, rng: random.Random) -> None:
        syllables = [a + b for a in "bcdfglmnprst" for b in "aeiou"]
        self.words = [" " + "".join(rng.choices(syllables, k=rng.choice((1, 1, 2, 2, 3)))) for _ in range(4_000)]
        self.words[:8] = [" the", ",", ".", "\n", " of", ' "', '"', "\n\n"]
        self.ids = rng.sample(range(1_000, SESSION_ID_BASE), len(self.words))
        self.cumulative = list(accumulate(1 / (rank + 3) for rank in range(len(self.words))))

    def draw(self, rng: random.Random, count: int) -> tuple[list[int], list[str]]:
        picked = rng.choices(range(len(self.words)), cum_weights=self.cumulative, k=count)
        return [self.ids[i] for i in picked], [self.words[i] for i in picked]


@cache
def _vocabulary() -> _Vocabulary:
    return _Vocabulary(random.Random(7))


@cache
def conversation(size: Size, variant: int) -> tuple[Turn, ...]:
    """The turns of one conversation, in order."""
    rng = random.Random(f"{size.name}/{variant}")
    vocabulary = _vocabulary()
    prompt_ids, words = vocabulary.draw(rng, size.first_prompt_tokens)
    prompt_ids[SESSION_AT : SESSION_AT + 2] = SESSION_SLOT
    cut = len(words) * 7 // 10
    messages = [
        {"role": "system", "content": "".join(words[:cut])},
        {"role": "user", "content": f"Work in /tmp/{SESSION_PLACEHOLDER}." + "".join(words[cut:])},
    ]
    turns = []
    for _ in range(size.turns):
        completion_ids, completion_words = vocabulary.draw(rng, size.completion_tokens)
        completion_ids[-1], completion_words[-1] = EOS, "<|im_end|>"
        logprobs = [-rng.expovariate(4.0) - 1e-6 for _ in completion_ids]
        turns.append(Turn(list(prompt_ids), completion_ids, completion_words, logprobs, list(messages)))
        glue_ids, glue_words = vocabulary.draw(rng, size.interstitial_tokens)
        prompt_ids += completion_ids + glue_ids
        messages += [
            {"role": "assistant", "content": "".join(completion_words[:-1])},
            {"role": "user", "content": "".join(glue_words)},
        ]
    return tuple(turns)


def session_ids(session: int) -> tuple[int, int]:
    """The two token ids that stand for a session's number; each has six digits."""
    return SESSION_ID_BASE + session // 10_000, SESSION_ID_BASE + session % 10_000


_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} in the workspace. Use absolute paths; the output is cut after 30000 characters.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The absolute path to work on."},
                    "text": {"type": "string", "description": "What to write or look for."},
                },
                "required": ["path"],
            },
        },
    }
    for name in ("read_file", "write_file", "search", "run_command")
]


@dataclass(frozen=True)
class RequestTemplate:
    """The body of one turn's request, cut where the session's number goes."""

    pieces: tuple[bytes, ...]

    def body(self, session: int) -> bytes:
        return f"{session:06d}".encode().join(self.pieces)


def request_template(
    size: Size, variant: int, turn: int, *, pace_us: int | None, ask: bool, tell: bool = True
) -> RequestTemplate:
    """`pace_us` None asks for an unstreamed reply, else for one event every so many µs (0: as fast as possible).

    `ask` adds what a client that wants token ids and logprobs for itself would send. Without it the request is what
    an ordinary harness sends, and a recording proxy has to inject those fields and to cut them out of the reply. `tell`
    says in `user` which turn it is, which the canned engine must know; a harness sends the same with every call.
    """
    number = SESSION_PLACEHOLDER.removeprefix("session-")
    body: dict[str, object] = {
        "model": MODEL,
        "messages": conversation(size, variant)[turn].messages,
        "tools": _TOOLS,
        "max_tokens": size.completion_tokens,
        "temperature": 1.0,
    }
    if ask:
        body |= {"logprobs": True, "top_logprobs": 0, "return_token_ids": True}
    if pace_us is not None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body["user"] = f"bench:{size.name}:{variant}:{turn if tell else 0}:{number}:{pace_us or 0}"
    encoded = msgspec.json.encode(body)
    return RequestTemplate(tuple(encoded.split(number.encode())))
