"""What the crash test's engine samples, as a pure function of a serial number, so that anyone can say what is right.

Every reply has a serial of its own. Its text begins with `reply-SERIAL.`; its token ids begin with two that spell the
serial; the prompt is a function of the messages, in which a reply stands for the very tokens that were sampled. So a
client that read a reply's end knows, without asking the engine, every id and logprob that must now be in the store.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EOS = 151_645
_START = 151_644
_ROLES = {"system": 8_948, "user": 872, "assistant": 77_091}
_NEWLINE = 198
_LOW, _HIGH = 10_000, 60_000  # first ids of the two ranges that spell a serial
_RADIX = 50_000
_TEXT = re.compile(r"reply-(\d+)\.")


@dataclass(frozen=True)
class Sampled:
    """One reply. The three sequences are of one length; the last token is the stop token, whose text is not shown."""

    serial: int
    token_ids: tuple[int, ...]
    words: tuple[str, ...]
    logprobs: tuple[float, ...]

    @property
    def text(self) -> str:
        return "".join(self.words[:-1])


def sampled(serial: int) -> Sampled:
    rng = random.Random(serial)
    body = [rng.randrange(1_000, 9_000) for _ in range(rng.randrange(3, 40))]
    ids = (_LOW + serial % _RADIX, _HIGH + serial // _RADIX, *body, EOS)
    words = ("reply-", f"{serial}.", *(f" w{token_id}" for token_id in body), "<|im_end|>")
    return Sampled(serial, ids, words, tuple(-rng.expovariate(3.0) for _ in ids))


def serial_of_text(text: str) -> int | None:
    """The serial of a reply's text; None when there is none in it."""
    found = _TEXT.match(text)
    return int(found[1]) if found else None


def serial_of_ids(token_ids: Iterable[int]) -> int | None:
    """The serial of sampled ids; None when they do not begin with one."""
    first, second, *_ = (*token_ids, 0, 0)
    if _LOW <= first < _LOW + _RADIX and _HIGH <= second < _HIGH + _RADIX:
        return first - _LOW + (second - _HIGH) * _RADIX
    return None


def prompt_ids(messages: Iterable[Mapping[str, str]]) -> list[int]:
    """The prompt of a conversation: a chat template that never re-tokenises a reply."""
    ids: list[int] = []
    for message in messages:
        ids += (_START, _ROLES[message["role"]], _NEWLINE)
        serial = serial_of_text(message["content"]) if message["role"] == "assistant" else None
        if serial is None:
            ids += [1_000 + zlib.crc32(word.encode()) % 8_000 for word in message["content"].split()]
            ids.append(EOS)
        else:
            ids += sampled(serial).token_ids
        ids.append(_NEWLINE)
    return [*ids, _START, _ROLES["assistant"], _NEWLINE]
