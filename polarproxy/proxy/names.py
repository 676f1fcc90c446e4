"""Which model serves the name that a client uses. Harnesses have names of their own, some of them hard-wired."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from polarproxy.settings import MODEL_MAP_OFF, read_model_map

if TYPE_CHECKING:
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.parts import Parts

_LOOK_AGAIN_S = 5.0
"""A name that is not served may be that of an adapter that was loaded meanwhile; asked for no more often than this."""


class ModelNames:
    """The model map of one proxy."""

    def __init__(self, model_map: str) -> None:
        self._off = model_map.strip() == MODEL_MAP_OFF
        self._map = read_model_map(model_map)
        self._looked = 0.0

    async def served(self, asked: str | None, parts: Parts) -> str | None:
        """The name to send to the engine. None: the client named none, and it is not known what the engine serves."""
        if asked is not None and (self._off or asked in self._map):
            return self._map.get(asked, asked)
        facts = await parts.engine_facts()
        if asked is not None and asked not in facts.models and time.monotonic() - self._looked > _LOOK_AGAIN_S:
            self._looked = time.monotonic()
            await parts.look_at_models()
            facts = await parts.engine_facts()
        return self._known_or_default(asked, facts)

    def _known_or_default(self, asked: str | None, facts: EngineFacts) -> str | None:
        if asked is not None and asked in facts.models:
            return asked
        return self._map.get("*") or facts.model or asked
