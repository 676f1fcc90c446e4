"""What the proxy needs of whatever makes its items durable: the writer alone, or with a spool behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future

    from polarproxy.store.items import Item


class Keeper(Protocol):
    """Takes items, and says when they are durable."""

    async def write(self, item: Item, timeout: float) -> None:  # noqa: ASYNC109  (the caller's setting, by name)
        """Returns when the item is durable; raises `StoreUnavailable`, `StoreConflict`."""

    def submit(self, item: Item) -> Future[None]:
        """Queues an item; raises `StoreUnavailable` when there is no room."""

    def note(self, item: Item) -> None:
        """Queues an item for which nobody waits; raises `StoreUnavailable` when there is no room."""

    @property
    def waiting(self) -> int:
        """Items that are not durable yet."""

    @property
    def failed(self) -> int:
        """Items that could not be made durable since the start."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be made durable now. None: it can."""

    async def look(self, patience: float) -> str | None:
        """As `trouble`. When there is any, it is tried first whether it is over, for which so many seconds are waited."""

    @property
    def full(self) -> bool:
        """Whether a new call would be refused."""

    def close(self, timeout: float = 30.0) -> None:
        """Makes durable what is queued, and ends."""
