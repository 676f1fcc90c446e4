"""What one proxy process is made of; passed along by argument, composed in one place."""

from __future__ import annotations

from asyncio import Event
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.store.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.proxy.batches import BatchSource
    from polarproxy.proxy.exact.prompts import ExactPrompts
    from polarproxy.proxy.fleet import Fleet
    from polarproxy.proxy.gate import Gate
    from polarproxy.proxy.joining import Underway
    from polarproxy.proxy.keys import Signer
    from polarproxy.proxy.muster import Muster
    from polarproxy.proxy.readiness import Readiness
    from polarproxy.proxy.recorder import Recorder
    from polarproxy.proxy.roots import Roots
    from polarproxy.settings import Settings
    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.keeper import Keeper
    from polarproxy.store.repository import Repository
    from polarproxy.store.spool import Spool
    from polarproxy.wire.chat.begun import Begun


@dataclass(slots=True)
class Stats:
    """Counts since the process started."""

    calls: int = 0
    passed_through: int = 0
    """Requests to other routes, relayed without a record."""
    unreadable: int = 0
    """Requests that are not JSON objects; the engine refused them in its own words."""
    store_failures: int = 0


@dataclass(slots=True)
class Parts:
    """The parts of a proxy."""

    settings: Settings
    signer: Signer
    fleet: Fleet
    repository: Repository
    writer: Keeper
    arrivals: Arrivals
    recorder: Recorder
    roots: Roots
    exact: ExactPrompts
    muster: Muster
    readiness: Readiness
    stats: Stats
    gate: Gate
    batches: Callable[[], BatchSource]
    """Made when the first consumer asks; blocks then."""
    underway: Underway
    requests: Recent[Begun] = field(default_factory=Recent)
    """Chat requests of sessions that the client named."""
    ending: Event = field(default_factory=Event)
    """Set when the proxy ends: nobody should be kept waiting."""
    spool: Spool | None = None
    """Takes calls while the database is away. None: they are refused then."""
