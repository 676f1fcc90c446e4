"""Neutral values that OpenAI Chat can say, for its laws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.wire.neutral.strategies import media_parts, replies, requests

if TYPE_CHECKING:
    from polarproxy.wire.neutral.request import Request

_SENT_MEDIA = media_parts(("image", "audio", "video"), wildcard=True) | media_parts(
    ("image",), wildcard=True, details=True
)
_ANY_MEDIA = _SENT_MEDIA | media_parts(("document",), urls=False, names=True)
_ENGINE_EXTRA = st.dictionaries(st.sampled_from(("min_p", "repetition_penalty")), st.just(b"0.10"), max_size=2)


def _asked_in_a_stream(request: Request) -> Request:
    return replace(request, stream_usage=request.stream and request.stream_usage)


CHAT_REQUESTS = requests(
    media=_ANY_MEDIA,
    namespaces=False,
    seals=False,
    order="chat",
    result_errors=False,
    result_names=True,
    reasoning=("enabled", "effort", "budget", "shown"),
).map(_asked_in_a_stream)
"""Requests that any reader of chat is told without loss."""

ENGINE_REQUESTS = requests(
    media=_SENT_MEDIA,
    media_in_results=False,
    namespaces=False,
    seals=False,
    order="chat",
    result_errors=False,
    developers=False,
    extra=_ENGINE_EXTRA,
).map(_asked_in_a_stream)
"""Requests that an engine is told without loss."""

CHAT_REPLIES = replies(order="chat")
"""Replies in the order in which a message of chat says its parts."""

SDK_REPLIES = replies(order="chat", finishes=("stop", "stop_sequence", "length", "tool_calls", "content_filter"))
"""Those whose end the OpenAI SDK has a type for; `abort` is vLLM's own."""
