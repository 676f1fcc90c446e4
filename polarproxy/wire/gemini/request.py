"""The body of `generateContent` and `streamGenerateContent`, to and from the neutral request.

Source: Gemini API reference, "Generating content" (`GenerateContentRequest`). The model and whether the reply is streamed
stand in the path, not in the body.
`encode_request` is for clients and for the laws; the proxy itself only reads requests of this dialect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polarproxy.errors import BadRequest
from polarproxy.wire.gemini.findings import Findings
from polarproxy.wire.gemini.members import Members, read_body
from polarproxy.wire.gemini.read_config import configured
from polarproxy.wire.gemini.read_contents import Conversation, read_system
from polarproxy.wire.gemini.read_tools import known_as, read_tool_config, read_tools
from polarproxy.wire.gemini.write_request import encode_request as encode_request
from polarproxy.wire.neutral.request import Decoded, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.wire.neutral.request import Message


def decode_request(body: bytes, *, model: str, stream: bool) -> Decoded:
    """The request in `body`. `model` is the path's, without `models/`; raises `BadRequest`."""
    return decode_members(read_body(body), model=model, stream=stream)


def decode_members(members: Members, *, model: str, stream: bool) -> Decoded:
    """The request that these members are; raises `BadRequest`."""
    findings = Findings()
    _refuse_cache(members)
    _compare_models(members, model, findings)
    tools = read_tools(members.messages("tools") or (), findings)
    names = known_as(tools)
    request = Request(
        model=model,
        messages=_messages(members, names, findings),
        stream=stream,
        tools=tools,
        tool_choice=read_tool_config(members.message("toolConfig"), names, findings),
        metadata=members.map("labels") or {},
    )
    request = configured(request, members.message("generationConfig"), findings)
    findings.keep_rest(members)
    return Decoded(replace(request, extra=findings.extra), tuple(findings.losses))


def _messages(members: Members, names: Mapping[str, str], findings: Findings) -> tuple[Message, ...]:
    contents = members.messages("contents")
    if not contents:
        raise BadRequest("contents is missing or empty")
    system = read_system(members, findings)
    conversation = Conversation(names, findings)
    for content in contents:
        conversation.add(content)
    conversation.end_turn()
    return (*system, *conversation.messages)


def _refuse_cache(members: Members) -> None:
    """Without what was cached the prompt would be another one, so this cannot be a loss."""
    if members.text("cachedContent"):
        raise BadRequest("cachedContent: contents are not cached here; send them with the request")


def _compare_models(members: Members, model: str, findings: Findings) -> None:
    named = members.text("model")
    if named is not None and named.removeprefix("models/") != model:
        findings.lose("model", f"the path names {model!r}, and that is what is used")
