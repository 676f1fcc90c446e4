"""Every dialect to every other: what a client of one says comes out of the other as it was, or a loss tells where not.

A request is first said in the source dialect, so that it is one that its clients can send. A loss covers the members of the
neutral request that its path begins with. Each kind of content is drawn by itself, since a loss for one would cover up for
a silent one of another.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from polarproxy.wire.bedrock.request import decode_request as read_bedrock
from polarproxy.wire.bedrock.write_request import encode_request as write_bedrock
from polarproxy.wire.chat.request import decode_request as read_chat
from polarproxy.wire.chat.request import encode_request as write_chat
from polarproxy.wire.gemini.request import decode_request as read_gemini
from polarproxy.wire.gemini.write_request import encode_request as write_gemini
from polarproxy.wire.messages.request import decode_request as read_messages
from polarproxy.wire.messages.request import encode_request as write_messages
from polarproxy.wire.neutral.request import Decoded, Encoded, Request
from polarproxy.wire.responses.request import decode_request as read_responses
from polarproxy.wire.responses.request import encode_request as write_responses
from tests.wire.neutral.normal import normal
from tests.wire.neutral.strategies import EVERY_MEMBER, media_parts, requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polarproxy.model import Loss


@dataclass(frozen=True)
class Dialect:
    """How a dialect is written and read; the path of two of them holds the model and whether the reply is streamed."""

    encode: Callable[[Request], Encoded]
    decode: Callable[[bytes, Request], Decoded]

    def say(self, request: Request) -> tuple[Request, tuple[Loss, ...]]:
        """What a reader of this dialect understands of a request, and what was reported to be lost."""
        encoded = self.encode(request)
        decoded = self.decode(encoded.body, request)
        return decoded.request, (*encoded.losses, *decoded.losses)


DIALECTS = {
    "chat": Dialect(lambda request: write_chat(request, keep_unknown=True), lambda body, _: read_chat(body)),
    "responses": Dialect(write_responses, lambda body, _: read_responses(body)),
    "messages": Dialect(write_messages, lambda body, _: read_messages(body)),
    "gemini": Dialect(
        write_gemini, lambda body, asked: read_gemini(body, model=asked.model or "", stream=asked.stream)
    ),
    "bedrock": Dialect(
        write_bedrock, lambda body, asked: read_bedrock(body, model=asked.model or "", stream=asked.stream)
    ),
}
ENGINE = Dialect(write_chat, lambda body, _: read_chat(body))

_PLAIN: dict[str, Any] = {
    "systems": "first",
    "developers": False,
    "message_names": False,
    "media": False,
    "result_errors": False,
    "one_text": True,
    "namespaces": False,
    "strict": False,
    "parameters": "always",
    "arguments": "object",
    "thinking": False,
    "order": "chat",
    "outputs": (),
    "reasoning": (),
    "members": ("max_tokens", "temperature"),
    "extra": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "systems anywhere": {"systems": "anywhere"},
    "developers": {"developers": True},
    "names": {"message_names": True, "result_names": True},
    "images": {"media": media_parts(("image",), urls=False)},
    "media": {"media": True},
    "failed results": {"result_errors": True},
    "several texts": {"one_text": False},
    "tools": {"namespaces": True, "strict": True, "parameters": "any"},
    "arguments": {"arguments": "any"},
    "thinking": {"thinking": True, "seals": False},
    "seals": {"thinking": True, "seals": True},
    "order": {"thinking": True, "seals": False, "order": "any"},
    "no ids": {"tool_ids": False, "result_names": True},
    "outputs": {"outputs": ("schema", "object")},
    "reasoning": {"reasoning": ("enabled", "effort", "budget")},
    "hidden reasoning": {"reasoning": ("shown",)},
    "members": {"members": tuple(name for name in EVERY_MEMBER if name != "stream_usage")},
    "extra": {"extra": True},
}
"""What is drawn besides the plainest conversation, by name."""

_COVERS = {
    "system": "messages",
    "contents": "messages",
    "input": "messages",
    "text": "output",
    "outputConfig": "output",
    "thinking": "reasoning",
}
"""The member of the neutral request that the first word of a path is about, where it is another word."""


def _covered(losses: Iterable[Loss], said: Request) -> set[str]:
    heads = {loss.where.split(".")[0].split("[")[0] for loss in losses}
    named = {"extra" if head in said.extra else _COVERS.get(head, head) for head in heads}
    if any(loss.where.startswith("output_config.effort") for loss in losses):
        named.add("reasoning")
    if any(loss.where.startswith("output_config.format") for loss in losses):
        named.add("output")
    return named


def _unlike(said: Request, heard: Request) -> set[str]:
    """The members in which the two differ."""
    one, other = normal(said), normal(heard)
    return {each.name for each in fields(Request) if getattr(one, each.name) != getattr(other, each.name)}


def _said(data: st.DataObject, kind: str, source: str) -> Request:
    """A request of this kind as a client of the source dialect can send it."""
    drawn = replace(data.draw(requests(**{**_PLAIN, **KINDS[kind]})), max_tokens=100)
    assume(any(message.role in ("user", "assistant") for message in drawn.messages))
    said, _ = DIALECTS[source].say(drawn)
    return replace(said, max_tokens=100)


@pytest.mark.parametrize(("kind", "target"), [(kind, target) for kind in KINDS for target in DIALECTS])
@settings(max_examples=8)
@given(data=st.data())
def test_what_one_dialect_says_another_repeats_or_reports(kind: str, target: str, data: st.DataObject) -> None:
    said = _said(data, kind, data.draw(st.sampled_from(sorted(DIALECTS))))
    heard, losses = DIALECTS[target].say(said)
    assert _unlike(said, heard) <= _covered(losses, said), (losses, said, heard)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(data=st.data())
def test_what_a_dialect_says_the_engine_is_told_or_it_is_reported(kind: str, data: st.DataObject) -> None:
    said = _said(data, kind, data.draw(st.sampled_from(sorted(DIALECTS))))
    heard, losses = ENGINE.say(said)
    assert _unlike(_for_engine(said), heard) <= _covered(losses, said), (losses, said, heard)


def _for_engine(said: Request) -> Request:
    """A developer is a system to an engine, and what is not to be shown is hidden when the reply is written."""
    messages = (replace(each, role="system" if each.role == "developer" else each.role) for each in said.messages)
    return replace(said, messages=tuple(messages), reasoning=said.reasoning and replace(said.reasoning, shown=None))
