"""OpenAI Completions: what a request says. Its errors are those of the chat API.

Only what the proxy itself must know is read. Everything else in a request is carried as the bytes that came in.
Source: OpenAI API reference, "Create completion"; vLLM's extra fields are documented in its OpenAI-compatible server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE
from polarproxy.model import Caveat
from polarproxy.wire.chat import fields as chat

if TYPE_CHECKING:
    from polarproxy.model import Sampling
    from polarproxy.wire.chat.fields import Fields

_list = msgspec.json.Decoder(list[msgspec.Raw])
_LIST_OF_PROMPTS = re.compile(rb'\[\s*["\[]')
_NOT_OURS = ("messages", "tools", "max_completion_tokens")
"""Members of the chat API that mean nothing here."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request as the client sent it."""

    fields: Fields
    model: str | None
    """None: the client named none."""
    stream: bool
    stream_usage: bool
    """Whether a stream is to end with a chunk of usage."""
    sampling: Sampling
    prompts: int = 1
    """How many prompts the request holds; each has `sampling.n` choices."""
    caveat: Caveat | None = None
    tools_digest: None = None
    """There are no tools in this API."""

    @property
    def choices(self) -> int:
        """How many choices the reply will have."""
        return self.sampling.n * self.prompts

    def resampled(self) -> CompletionRequest:
        """The same request, after its fields were changed."""
        return replace(self, sampling=chat.read_sampling(self.fields))

    def messages(self) -> list[msgspec.Raw]:
        """Always empty: a prompt is one text, in which what came before cannot be told from what is new.

        So a call that names no session is a session by itself: one that is split can be seen, one that is mixed cannot.
        """
        return []


def read_request(body: bytes) -> CompletionRequest:
    """Reads a request body; raises `BadRequest` when it is not a JSON object."""
    asked = chat.read_request(body)
    fields = asked.fields
    if any(name in fields for name in _NOT_OURS):
        ours = {name: value for name, value in fields.items() if name not in _NOT_OURS}
        asked = replace(chat.read_request(msgspec.json.encode(ours)), fields=fields)
    prompts = _count(fields.get("prompt"))
    return CompletionRequest(
        fields=fields,
        model=asked.model,
        stream=asked.stream,
        stream_usage=asked.stream_usage,
        sampling=asked.sampling,
        prompts=prompts,
        caveat=Caveat.SEVERAL_PROMPTS if prompts > 1 else asked.caveat,
    )


def _count(prompt: msgspec.Raw | None) -> int:
    """How many prompts: a text is one, and so is a list of ids. 1 for anything that is the engine's to refuse."""
    # The ids of a long prompt are not worth parsing to know that they are one prompt.
    if prompt is None or not _LIST_OF_PROMPTS.match(prompt):
        return 1
    try:
        return max(1, len(_list.decode(prompt)))
    except UNREADABLE:
        return 1
