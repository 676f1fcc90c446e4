"""What the proxy does around the pure core of exact prompts, without sockets: it remembers turns and asks for renderings."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.engine.exact.prompt import Exact, Fallback, Recorded, Renderings, exact, plan
from polarproxy.model import FallbackReason
from polarproxy.wire.chat.fields import read_request
from polarproxy.wire.chat.reply import decode_reply
from polarproxy.wire.chat.request import decode_request
from polarproxy.wire.neutral.history import Turn, fit, reply_turns, turns
from tests.fakes.rendering.renderer import Refused, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.engine.exact.template import TemplateFacts
    from polarproxy.model import TokenIds
    from tests.fakes.rendering.renderer import Renderer

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What became of a request."""

    outcome: Exact | Fallback | None
    """None: there is nothing to go on from yet."""
    turn: int | None = None
    """The number of the message that is continued. None: none was recognised."""
    recorded: Recorded | None = None


@dataclass
class Proxy:
    """A session in exact mode."""

    renderer: Renderer
    facts: TemplateFacts
    rendered: int = 0
    """How many bodies were rendered so far; those that may be kept count once."""
    _kept: dict[bytes, TokenIds] = field(default_factory=dict)
    _turns: dict[bytes, list[tuple[Turn, Recorded]]] = field(default_factory=lambda: defaultdict(list))

    def ask(self, body: Json) -> Asked:
        raw = json.dumps(body).encode()
        found = turns(decode_request(raw).request)
        if not found:
            return Asked(None)
        for turn in reversed(found):
            fits = [(fit(turn, known), place) for place, (known, _) in enumerate(self._turns.get(turn.key, ()))]
            fitting = [(how, place) for how, place in fits if how is not None]
            if fitting:
                known, recorded = self._turns[turn.key][max(fitting)[1]]
                number = turn.chat_messages - 1
                return Asked(self._continue(raw, number, recorded, same_ids=turn.ids == known.ids), number, recorded)
        return Asked(Fallback(FallbackReason.NOT_RECORDED))

    def _continue(self, raw: bytes, number: int, recorded: Recorded, *, same_ids: bool) -> Exact | Fallback:
        request = read_request(raw)
        planned = plan(request.fields, request.messages(), number, self.facts, recorded.prompt, same_ids=same_ids)
        if isinstance(planned, Fallback):
            return planned
        once = self._keep if planned.reusable else self._render
        try:
            rendered = Renderings(
                head=once(planned.head),
                anchor=once(planned.anchor),
                other=once(planned.other),
                whole=self._render(planned.whole),
            )
            return exact(planned, rendered, recorded)
        except Refused as error:
            return Fallback(FallbackReason.RENDER_FAILED, str(error))

    def _render(self, body: bytes) -> TokenIds:
        self.rendered += 1
        return render(self.renderer, body)

    def _keep(self, body: bytes) -> TokenIds:
        if body not in self._kept:
            self._kept[body] = self._render(body)
        return self._kept[body]

    def answered(self, body: Json, messages: Sequence[Json], recorded: Sequence[Recorded]) -> None:
        """Remembers the choices of a reply: assistant messages of chat and the tokens of each."""
        choices = [{"index": place, "message": message} for place, message in enumerate(messages)]
        reply = decode_reply(msgspec.json.encode({"choices": choices}))
        request = decode_request(json.dumps(body).encode()).request
        for place, turn in reply_turns(request, reply).items():
            self._turns[turn.key].append((turn, recorded[place]))
