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
    tokens: TokenIds


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
            if prompt.startswith(tip.tokens):
                shared = len(tip.tokens)
                return Base(tip.call_id, tip.choice, shared) if shared >= _MIN_SHARED else None
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

    def add(self, call: Call) -> None:
        """Remembers the sequences of a call that was stored."""
        prompt = call.prompt_token_ids
        if prompt is None:
            return
        tips = self._sessions.setdefault(call.session_id, [])
        self._sessions.move_to_end(call.session_id)
        for tip in [tip for tip in tips if prompt.startswith(tip.tokens)]:
            tips.remove(tip)
            self._bytes -= len(tip.tokens.raw)
        for completion in call.completions[:1] or ():
            self._push(tips, _Tip(call.call_id, completion.index, prompt + completion.token_ids))
        if not call.completions:
            self._push(tips, _Tip(call.call_id, PROMPT, prompt))
        self._remember_head(_Tip(call.call_id, PROMPT, prompt))
        self._shrink()

    def _push(self, tips: list[_Tip], tip: _Tip) -> None:
        tips.append(tip)
        self._bytes += len(tip.tokens.raw)
        if len(tips) > _TIPS_PER_SESSION:
            self._bytes -= len(tips.pop(0).tokens.raw)

    def _remember_head(self, tip: _Tip) -> None:
        key = tip.tokens.raw[: _HEAD * TOKEN_BYTES]
        if key in self._heads:
            self._heads.move_to_end(key)
            return
        self._heads[key] = tip
        self._bytes += len(tip.tokens.raw)

    def _shrink(self) -> None:
        while self._bytes > self._max_bytes and (len(self._sessions) > 1 or self._heads):
            if self._heads and len(self._heads) >= len(self._sessions):
                self._bytes -= len(self._heads.popitem(last=False)[1].tokens.raw)
            else:
                self._bytes -= sum(len(tip.tokens.raw) for tip in self._sessions.popitem(last=False)[1])
