"""An engine that plays the same turns on both of its routes, chat and text, and leaves the proxy's probes out of them."""

from collections.abc import Callable
from typing import Any, Protocol

from polarproxy.engine.probe import PROBE_PROMPT
from tests.fakes import Received, Turn, compose
from tests.fakes.text_cases import COMPLETIONS
from tests.proxy.rig import CHAT, Rig

_PROBED = Turn((compose("1", logprob=lambda _: -0.5),))


class PlayedStarter(Protocol):
    """Gives a rig that ends with the test. Its engine plays the turns in order, the last one again and again."""

    async def __call__(self, *turns: Turn, **settings: Any) -> Rig: ...


def playing(*turns: Turn) -> Callable[[Received], Turn]:
    """A script for a fake engine."""
    left = list(turns)

    def played(received: Received) -> Turn:
        if _is_probe(received):
            return _PROBED
        return left.pop(0) if len(left) > 1 else left[0]

    return played


def asked(rig: Rig) -> list[Received]:
    """What the engine was asked to generate, without the probes."""
    return [
        received for received in rig.engine.requests if received.path in (CHAT, COMPLETIONS) and not _is_probe(received)
    ]


def _is_probe(received: Received) -> bool:
    return bool(received.json.get("prompt") == PROBE_PROMPT)
