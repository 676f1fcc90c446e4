"""The system prompt and the messages of a request, in the neutral form.

Results of tools leave the user's message that they stand in, and make a message of their own.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.wire.messages.members import RAWS, TEXT, TEXT_OR_RAWS, Members, Reading
from polarproxy.wire.messages.request_blocks import read_blocks, without_billing
from polarproxy.wire.neutral.joining import joined
from polarproxy.wire.neutral.request import Media, Message, Part, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from collections.abc import Sequence

_Speaker = Literal["user", "assistant", "system"]
_SPEAKER: msgspec.json.Decoder[_Speaker] = msgspec.json.Decoder(_Speaker)
_MAY_SAY: dict[_Speaker, tuple[type[Part], ...]] = {
    "user": (Text, Media, ToolResult),
    "assistant": (Text, Thinking, ToolUse, ToolResult),
    "system": (Text,),
}


def read_messages(body: Members, effort: str | None, reading: Reading) -> tuple[Message, ...]:
    """All messages, the system prompt first; raises `BadRequest` when there are none. `effort`: of the whole request."""
    messages: list[Message] = []
    system = _spoken("system", read_blocks(body, "system", reading) or (), "system", reading)
    if system:
        messages.append(Message("system", system))
    raws = body.need("messages", RAWS)
    listed = [Members(raw, f"messages[{place}]") for place, raw in enumerate(raws)]
    if not listed:
        raise BadRequest("messages: at least one message is required")
    speakers = [message.need("role", _SPEAKER) for message in listed]
    last_user = max((place for place, speaker in enumerate(speakers) if speaker == "user"), default=-1)
    for place, (speaker, message) in enumerate(zip(speakers, listed, strict=True)):
        if speaker == "system":
            _read_system(message, place < last_user, effort, messages, reading)
        else:
            _read_turn(speaker, message, messages, reading)
        reading.lose_rest(message)
    return joined(messages, ("tool",))


def _read_system(message: Members, passed: bool, effort: str | None, messages: list[Message], reading: Reading) -> None:
    """A system message; `passed`: a user's message follows it, which hides it if it was for one turn only."""
    own = message.object("output_config")
    if own is not None:
        said = own.get("effort", TEXT)
        if said is not None and said != effort:
            reading.lose(own.path("effort"), "not carried: the engine has one effort for the whole request")
        reading.lose_rest(own)
    parts = _spoken("system", read_blocks(message, "content", reading) or (), message.path("content"), reading)
    if parts and not (passed and message.get("clear_at", TEXT) == "next_user_message"):
        messages.append(Message("system", parts))
    message.ignore("clear_at")


def _read_turn(
    speaker: Literal["user", "assistant"], message: Members, messages: list[Message], reading: Reading
) -> None:
    blocks = read_blocks(message, "content", reading)
    if blocks is None:
        raise BadRequest(f"{message.path('content')}: Field required")
    parts = _spoken(speaker, blocks, message.path("content"), reading)
    if not message.get("content", TEXT_OR_RAWS):
        messages.append(Message(speaker, ()))
    for is_result, run in groupby(parts, lambda part: isinstance(part, ToolResult)):
        messages.append(Message("tool" if is_result else speaker, tuple(run)))


def _spoken(speaker: _Speaker, parts: Sequence[Part], where: str, reading: Reading) -> tuple[Part, ...]:
    """The parts that this speaker may say."""
    said: list[Part] = []
    for place, part in enumerate(parts):
        kept = without_billing(part, f"{where}[{place}]", reading) if speaker == "system" else part
        if kept is None:
            continue
        if isinstance(kept, _MAY_SAY[speaker]):
            said.append(kept)
        else:
            reading.lose(f"{where}[{place}]", f"left out: a {type(kept).__name__} in a message of the role {speaker}")
    return tuple(said)
