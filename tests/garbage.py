"""What only the collector of garbage would free."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def none_left(*kinds: type) -> AsyncIterator[None]:
    """The body leaves no object of these classes, which support no weak references, to the collector of garbage."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    before = _count(kinds)
    try:
        yield
        assert _count(kinds) == before
    finally:
        if enabled:
            gc.enable()


def _count(kinds: tuple[type, ...]) -> list[int]:
    objects = gc.get_objects()
    return [sum(type(each) is kind for each in objects) for kind in kinds]
