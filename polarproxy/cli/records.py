"""What was recorded, for the parts that judge rollouts."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from polarproxy.cli.transcripts import Transcriber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.credit.transcript import Transcript
    from polarproxy.model import Session
    from polarproxy.store.repository import Repository
    from polarproxy.store.summaries import CallSummary


class StoreRecords:
    """Read from the store, beside the event loop."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    @cached_property
    def _transcriber(self) -> Transcriber:
        return Transcriber(self._repository)

    async def session(self, session_id: str) -> Session:
        """Raises `NotFound`."""
        return await asyncio.to_thread(self._repository.session, session_id)

    async def calls(self, session_id: str) -> Sequence[CallSummary]:
        """Of a session, in order."""
        return await asyncio.to_thread(self._repository.call_summaries, session_id)

    def transcript(self, session: Session) -> Transcript:
        """What was said in it; waits for the store."""
        return self._transcriber.read(session)
