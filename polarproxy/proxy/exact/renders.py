"""Renderings by the engine, and what is known of its chat templates by them. Kept while the engine is the same."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

from polarproxy.engine.exact.conversation import RENDER_ROUTE, rendered_ids
from polarproxy.engine.exact.probe import probe, read, template_settings
from polarproxy.engine.exact.template import Refused
from polarproxy.errors import BadReply
from polarproxy.model import FallbackReason
from polarproxy.proxy.exact.thoughts import why_thoughts_mislead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.engine.exact.conversation import Settings
    from polarproxy.engine.exact.template import TemplateFacts
    from polarproxy.model import TokenIds
    from polarproxy.proxy.upstream import Upstream

    _Facts: TypeAlias = TemplateFacts | Refused
    _Key: TypeAlias = tuple[tuple[str, bytes], ...]

_MAX_BYTES = 64 << 20
_TEMPLATES = 256
_AT_ONCE = 8
"""Renderings that are asked for at the same time when a template is tried out."""


_WITNESS = 1
"""Which body of a probe is rendered again later: one with the beginning of a turn at its end."""


def _key(settings: Settings) -> _Key:
    return tuple((name, bytes(value)) for name, value in settings.items())


class Renders:
    """Asks the engine to render; short renderings of the same body are kept."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._kept: OrderedDict[bytes, TokenIds] = OrderedDict()
        self._bytes = 0
        self._templates: OrderedDict[_Key, asyncio.Task[_Facts]] = OrderedDict()
        self._witness: tuple[bytes, TokenIds] | None = None
        """A body and what it was rendered to at first. None: nothing was rendered yet."""

    async def ids(self, body: bytes, head: Mapping[str, str], *, keep: bool) -> TokenIds:
        """The ids of a body; raises `BadReply` when the engine refuses it, `EngineTimeout`, `EngineUnreachable`."""
        known = self._kept.get(body) if keep else None
        if known is not None:
            self._kept.move_to_end(body)
            return known
        status, answer = await self._upstream.ask_for(head, RENDER_ROUTE, body)
        if status != 200:
            said = answer[:200].decode("utf-8", "replace")
            raise BadReply(f"{RENDER_ROUTE} answers {status}: {said}")
        ids = rendered_ids(answer)
        if keep:
            self._keep(body, ids)
        return ids

    async def all_ids(self, bodies: Sequence[bytes], head: Mapping[str, str], *, keep: bool) -> list[TokenIds]:
        """The ids of several bodies, asked for at the same time; raises as `ids` does."""
        tasks = [asyncio.create_task(self.ids(body, head, keep=keep)) for body in bodies]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, bodies: Sequence[bytes]) -> None:
        """Renderings that were kept are out of date: templates may write the day."""
        for body in bodies:
            gone = self._kept.pop(body, None)
            if gone is not None:
                self._bytes -= len(body) + len(gone.raw)

    async def unchanged(self, head: Mapping[str, str]) -> bool:
        """Whether the engine renders as it did at first; raises as `ids` does when it is at fault."""
        if self._witness is None:
            return True
        body, ids = self._witness
        status, answer = await self._upstream.ask_for(head, RENDER_ROUTE, body)
        if status >= 500:
            raise BadReply(f"{RENDER_ROUTE} answers {status}")
        return status == 200 and rendered_ids(answer) == ids

    def knows(self, fields: Settings) -> bool:
        """Whether `template` answers at once."""
        task = self._templates.get(_key(template_settings(fields)))
        return task is not None and task.done()

    async def template(self, fields: Settings, head: Mapping[str, str]) -> _Facts:
        """What is known of the template that a request is rendered with; tried out once. Raises as `ids` does."""
        settings = template_settings(fields)
        key = _key(settings)
        task = self._templates.get(key)
        if task is None:
            task = self._templates[key] = asyncio.create_task(self._try_out(settings, head))
            task.add_done_callback(lambda done: self._tried(key, done))
            if len(self._templates) > _TEMPLATES:
                self._templates.popitem(last=False)
        self._templates.move_to_end(key)
        # Others may wait for it too, and later requests will.
        return await asyncio.shield(task)

    def _tried(self, key: _Key, task: asyncio.Task[_Facts]) -> None:
        """A failure is no knowledge."""
        if (task.cancelled() or task.exception() is not None) and self._templates.get(key) is task:
            del self._templates[key]

    async def _try_out(self, settings: Settings, head: Mapping[str, str]) -> _Facts:
        wanted = probe(settings)
        answers: list[TokenIds | None] = []
        for start in range(0, len(wanted.bodies), _AT_ONCE):
            some = wanted.bodies[start : start + _AT_ONCE]
            answers += await asyncio.gather(*(self._unless_refused(body, head) for body in some))
        witness = answers[_WITNESS]
        if self._witness is None and witness is not None:
            self._witness = wanted.bodies[_WITNESS], witness
        found = read(wanted, answers)
        if isinstance(found, Refused):
            return found
        misled = await why_thoughts_mislead(self._upstream.ask_for, settings, head)
        return found if misled is None else Refused(FallbackReason.ENGINE_UNABLE, misled)

    async def _unless_refused(self, body: bytes, head: Mapping[str, str]) -> TokenIds | None:
        """The ids; None where the template takes no such conversation. Raises as `ids` does when the engine is at fault."""
        status, answer = await self._upstream.ask_for(head, RENDER_ROUTE, body)
        if status == 200:
            return rendered_ids(answer)
        if status in (400, 422):
            return None
        raise BadReply(f"{RENDER_ROUTE} answers {status}")

    def _keep(self, body: bytes, ids: TokenIds) -> None:
        if body in self._kept:
            return
        self._kept[body] = ids
        self._bytes += len(body) + len(ids.raw)
        while self._bytes > _MAX_BYTES:
            gone, its = self._kept.popitem(last=False)
            self._bytes -= len(gone) + len(its.raw)
