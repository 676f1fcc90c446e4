"""What was sampled, from logprobs in the form of `/v1/completions`: parallel lists in the place of one list of entries."""

from __future__ import annotations

import array
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from polarproxy.engine.capture import Capture, ChoiceCapture, LogprobEntry
from polarproxy.errors import BadReply
from polarproxy.model import Logprobs


class _Lists(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []


class _Values(msgspec.Struct):
    token_logprobs: list[float | None] = []


_T = TypeVar("_T")

_lists = msgspec.json.Decoder(list[_Lists])
_values = msgspec.json.Decoder(list[_Values])
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


@dataclass(slots=True)
class CompletionChoice(ChoiceCapture):
    """The pieces of one choice."""

    echoed: int = 0
    """How many entries in front are those of an echoed prompt, which was not sampled."""

    def entries(self) -> list[LogprobEntry]:
        found = [
            LogprobEntry(token, value)
            for part in self._decoded(_lists)
            for token, value in zip(part.tokens, part.token_logprobs, strict=False)
        ]
        return found[self.echoed :]

    def values(self) -> Logprobs:
        nan = float("nan")
        numbers = [nan if value is None else value for part in self._decoded(_values) for value in part.token_logprobs]
        return Logprobs(array.array("f", numbers[self.echoed :]).tobytes())

    def _decoded(self, decoder: msgspec.json.Decoder[list[_T]]) -> list[_T]:
        try:
            return decoder.decode(b"[%b]" % bytes(self.logprobs[:-1]))
        except _UNREADABLE as error:
            raise BadReply(f"the logprobs of choice {self.index} cannot be read: {error}") from error


class CompletionCapture(Capture):
    """Everything that one reply says about tokens."""

    def choice(self, index: int) -> CompletionChoice:
        """The capture of the choice with this index."""
        found = self.choices.get(index)
        if not isinstance(found, CompletionChoice):
            found = self.choices[index] = CompletionChoice(index)
        return found
