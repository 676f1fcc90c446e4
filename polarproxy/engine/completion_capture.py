"""What was sampled, from logprobs in the form of `/v1/completions`: parallel lists in the place of one list of entries."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from polarproxy.engine.capture import Capture
from polarproxy.engine.choice import ChoiceCapture, LogprobEntry


class _Lists(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []


class _Values(msgspec.Struct):
    token_logprobs: list[float | None] = []


_lists = msgspec.json.Decoder(_Lists), msgspec.json.Decoder(list[_Lists])
_values = msgspec.json.Decoder(_Values), msgspec.json.Decoder(list[_Values])


@dataclass(slots=True)
class CompletionChoice(ChoiceCapture):
    """The pieces of one choice."""

    echoed: int = 0
    """How many entries in front are those of an echoed prompt, which was not sampled."""

    def condense(self) -> None:
        # The entries of an echoed prompt are counted from the beginning, so all must be at hand.
        if not self.echoed:
            ChoiceCapture.condense(self)

    def entries(self) -> list[LogprobEntry]:
        found = [
            LogprobEntry(token, value)
            for part in self.logprob_parts(_lists)
            for token, value in zip(part.tokens, part.token_logprobs, strict=False)
        ]
        return found[self.echoed :]

    def numbers(self) -> list[float | None]:
        return [value for part in self.logprob_parts(_values) for value in part.token_logprobs][self.echoed :]


class CompletionCapture(Capture):
    """Everything that one reply says about tokens."""

    def choice(self, index: int) -> CompletionChoice:
        """The capture of the choice with this index."""
        found = self.choices.get(index)
        if not isinstance(found, CompletionChoice):
            found = self.choices[index] = CompletionChoice(index)
        return found
