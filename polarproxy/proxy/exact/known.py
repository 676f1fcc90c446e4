"""Recorded turns that requests may go on from: the latest ones in memory, all of them in the store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.model import FallbackReason
from polarproxy.wire.neutral.history import Fit, Turn, fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polarproxy.model import Completion, TokenIds, TurnMark
    from polarproxy.store.repository import Repository
    from polarproxy.store.turns import StoredTurn

_MAX_BYTES = 256 << 20


@dataclass(slots=True)
class KnownTurn:
    """A recorded turn with its tokens."""

    call_id: str
    choice: int
    ordinal: int
    mark: TurnMark
    delivered: bool
    prompt: TokenIds
    completion: Completion

    @property
    def size(self) -> int:
        """Bytes that it takes, nearly."""
        return len(self.prompt.raw) + len(self.completion.token_ids.raw) + 1000


@dataclass(frozen=True, slots=True)
class Match:
    """The recorded turn that a request goes on from."""

    sent: Turn
    """The turn in the request."""
    known: KnownTurn


class KnownTurns:
    """Finds turns; what is not in memory is read from the store, so that it works after a restart and among proxies."""

    def __init__(self, repository: Repository, max_bytes: int = _MAX_BYTES) -> None:
        self._repository = repository
        self._max_bytes = max_bytes
        self._bytes = 0
        self._turns: OrderedDict[tuple[str, bytes], list[KnownTurn]] = OrderedDict()

    def add(self, session_id: str, turn: KnownTurn) -> None:
        """Remembers a turn; it is stored."""
        place = session_id, turn.mark.key
        known = self._turns.setdefault(place, [])
        if all((one.call_id, one.choice) != (turn.call_id, turn.choice) for one in known):
            known.append(turn)
            self._bytes += turn.size
        self._turns.move_to_end(place)
        while self._bytes > self._max_bytes:
            _, gone = self._turns.popitem(last=False)
            self._bytes -= sum(one.size for one in gone)

    async def find(self, session_id: str, sent: Sequence[Turn]) -> Match | FallbackReason:
        """The recorded turn that goes furthest. `sent`: the turns of a request, in order; at least one.

        Raises `StoreDamaged`, and what SQLAlchemy makes of the database's errors.
        """
        latest = _best(sent[-1], self._turns.get((session_id, sent[-1].key), ()))
        if isinstance(latest, KnownTurn) and _fits_wholly(sent[-1], latest):
            return Match(sent[-1], latest)
        if latest is not None:
            # Another proxy, or this one before a restart, may have recorded one that fits better.
            sent = sent[-1:]
        stored = await asyncio.to_thread(self._repository.marked_turns, session_id, [turn.key for turn in sent])
        reason = FallbackReason.NOT_RECORDED
        for turn in reversed(sent):
            candidates: list[KnownTurn | StoredTurn] = [*self._turns.get((session_id, turn.key), ())]
            candidates += (one for one in stored if one.mark.key == turn.key)
            best = _best(turn, candidates)
            if best is not None:
                return Match(turn, best if isinstance(best, KnownTurn) else await self._read(session_id, best))
            if candidates:
                reason = FallbackReason.REASONING_EDITED
        return reason

    async def _read(self, session_id: str, turn: StoredTurn) -> KnownTurn:
        prompt, completion = await asyncio.to_thread(self._repository.turn_tokens, turn)
        place = turn.call_id, turn.choice, turn.ordinal
        known = KnownTurn(*place, turn.mark, turn.delivered, prompt, completion)
        self.add(session_id, known)
        return known


def _best(sent: Turn, candidates: Iterable[KnownTurn | StoredTurn]) -> KnownTurn | StoredTurn | None:
    """The one that came back: the best fit, then one that was delivered, then the latest, of its choices the first."""
    fitting = [(one, found) for one in candidates if (found := fit(sent, _as_turn(sent, one.mark))) is not None]
    return max(fitting, key=_rank, default=(None, None))[0]


def _rank(fitting: tuple[KnownTurn | StoredTurn, Fit]) -> tuple[Fit, bool, int, int]:
    turn, found = fitting
    return found, turn.delivered, turn.ordinal, -turn.choice


def _fits_wholly(sent: Turn, turn: KnownTurn) -> bool:
    """Whether no turn of the store can be meant rather than this one."""
    best = Fit(same_reasoning=True, same_spelling=True, same_ids=True)
    return turn.delivered and fit(sent, _as_turn(sent, turn.mark)) == best


def _as_turn(sent: Turn, mark: TurnMark) -> Turn:
    return Turn(mark.key, sent.chat_messages, mark.reasoning, mark.spelling, mark.ids)
