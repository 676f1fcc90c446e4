"""The engines that a proxy spreads its sessions over. With one, every call is that one's and nothing else is looked at.

A session's calls go to one engine, where its earlier turns are in the prefix cache. An engine that cannot be reached is
left to the others until it answers again; then its sessions come back.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from polarproxy.errors import BadSettings, EngineFailed
from polarproxy.proxy.differences import differences
from polarproxy.proxy.names import ModelNames
from polarproxy.proxy.ring import nearest
from polarproxy.proxy.upstream import Upstream
from polarproxy.store.roster import UpstreamState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.http.answer import Answer
    from polarproxy.settings import Settings

_HOMES = 50_000
"""Sessions whose engine is remembered, to be counted."""
_OUT = (UpstreamState.REMOVED, UpstreamState.CUT)
_BREATH_S = 0.2
"""Between two rounds of checks, however many calls fail."""


class Chosen(NamedTuple):
    """Where a request goes."""

    upstream: Upstream
    model: str | None
    """The name to ask it for. None: the client named none, and it is not known what the engine serves."""


class Fleet:
    """At least one engine."""

    def __init__(self, settings: Settings) -> None:
        """Raises `BadSettings` when an upstream names no server, or two name the same."""
        self._settings = settings
        self._names = ModelNames(settings.model_map)
        self._woken = asyncio.Event()
        self.members: tuple[Upstream, ...] = tuple(map(self._made, settings.upstreams))
        """Those of the settings in their order, then those that were added."""
        self._set_up = {member.name: member.base for member in self.members}
        if len(self._set_up) < len(self.members):
            raise BadSettings(f"upstream names an engine twice: {', '.join(member.name for member in self.members)}")
        self._left: list[Upstream] = []
        """Those that were removed and are still busy."""
        self._homes: OrderedDict[str, Upstream] = OrderedDict()
        self._watching: asyncio.Task[None] | None = None

    def _made(self, base: str) -> Upstream:
        return Upstream(base, self._settings, self._woken.set)

    def start(self) -> None:
        """Begins to look after the engines."""
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Closes every connection."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))
        for member in (*self.members, *self._left):
            await member.close()

    async def change(self, changes: Mapping[str, UpstreamState]) -> None:
        """From now on the engines are those of the settings with these changes, by name. What is under way goes on, but for
        engines that are to be cut off."""
        names = dict.fromkeys((*self._set_up, *changes))
        wanted = [name for name in names if changes.get(name) not in _OUT]
        there = {member.name: member for member in self.members}
        gone = [member for name, member in there.items() if name not in wanted]
        if wanted:
            self.members = tuple(there.get(name) or self._newcomer(name) for name in wanted)
        for member in self.members:
            member.draining = changes.get(member.name) is UpstreamState.DRAINING
        self._left = [member for member in (*self._left, *gone) if member.in_flight]
        for member in gone:
            if changes.get(member.name) is UpstreamState.CUT:
                await member.close()

    def _newcomer(self, name: str) -> Upstream:
        """Gets no calls before it was looked at, so that none has to wait for that."""
        made = self._made(self._set_up.get(name, name))
        made.trouble = f"the engine at {name} has not been looked at yet"
        self._woken.set()
        return made

    async def try_out(self, base: str) -> str | None:
        """Why an engine cannot be added. None: it answers."""
        made = Upstream(base, self._settings)
        try:
            await made.facts()
            return None if made.known is not None else made.why_unknown()
        finally:
            await made.close()

    async def choose(self, session_id: str | None, asked: str | None) -> Chosen:
        """Engine and model for a request that asks for this model. None: it belongs to no session; names no model."""
        model = await self._names.served(asked, self)
        members = self.members
        return Chosen(members[0] if len(members) == 1 else await self._engine_for(session_id, model), model)

    async def _engine_for(self, session_id: str | None, model: str | None) -> Upstream:
        members = self.members
        if len(members) == 1:
            return members[0]
        await self.acquaint()
        candidates = self._candidates(model)
        if session_id is None:
            return min(candidates, key=lambda member: member.in_flight)
        chosen = nearest(session_id, candidates)
        self._at_home(session_id, chosen)
        return chosen

    async def pass_on(
        self,
        session_id: str | None,
        model: str | None,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Answer:
        """Sends a request as it is, for a model of this very name; as `Upstream.send`, and on to the next engine as long as
        none was reached."""
        tried: set[Upstream] = set()
        while True:
            upstream = await self._engine_for(session_id, model)
            tried.add(upstream)
            try:
                return await upstream.send(method, path, headers, body)
            except EngineFailed as error:
                if error.sent or await self._engine_for(session_id, model) in tried:
                    raise

    @property
    def asked(self) -> Sequence[Upstream]:
        """Those that calls go to now."""
        return self._candidates(None)

    @property
    def several(self) -> bool:
        """Whether there is a choice."""
        return len(self.members) > 1

    def _candidates(self, model: str | None) -> Sequence[Upstream]:
        """Those that take calls, serve the model and are well. Where none is, the last of these gives way first."""
        able = [member for member in self.members if not member.draining] or self.members
        serving = [member for member in able if model is None or model in member.models]
        serving = serving or [member for member in able if not member.met] or list(able)
        return [member for member in serving if member.trouble is None] or serving

    def _at_home(self, session_id: str, chosen: Upstream) -> None:
        self._homes[session_id] = chosen
        self._homes.move_to_end(session_id)
        if len(self._homes) > _HOMES:
            self._homes.popitem(last=False)

    def sessions(self) -> Counter[str]:
        """By the name of an engine: how many of the sessions seen lately had their latest call there. Empty with one engine."""
        return Counter(member.name for member in self._homes.values())

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that an engine serves, as far as known, those of the first engine first."""
        if len(self.members) == 1:
            return self.members[0].models
        return tuple(dict.fromkeys(model for member in self.members if not member.draining for model in member.models))

    async def acquaint(self) -> None:
        """Returns when it is known what each engine serves that answers. One that was known and failed is asked again by the
        calls that go to it; the others do not wait for that."""
        members = self.members
        if len(members) == 1:
            if members[0].known is None:
                await members[0].facts()
            return
        await _ask(member for member in members if not member.met and member.trouble is None)

    async def strangers(self) -> list[Upstream]:
        """Those that never said what they serve, though each was asked."""
        await _ask(member for member in self.members if not member.asked)
        return [member for member in self.members if not member.met and not member.draining]

    async def facts(self) -> EngineFacts:
        """What is known of the engines, as of one: the first one's kind, the models of all, the smallest context."""
        await self.acquaint()
        known = [member.known for member in self.members if member.known is not None and not member.draining]
        if len(self.members) == 1 or not known:
            return await self.members[0].facts()
        lengths = [facts.max_model_len for facts in known if facts.max_model_len is not None]
        return replace(known[0], models=self.models, max_model_len=min(lengths, default=None))

    async def look(self) -> bool:
        """Asks every engine which models it serves now; whether one of them answers."""
        return any(await asyncio.gather(*(member.look() for member in self.members)))

    def troubles(self) -> list[str]:
        """Why engines are not asked now, one sentence for each of those."""
        return [member.trouble for member in self.members if member.trouble is not None and not member.draining]

    def differences(self) -> list[str]:
        """In what the engines differ that matters to what is trained, one sentence each."""
        return differences([(member.name, member.known) for member in self.members if member.known is not None])

    async def _watch(self) -> None:
        """Looks at the engines, as long as there are several: every few seconds, and at once when a call failed."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.health_interval):
                    await self._woken.wait()
            self._woken.clear()
            if len(self.members) > 1:
                await self._check()
            await asyncio.sleep(_BREATH_S)

    async def _check(self) -> None:
        checks = (member.check() for member in self.members if not member.draining)
        for found in await asyncio.gather(*checks, return_exceptions=True):
            # A fault of ours must not end the watch: an engine that was left would never be asked again.
            if isinstance(found, Exception):
                report = {"message": "the check of an engine failed", "exception": found}
                asyncio.get_running_loop().call_exception_handler(report)


async def _ask(members: Iterable[Upstream]) -> None:
    """Returns when each has said what it is, or has not."""
    asking = [member.facts() for member in members]
    if asking:
        await asyncio.gather(*asking)
