"""Places in sessions for one of several proxies: requests that arrive together ask the database together."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from polarproxy.errors import SessionClosed, StoreUnavailable
from polarproxy.model import PromptMode, SessionStatus
from polarproxy.store.database import reason
from polarproxy.store.heads import Heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

_KEPT = 65_536


@dataclass(frozen=True, slots=True)
class _Answer:
    ordinal: int
    status: SessionStatus
    prompts: PromptMode | None = None


_Answered = asyncio.Future["_Answer | StoreUnavailable"]


@dataclass(frozen=True, slots=True)
class _Asked:
    session_id: str | None
    """None: only the policy version is asked for."""
    answered: _Answered


def session_closed(session_id: str, status: SessionStatus) -> SessionClosed:
    """The refusal of a call in a session that ended."""
    return SessionClosed(f"session {session_id} is closed ({status}); make a new one for more calls")


class SharedArrivals:
    """`Arrivals` over counters in PostgreSQL. One question is under way at a time; who comes meanwhile is in the next."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        self._heads = Heads(engine)
        self._timeout = timeout
        self._waiting: list[_Asked] = []
        self._asking: asyncio.Task[None] | None = None
        self._prompts: OrderedDict[str, PromptMode] = OrderedDict()
        """Of those latest sessions that say where their prompts come from."""
        self.policy_version = 0

    async def arrive(self, session_id: str) -> int:
        """Asks the database; a place that is not used stays free."""
        answer = await self._ask(session_id)
        if answer.prompts is not None:
            self._prompts[session_id] = answer.prompts
            if len(self._prompts) > _KEPT:
                self._prompts.popitem(last=False)
        if answer.status is not SessionStatus.OPEN:
            raise session_closed(session_id, answer.status)
        return answer.ordinal

    async def catch_up(self) -> None:
        """Asks the database. When it cannot answer, the latest known version stands, and storing the call will tell."""
        with suppress(StoreUnavailable):
            await self._ask(None)

    def leave(self, session_id: str) -> None:
        """Nothing is held for a call."""

    def prompts(self, session_id: str) -> PromptMode | None:
        """As the database answered when the call arrived."""
        return self._prompts.get(session_id)

    def made(self, session_id: str, prompts: PromptMode | None = None) -> None:
        """The database knows."""

    def closed(self, session_id: str, status: SessionStatus) -> None:
        """The database knows."""

    async def _ask(self, session_id: str | None) -> _Answer:
        answered: _Answered = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(session_id, answered))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all())
        try:
            async with asyncio.timeout(self._timeout):
                answer = await answered
        except TimeoutError as error:
            raise StoreUnavailable(f"the store did not answer within {self._timeout:g} s") from error
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                await self._ask_for([one for one in asked if not one.answered.done()])
        finally:
            self._asking = None

    async def _ask_for(self, asked: Sequence[_Asked]) -> None:
        counts = Counter(one.session_id for one in asked if one.session_id is not None)
        try:
            given, version = await asyncio.to_thread(self._heads.take, counts)
        except SQLAlchemyError as error:
            what = reason(error) if isinstance(error, DBAPIError) else str(error)
            for one in asked:
                _tell(one, StoreUnavailable(f"the store cannot be read: {what}"))
            return
        self.policy_version = max(self.policy_version, version)
        places = {session_id: given[session_id].end - count for session_id, count in counts.items()}
        for one in asked:
            if one.session_id is None:
                _tell(one, _Answer(0, SessionStatus.OPEN))
            else:
                known = given[one.session_id]
                _tell(one, _Answer(places[one.session_id], known.status, known.prompts))
                places[one.session_id] += 1


def _tell(asked: _Asked, answer: _Answer | StoreUnavailable) -> None:
    if not asked.answered.done():
        asked.answered.set_result(answer)
