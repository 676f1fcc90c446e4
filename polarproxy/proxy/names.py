"""Which model serves the name that a client uses. Harnesses have names of their own, some of them hard-wired."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from polarproxy.errors import ModelUnknown
from polarproxy.settings import MODEL_MAP_OFF, read_model_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.proxy.fleet import Fleet
    from polarproxy.proxy.upstream import Upstream

_LOOK_AGAIN_S = 5.0
"""A name that is not served may be that of an adapter that was loaded meanwhile; asked for no more often than this."""


class ModelNames:
    """The model map of one proxy."""

    def __init__(self, model_map: str) -> None:
        self._off = model_map.strip() == MODEL_MAP_OFF
        self._map = read_model_map(model_map)
        self._looked = 0.0

    async def served(self, asked: str | None, fleet: Fleet) -> str | None:
        """The name to send to the engine. None: the client named none, and it is not known what the engine serves.

        Raises `ModelUnknown` when an engine that never said what it serves may serve this name.
        """
        if asked is not None and (self._off or asked in self._map):
            return self._map.get(asked, asked)
        await fleet.acquaint()
        if asked is not None and asked not in fleet.models and time.monotonic() - self._looked > _LOOK_AGAIN_S:
            self._looked = time.monotonic()
            await fleet.look()
        models = fleet.models
        if asked is not None and asked in models:
            return asked
        if "*" in self._map:
            return self._map["*"]
        if asked is not None and models and (strangers := await fleet.strangers()):
            raise ModelUnknown(_not_known(asked, strangers, models))
        return models[0] if models else asked


def _not_known(asked: str, strangers: Sequence[Upstream], models: Sequence[str]) -> str:
    """What to do about it."""
    return (
        f"nobody serves {asked!r}, but an engine that never said what it serves may: "
        f"{'; '.join(member.why_unknown() for member in strangers)}. Wait for it, or take it out: polarproxy upstreams"
        f" remove {strangers[0].name} --force. Or say that other names are a model's: --model-map '*={models[0]}'"
    )
