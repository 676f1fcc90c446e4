"""OpenAI Chat Completions: the chunks of a stream, read into pieces as they come, and written from pieces.

Written from the streams of vLLM 0.32, llama.cpp and the OpenAI API reference, "The chat completion chunk object". The
reader stands between the engine and every client of another dialect: one decoding a chunk, and nothing is held back but
arguments that come before the name of their tool. `Encoder` and `decode_stream` are for clients and for the laws; the proxy
itself passes the engine's events on to clients of chat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.wire.chat.errors import encode_error
from polarproxy.wire.chat.finish import UsageMember, read_finish, write_finish, write_usage
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Envelope,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)
from polarproxy.wire.sse import DONE, encode_event, event_data

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import Loss, Usage
    from polarproxy.wire.chat.media import Json


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolDelta(msgspec.Struct, gc=False):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolDelta] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    usage: UsageMember | None = None
    id: str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Call:
    """A tool call of which more may come."""

    number: int | None = None
    """Its number within the choice. None: it has not begun, since its name is not known."""
    id: str = ""
    name: str = ""
    waiting: str = ""
    """Arguments that came before the name."""


@dataclass(slots=True)
class _Calls:
    """The tool calls of one choice."""

    begun: int = 0
    open: dict[int, _Call] = field(default_factory=dict)
    """By the index that the engine gives them."""


class PieceReader:
    """Reads one stream, chunk by chunk."""

    def __init__(self) -> None:
        self._began = False
        self._id: str | None = None
        """The reply's id. None: the engine gave none."""
        self._calls: dict[int, _Calls] = {}
        self._usage: Usage | None = None

    def feed(self, data: bytes) -> list[Piece]:
        """What the `data` of one event says; raises `BadReply` when it is not a chunk, or calls a tool without its name.

        The first chunk begins the reply, whose prompt's length only the ids tell.
        """
        try:
            chunk = _decode(data)
        except UNREADABLE as error:
            raise BadReply(f"the engine's event is not a chunk of a chat stream: {error}") from error
        self._id = chunk.id or self._id
        pieces: list[Piece] = []
        if not self._began and chunk.choices:
            self._began = True
            pieces.append(Begin())
        for choice in chunk.choices:
            if choice.delta is not None:
                self._delta(choice.index, choice.delta, pieces)
            if choice.finish_reason is not None:
                self._finish(choice, pieces)
        if chunk.usage is not None:
            self._usage = chunk.usage.value()
        return pieces

    def end(self) -> Final:
        """The end of the reply, with the last usage that the engine told."""
        return Final(self._usage)

    def _delta(self, index: int, delta: _Delta, pieces: list[Piece]) -> None:
        if thinking := delta.reasoning or delta.reasoning_content:
            pieces.append(ThinkingPiece(thinking, index))
        if text := delta.content or delta.refusal:
            pieces.append(TextPiece(text, index))
        if delta.tool_calls:
            calls = self._calls.setdefault(index, _Calls())
            for part in delta.tool_calls:
                self._tool(index, calls, part, pieces)

    def _tool(self, index: int, calls: _Calls, part: _ToolDelta, pieces: list[Piece]) -> None:
        call = calls.open.get(part.index)
        # Some engines number all parallel calls 0; another id is then another call.
        if call is None or (part.id and call.id and part.id != call.id):
            if call is not None:
                self._begin(index, calls, call, pieces)
            call = calls.open[part.index] = _Call()
        call.id = call.id or part.id or ""
        function = part.function
        if function is None:
            return
        if call.number is not None:
            if function.arguments:
                pieces.append(ArgumentsPiece(call.number, function.arguments, index))
            return
        call.name = call.name or function.name or ""
        call.waiting += function.arguments or ""
        # An engine that has ids gives one with the name; arguments without one show that it has none.
        if call.name and (call.id or call.waiting):
            self._begin(index, calls, call, pieces)

    def _begin(self, index: int, calls: _Calls, call: _Call, pieces: list[Piece]) -> None:
        """Begins a call with all that is known of it, unless it began."""
        if call.number is not None:
            return
        if not call.name:
            raise BadReply("the engine called a tool without saying its name")
        call.number = calls.begun
        calls.begun += 1
        pieces.append(ToolBegin(call.number, call.id or self._made_id(index, call.number), call.name, index))
        if call.waiting:
            pieces.append(ArgumentsPiece(call.number, call.waiting, index))

    def _made_id(self, index: int, number: int) -> str:
        """The id of a call for which the engine has none; clients tell the results of parallel calls apart by it."""
        return "" if self._id is None else f"{self._id}-{index}-{number}"

    def _finish(self, choice: _Choice, pieces: list[Piece]) -> None:
        assert choice.finish_reason is not None
        calls = self._calls.get(choice.index)
        if calls is not None:
            for call in calls.open.values():
                self._begin(choice.index, calls, call, pieces)
        called = calls is not None and calls.begun > 0
        finish, stop = read_finish(choice.finish_reason, choice.stop_reason, called=called)
        pieces.append(Finished(finish, stop, choice.index))


