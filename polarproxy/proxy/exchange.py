"""What is known of one call while it is under way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from polarproxy.errors import BadReply

if TYPE_CHECKING:
    from polarproxy.engine.capture import Capture
    from polarproxy.engine.plan import Plan
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.model import Completion, Session
    from polarproxy.proxy.asking import Asking
    from polarproxy.proxy.exact.prompted import Prompted
    from polarproxy.proxy.upstream import Upstream
    from polarproxy.store.places import Place
    from polarproxy.store.responses import StoredResponse


@dataclass(slots=True)
class Exchange:
    """One call."""

    session: Session
    place: Place
    path: str
    headers: tuple[tuple[str, str], ...]
    asking: Asking
    plan: Plan
    upstream: Upstream
    """The engine that is asked."""
    facts: EngineFacts
    """What was known of it when it was chosen."""
    policy_version: int
    arrived_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    arrived_ns: int = field(default_factory=time.monotonic_ns)
    prompted: Prompted | None = None
    """What becomes of its exact prompt. None: none is asked for."""
    http_status: int | None = None
    first_byte_us: int | None = None
    last_byte_us: int | None = None
    error: str | None = None
    """What went wrong with reading the reply. None: nothing."""
    exact: tuple[Completion, ...] | None = None
    """What was sampled before a piece that could not be read. None: everything could."""
    response: StoredResponse | None = None
    """What the client may ask for again. None: nothing."""
    recorded: bool = False
    """Whether the call was handed to the store."""

    @property
    def call_id(self) -> str:
        """Made on arrival."""
        return self.asking.call_id

    @property
    def capture(self) -> Capture:
        """The tokens seen so far."""
        return self.plan.reader.capture

    @property
    def choices(self) -> int:
        """How many choices were asked for."""
        return self.asking.request.choices

    def saw_bytes(self) -> None:
        """Bytes of the engine's reply arrived just now."""
        elapsed = (time.monotonic_ns() - self.arrived_ns) // 1000
        if self.first_byte_us is None:
            self.first_byte_us = elapsed
        self.last_byte_us = elapsed

    def lose_track(self, error: BadReply) -> None:
        """A piece of the reply cannot be read: what came before it is exact, with what comes after there would be a gap."""
        if self.error is not None:
            return
        self.error = str(error)
        try:
            self.exact = self.capture.completions()
        except BadReply:
            self.exact = ()
