"""One form for requests that say the same, where dialects have two ways or none: what is told apart here is content."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from polarproxy.wire.neutral.request import (
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)

_NO_PARAMETERS = b'{"type":"object","properties":{}}'


def normal(request: Request) -> Request:
    """The request in that form. Messages of an assistant in a row are one turn of it; empty messages say nothing."""
    numbers = _Numbers()
    messages: list[Message] = []
    for message in request.messages:
        parts = tuple(numbers.part(part) for part in message.parts)
        before = messages[-1] if messages else None
        if before is not None and before.role == message.role == "assistant":
            messages[-1] = replace(before, parts=_joined(before.parts + parts), name=before.name or message.name)
        elif parts:
            messages.append(replace(message, parts=_joined(parts) if message.role == "assistant" else parts))
    return replace(
        request,
        messages=tuple(messages),
        tools=tuple(_tool(tool) for tool in request.tools),
        reasoning=None if request.reasoning is None else _reasoning(request.reasoning),
    )


@dataclass
class _Numbers:
    """Ids of calls by their order; results lose the name that their call has."""

    ids: dict[str, str] = field(default_factory=dict)
    unnamed: list[str] = field(default_factory=list)
    made: int = 0

    def part(self, part: Part) -> Part:
        match part:
            case ToolUse():
                self.made += 1
                number = str(self.made)
                if part.id:
                    self.ids[part.id] = number
                else:
                    self.unnamed.append(number)
                return replace(part, id=number, arguments=part.arguments or "{}")
            case ToolResult():
                number = self.ids.get(part.id, part.id) if part.id else self.unnamed.pop(0)
                content = tuple(_media(each) if isinstance(each, Media) else each for each in part.content)
                return replace(part, id=number, name=None, content=content)
            case Media():
                return _media(part)
        return part


def _media(media: Media) -> Media:
    """The engine finds out itself what is at an address; a document that must have a name is called one."""
    kind = media.mime.partition("/")[0]
    known = media.url.startswith("data:") or kind == "application"
    return replace(
        media, mime=media.mime if known else f"{kind}/*", name=None if media.name == "document" else media.name
    )


def _joined(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """What an assistant says in two pieces, it says in one."""
    joined: list[Part] = []
    for part in parts:
        match (joined[-1] if joined else None, part):
            case (Text(before), Text(after)):
                joined[-1] = Text(before + after)
            case (Thinking(before, None), Thinking(after, None)):
                joined[-1] = Thinking(before + after)
            case _:
                joined.append(part)
    return tuple(joined)


def _tool(tool: Tool) -> Tool:
    """The name of a tool tells its namespace; a tool that declares no parameters has none."""
    return replace(tool, namespace=None, own_name=None, parameters=tool.parameters or _NO_PARAMETERS)


def _reasoning(reasoning: Reasoning) -> Reasoning | None:
    """No effort is no reasoning, any effort or budget is some, and what nobody hides is shown."""
    enabled, effort = reasoning.enabled, reasoning.effort
    if effort == "none":
        enabled, effort = False, None
    elif enabled is None and (effort is not None or reasoning.budget is not None):
        enabled = True
    budget = None if enabled is False else reasoning.budget
    normal = Reasoning(enabled, effort, budget, None if reasoning.shown else reasoning.shown)
    return None if normal == Reasoning() else normal
