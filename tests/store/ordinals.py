"""What `Arrivals.arrive` gives, as a number."""

from polarproxy.store.arrivals import Arrivals


async def ordinal(arrivals: Arrivals, session_id: str) -> int:
    """The ordinal of a new call."""
    place = await arrivals.arrive(session_id)
    assert not place.waits
    return place.ordinal
