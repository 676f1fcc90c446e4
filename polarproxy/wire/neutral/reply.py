"""What a model answers, in no provider's words: whole, or as the pieces of a stream.

The two are one story (law 8): `fold` makes the whole reply of the pieces, `pieces` cuts a reply into pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from polarproxy.wire.neutral.request import Request, Text, Thinking, ToolUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polarproxy.model import Usage

Finish: TypeAlias = Literal["stop", "stop_sequence", "length", "tool_calls", "content_filter", "abort"]
"""Why a choice ended. `stop_sequence`: one of the client's stop strings; `abort`: the engine gave up."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer."""

    index: int
    parts: tuple[Thinking | Text | ToolUse, ...]
    """In the order in which they were sampled; no two `Text`s or `Thinking`s in a row, none of them empty."""
    finish: Finish
    stop_sequence: str | None = None
    """The stop string that ended it. None: none did."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    """None: the engine did not count."""

    @property
    def answer(self) -> Choice:
        """The only choice, for dialects with one; where the engine said nothing it was aborted."""
        return next((choice for choice in self.choices if choice.index == 0), Choice(0, (), "abort"))

    @property
    def others(self) -> tuple[int, ...]:
        """The indices of the choices for which dialects with one have no place."""
        return tuple(choice.index for choice in self.choices if choice.index)


def _no_time() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an encoder puts around a reply; nothing of it was sampled."""

    id: str
    """Lower-case hex, unique for each call; encoders make their ids of it (`msg_…`, `resp_…`)."""
    created: int
    """Seconds since 1970."""
    model: str
    """The name that the client asked for."""
    request: Request
    """What is answered: tools by the names that the engine knows, and settings that a reply repeats."""
    context: dict[str, bytes] = field(default_factory=dict)
    """Members of the original request that a reply repeats as they came (Responses). JSON by name."""
    elapsed_ms: Callable[[], int] = _no_time
    """Milliseconds since the request came, asked when the reply is over. Nothing in `wire` knows a clock of its own."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The engine began to answer."""

    prompt_tokens: int | None = None
    """Length of the prompt. None: not known yet."""
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Some more text; never empty."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ThinkingPiece:
    """Some more reasoning; never empty."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ToolBegin:
    """A tool call began."""

    call: int
    """Number of the tool call within its choice, from 0."""
    id: str
    name: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """Some more of the arguments of a tool call, as sampled; never empty."""

    call: int
    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice ended."""

    finish: Finish
    stop_sequence: str | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Final:
    """The reply is over. Always the last piece, and there is exactly one."""

    usage: Usage | None


Piece: TypeAlias = Begin | TextPiece | ThinkingPiece | ToolBegin | ArgumentsPiece | Finished | Final


@dataclass(slots=True)
class _Folding:
    parts: list[Thinking | Text | ToolUse] = field(default_factory=list)
    calls: dict[int, int] = field(default_factory=dict)
    """Where each tool call stands in `parts`."""
    ended: Finished | None = None

    def add(self, piece: TextPiece | ThinkingPiece | ToolBegin | ArgumentsPiece) -> None:
        last = self.parts[-1] if self.parts else None
        match piece:
            case TextPiece():
                self._extend(Text, last, piece.text)
            case ThinkingPiece():
                self._extend(Thinking, last, piece.text)
            case ToolBegin():
                self.calls[piece.call] = len(self.parts)
                self.parts.append(ToolUse(piece.id, piece.name, ""))
            case ArgumentsPiece():
                place = self.calls[piece.call]
                use = self.parts[place]
                assert isinstance(use, ToolUse)
                self.parts[place] = replace(use, arguments=use.arguments + piece.text)

    def _extend(self, kind: type[Text | Thinking], last: Thinking | Text | ToolUse | None, text: str) -> None:
        if isinstance(last, (Text, Thinking)) and type(last) is kind:
            self.parts[-1] = replace(last, text=last.text + text)
        else:
            self.parts.append(kind(text))


def fold(pieces: Iterable[Piece]) -> Reply:
    """The whole reply of a stream. A choice that never ended ends with `abort`."""
    choices: dict[int, _Folding] = {}
    usage: Usage | None = None
    for piece in pieces:
        match piece:
            case Begin():
                continue
            case Final():
                usage = piece.usage
            case Finished():
                choices.setdefault(piece.index, _Folding()).ended = piece
            case _:
                choices.setdefault(piece.index, _Folding()).add(piece)
    return Reply(tuple(_choice(index, choices[index]) for index in sorted(choices)), usage)


def _choice(index: int, folding: _Folding) -> Choice:
    ended = folding.ended or Finished("abort")
    return Choice(index, tuple(folding.parts), ended.finish, ended.stop_sequence)


def pieces(reply: Reply) -> Iterator[Piece]:
    """A whole reply as the pieces of a stream; folding them gives it back."""
    yield Begin(reply.usage.prompt_tokens if reply.usage else None, reply.usage.cached_tokens if reply.usage else None)
    for choice in reply.choices:
        yield from _choice_pieces(choice)
    yield Final(reply.usage)


def _choice_pieces(choice: Choice) -> Iterator[Piece]:
    call = 0
    for part in choice.parts:
        match part:
            case Text():
                yield TextPiece(part.text, choice.index)
            case Thinking():
                yield ThinkingPiece(part.text, choice.index)
            case ToolUse():
                yield ToolBegin(call, part.id, part.name, choice.index)
                if part.arguments:
                    yield ArgumentsPiece(call, part.arguments, choice.index)
                call += 1
    yield Finished(choice.finish, choice.stop_sequence, choice.index)