def decode_stream(events: Iterable[bytes]) -> list[Piece]:
    """The pieces of a whole stream of events; events without data are passed over."""
    reader = PieceReader()
    pieces: list[Piece] = []
    for event in events:
        data = event_data(event)
        if data == DONE:
            pieces.append(reader.end())
        elif data is not None:
            pieces.extend(reader.feed(data))
    return pieces


class Encoder:
    """Writes one reply as chunks, the way vLLM does: each choice begins with its role and ends with a `finish_reason`."""

    def __init__(self, envelope: Envelope) -> None:
        self.losses: list[Loss] = []
        self._usage = envelope.request.stream_usage
        self._choices = envelope.request.n or 1
        self._head: Json = {
            "id": f"chatcmpl-{envelope.id}",
            "object": "chat.completion.chunk",
            "created": envelope.created,
            "model": envelope.model,
        }
        self._begun: set[int] = set()

    def feed(self, piece: Piece) -> bytes:
        """The events of a piece."""
        match piece:
            case Begin():
                return b"".join(self._role(index) for index in range(self._choices))
            case Final():
                return self._end(piece.usage)
            case _:
                role = b"" if piece.index in self._begun else self._role(piece.index)
                return role + self._choice(piece)

    def _choice(self, piece: TextPiece | ThinkingPiece | ToolBegin | ArgumentsPiece | Finished) -> bytes:
        match piece:
            case TextPiece():
                return self._chunk(piece.index, {"content": piece.text})
            case ThinkingPiece():
                return self._chunk(piece.index, {"reasoning": piece.text})
            case ToolBegin():
                function = {"name": piece.name, "arguments": ""}
                call: Json = {"index": piece.call, "id": piece.id, "type": "function", "function": function}
                return self._chunk(piece.index, {"tool_calls": [call]})
            case ArgumentsPiece():
                more: Json = {"index": piece.call, "function": {"arguments": piece.text}}
                return self._chunk(piece.index, {"tool_calls": [more]})
            case Finished():
                return self._chunk(piece.index, {}, write_finish(piece.finish, piece.stop_sequence))

    def error(self, status: int, message: str) -> bytes:
        """An event with the error, as vLLM sends it."""
        return encode_event(encode_error(status, message))

    def _role(self, index: int) -> bytes:
        self._begun.add(index)
        return self._chunk(index, {"role": "assistant", "content": ""})

    def _chunk(self, index: int, delta: Json, ending: Json | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, **(ending or {"finish_reason": None})}
        return encode_event(_encode({**self._head, "choices": [choice]}))

    def _end(self, usage: Usage | None) -> bytes:
        done = encode_event(DONE)
        if not self._usage or usage is None:
            return done
        return encode_event(_encode({**self._head, "choices": [], "usage": write_usage(usage)})) + done
