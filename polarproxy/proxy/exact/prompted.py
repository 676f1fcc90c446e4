"""One call in exact mode, from its request to what is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from polarproxy.errors import BadReply
from polarproxy.model import Caveat, FallbackReason, Prompting, PromptOutcome, TurnMark
from polarproxy.proxy.exact.known import KnownTurn
from polarproxy.wire.chat.stream import PieceReader
from polarproxy.wire.chat.unfold import unfold
from polarproxy.wire.neutral.history import reply_turns
from polarproxy.wire.neutral.reply import fold
from polarproxy.wire.sse import DONE, event_data

if TYPE_CHECKING:
    from polarproxy.engine.capture import Capture
    from polarproxy.model import Call, Completion, Continued, TokenIds
    from polarproxy.wire.neutral.reply import Piece
    from polarproxy.wire.neutral.request import Request


def fallback(reason: FallbackReason, detail: str | None = None) -> Prompting:
    """The engine renders the prompt."""
    return Prompting(PromptOutcome.FALLBACK, reason=reason.value, detail=detail)


@dataclass(slots=True)
class Prompted:
    """What is known of the prompt, and what the client is shown of the reply."""

    prompting: Prompting = field(default_factory=lambda: fallback(FallbackReason.LEFT))
    """What became of it so far."""
    prompt: TokenIds | None = None
    """The prompt that the engine was given. None: it renders one."""
    request: Request | None = None
    """The conversation, for the keys of the reply. None: nothing is to go on from it."""
    template: str | None = None
    """Fingerprint of the chat template. None: not known, and nothing can go on from the reply."""
    known: list[KnownTurn] = field(default_factory=list)
    """The reply as turns, once it is stored."""
    _reader: PieceReader | None = field(default_factory=PieceReader)
    """None: the reply cannot be read."""
    _pieces: list[Piece] = field(default_factory=list)

    def begin(self) -> None:
        """An engine is to be asked; what was found out with another one, which failed, counts no more."""
        self.prompting, self.prompt = fallback(FallbackReason.LEFT), None
        self.request = self.template = None

    def goes_on_from(self, continued: Continued) -> None:
        """A recorded turn was found; whether a prompt can be made of it is not known yet."""
        self.prompting = replace(self.prompting, continued=continued)

    def take(self, prompt: TokenIds) -> None:
        """The engine is given this prompt."""
        self.prompt = prompt
        self.prompting = Prompting(PromptOutcome.EXACT, self.prompting.continued)

    def fall_back(self, reason: FallbackReason, detail: str | None = None) -> None:
        """The engine renders the prompt after all; what the request was going on from stays known."""
        continued, self.prompt = self.prompting.continued, None
        self.prompting = replace(fallback(reason, detail), continued=continued)

    def hear(self, view: bytes) -> None:
        """A chunk of the reply, as the client is shown it."""
        if self._reader is None:
            return
        try:
            self._pieces.extend(self._reader.feed(view))
        except BadReply:
            self._reader = None

    def hear_whole(self, view: bytes) -> None:
        """A whole reply, as the client is shown it."""
        try:
            events = unfold(view, usage=False)
        except BadReply:
            # No reply of chat; the client gets it as it came.
            self._reader = None
            return
        for event in events:
            data = event_data(event)
            if data is not None and data != DONE:
                self.hear(data)

    def judge(self, capture: Capture) -> Prompting:
        """What became of the prompt, given what the engine says of it."""
        if self.prompt is None or capture.prompt == self.prompt:
            return self.prompting
        if capture.has_prompt:
            said = "the engine says that it used another prompt than the one that it was given"
        elif any(choice.ids or choice.first_ids for choice in capture.choices.values()):
            said = "the engine does not say which prompt it used"
        else:
            return self.prompting
        return replace(self.prompting, outcome=PromptOutcome.FAULT, reason=said)

    def caveat(self, capture: Capture) -> Caveat | None:
        """Why what was sampled is not what the policy said after the recorded prompt. None: it is."""
        return Caveat.OTHER_PROMPT if self.judge(capture).outcome is PromptOutcome.FAULT else None

    def marked(self, completions: tuple[Completion, ...]) -> tuple[Completion, ...]:
        """The completions of a whole reply with what a later request that repeats them is recognised by."""
        if self.request is None or self.template is None or self._reader is None:
            return completions
        turns, template = reply_turns(self.request, fold(self._pieces)), self.template
        marks = {
            index: TurnMark(turn.key, turn.spelling, turn.reasoning, turn.ids, template)
            for index, turn in turns.items()
        }
        return tuple(
            replace(completion, mark=marks.get(completion.index) if completion.token_ids else None)
            for completion in completions
        )

    def stored(self, call: Call) -> list[KnownTurn]:
        """The reply as turns that requests may go on from."""
        prompt = call.prompt_token_ids
        if prompt is not None:
            self.known = [
                KnownTurn(call.call_id, one.index, call.ordinal, one.mark, False, prompt, one)
                for one in call.completions
                if one.mark is not None
            ]
        return self.known

    def delivered(self) -> None:
        """The whole reply was handed to the client."""
        for turn in self.known:
            turn.delivered = True
