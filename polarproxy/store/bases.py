"""Finding the base of a prompt: a recent sequence that it repeats the beginning of, so that only the rest is stored.

Bases are found by comparing the tokens themselves, in memory, against the open ends ("tips") of the session and against
recent prompts of other sessions that begin alike. Which base is taken changes the size of the store, never its meaning.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import TOKEN_BYTES, Call, TokenIds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROMPT = -1
"""The `choice` of a base that is a call's prompt alone."""

_MIN_SHARED = 32
_HEAD = 64
_TIPS_PER_SESSION = 16
_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Base:
    """The first `length` tokens of a call's prompt (`choice` −1) or of its prompt and one completion."""

    call_id: str
    choice: int
    length: int


@dataclass(frozen=True, slots=True)
class _Tip:
    call_id: str
    choice: int
    prompt: TokenIds
    sampled: TokenIds

    @property
    def tokens(self) -> TokenIds:
        return self.prompt + self.sampled

    def __len__(self) -> int:
        return len(self.prompt) + len(self.sampled)

    def is_all_of(self, base: Base | None) -> bool:
        """Whether a prompt on this base has been seen to begin with all of it."""
        return base is not None and (base.call_id, base.choice, base.length) == (self.call_id, self.choice, len(self))

    def begins(self, other: TokenIds) -> bool:
        """Whether the other begins with all of it. Nothing is joined for it: most calls ask this and no more."""
        return other.startswith(self.prompt) and other.raw.startswith(self.sampled.raw, len(self.prompt.raw))


def shared_length(left: TokenIds, right: TokenIds) -> int:
    """How many tokens both begin with."""
    size = min(len(left), len(right))
    if not size:
        return 0
    differ = left.array[:size] != right.array[:size]
    place = int(np.argmax(differ))
    return place if differ[place] else size


class BaseIndex:
    """Recent sequences, by session and by how they begin; bounded in memory, and right also when it is empty."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._sessions: OrderedDict[str, list[_Tip]] = OrderedDict()
        self._heads: OrderedDict[bytes, _Tip] = OrderedDict()

    def knows(self, session_id: str) -> bool:
        """Whether any sequence of this session is at hand."""
        return session_id in self._sessions

    def find(self, session_id: str, prompt: TokenIds) -> Base | None:
        """The base that shares most; None when none shares enough to pay."""
        tips = self._sessions.get(session_id, ())
        for tip in reversed(tips):
            if tip.begins(prompt):
                return Base(tip.call_id, tip.choice, len(tip)) if len(tip) >= _MIN_SHARED else None
        best: Base | None = None
        for tip in self._candidates(tips, prompt):
            shared = shared_length(tip.tokens, prompt)
            if shared >= _MIN_SHARED and (best is None or shared > best.length):
                best = Base(tip.call_id, tip.choice, shared)
        return best

    def _candidates(self, tips: Iterable[_Tip], prompt: TokenIds) -> Iterator[_Tip]:
        yield from tips
        head = self._heads.get(prompt.raw[: _HEAD * TOKEN_BYTES])
        if head is not None:
            yield head

    def add(self, call: Call, base: Base | None = None) -> None:
        """Remembers the sequences of a call that was stored, on this base if it is known."""
        prompt = call.prompt_token_ids
        if prompt is None:
            return
        tips = self._sessions.setdefault(call.session_id, [])
        self._sessions.move_to_end(call.session_id)
        for place in range(len(tips) - 1, -1, -1):
            if tips[place].is_all_of(base) or tips[place].begins(prompt):
                self._bytes -= _size(tips.pop(place))
        if call.completions:
            first = call.completions[0]
            self._push(tips, _Tip(call.call_id, first.index, prompt, first.token_ids))
        else:
            self._push(tips, _Tip(call.call_id, PROMPT, prompt, TokenIds()))
        self._remember_head(call.call_id, prompt)
        self._shrink()

    def _push(self, tips: list[_Tip], tip: _Tip) -> None:
        tips.append(tip)
        self._bytes += _size(tip)
        if len(tips) > _TIPS_PER_SESSION:
            self._bytes -= _size(tips.pop(0))

    def _remember_head(self, call_id: str, prompt: TokenIds) -> None:
        key = prompt.raw[: _HEAD * TOKEN_BYTES]
        if key in self._heads:
            self._heads.move_to_end(key)
            return
        self._heads[key] = _Tip(call_id, PROMPT, prompt, TokenIds())
        self._bytes += len(prompt.raw)

    def _shrink(self) -> None:
        while self._bytes > self._max_bytes and (len(self._sessions) > 1 or self._heads):
            if self._heads and len(self._heads) >= len(self._sessions):
                self._bytes -= _size(self._heads.popitem(last=False)[1])
            else:
                self._bytes -= sum(map(_size, self._sessions.popitem(last=False)[1]))


def _size(tip: _Tip) -> int:
    return len(tip.prompt.raw) + len(tip.sampled.raw)
