"""System prompts and messages, both ways.

Here the results of tool calls are blocks of a user's message, beside its text; in the neutral form they are messages of
their own. A message is cut where results and other blocks meet; results that come to stand together become one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.model import Loss
from polarproxy.wire.bedrock.read_content import read_block
from polarproxy.wire.bedrock.shapes import MessageShape
from polarproxy.wire.bedrock.write_content import write_blocks
from polarproxy.wire.neutral.joining import joined
from polarproxy.wire.neutral.request import Media, Message, Part, Role, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import msgspec

    from polarproxy.wire.bedrock.reading import Block, Reader

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_MAY_HOLD: dict[Role, tuple[type[Part], ...]] = {
    "system": (Text,),
    "user": (Text, Media),
    "assistant": (Thinking, Text, ToolUse),
}
_ROLE_OF: dict[Role, str] = {"tool": "user", "developer": "system"}


def read_system(reader: Reader, blocks: Sequence[Block]) -> list[Message]:
    """The system prompt: one message, or none."""
    parts: list[Part] = []
    for place, block in enumerate(blocks):
        at = f"system[{place}]"
        parts.extend(_allowed(reader, "system", read_block(reader, block, at), at))
    return [Message("system", tuple(parts))] if parts else []


def read_messages(reader: Reader, raws: Sequence[msgspec.Raw]) -> tuple[Message, ...]:
    """The messages, in canonical form."""
    read = (message for place, raw in enumerate(raws) for message in read_message(reader, raw, f"messages[{place}]"))
    return joined(read, ("tool",))


def read_message(reader: Reader, raw: msgspec.Raw, where: str) -> list[Message]:
    """One message of the API: as many as its tool results cut it into."""
    shape = reader.read(raw, MessageShape, where)
    if shape.role not in _ROLES:
        raise reader.error(f"{where}.role: expected `user`, `assistant` or `system`, got {shape.role!r}")
    role = _ROLES[shape.role]
    runs: list[tuple[Role, list[Part]]] = []
    for place, block in enumerate(shape.content):
        at = f"{where}.content[{place}]"
        for part in read_block(reader, block, at):
            of: Role = "tool" if isinstance(part, ToolResult) else role
            if not runs or runs[-1][0] != of:
                runs.append((of, []))
            runs[-1][1].extend([part] if of == "tool" else _allowed(reader, role, [part], at))
    return [Message(of, tuple(parts)) for of, parts in runs if parts] or [Message(role, ())]


def _allowed(reader: Reader, role: Role, parts: Iterable[Part], where: str) -> list[Part]:
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, _MAY_HOLD[role]):
            kept.append(part)
        else:
            reader.lose(where, f"{type(part).__name__} cannot stand in a message of the role `{role}`; left out")
    return kept


def write_conversation(messages: Sequence[Message], losses: list[Loss]) -> tuple[list[Block], list[MessageShape]]:
    """The system prompt (the first message, if it is one) and the other messages.

    Results of tools and the user's message after them go into one message, since this API wants roles to alternate.
    """
    leads = bool(messages) and messages[0].role == "system"
    system = _blocks(messages[0], 0, losses) if leads else []
    shapes: list[MessageShape] = []
    for place, message in enumerate(messages[leads:], int(leads)):
        blocks = _blocks(message, place, losses)
        if message.role == "user" and place and messages[place - 1].role == "tool":
            shapes[-1] = MessageShape("user", shapes[-1].content + blocks)
        else:
            shapes.append(MessageShape(_ROLE_OF.get(message.role, message.role), blocks))
    return system, shapes


def _blocks(message: Message, place: int, losses: list[Loss]) -> list[Block]:
    where = f"messages[{place}]"
    if message.name is not None:
        losses.append(Loss(f"{where}.name", "messages have no names in this API; left out"))
    if message.role == "developer":
        losses.append(Loss(f"{where}.role", "this API has no role `developer`; sent as `system`"))
    return write_blocks(message.parts, f"{where}.parts", losses)
