"""How many tokens a chat request is for the engine, by the engine's own template and tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadReply

if TYPE_CHECKING:
    from polarproxy.engine.capture import Fields

_VLLM = ("model", "messages", "tools", "chat_template_kwargs")
_LLAMACPP = ("messages", "tools", "tool_choice", "chat_template_kwargs")


class _Count(msgspec.Struct):
    count: int


class _Prompt(msgspec.Struct):
    prompt: str


class _Tokens(msgspec.Struct):
    tokens: list[msgspec.Raw]


def vllm_request(fields: Fields) -> bytes:
    """For vLLM's `POST /tokenize`."""
    return msgspec.json.encode({name: fields[name] for name in _VLLM if name in fields})


def read_vllm(body: bytes) -> int:
    """From its answer; raises `BadReply`."""
    try:
        return msgspec.json.decode(body, type=_Count).count
    except UNREADABLE as error:
        raise BadReply(f"the engine's tokenizer answered something else: {body[:200]!r}") from error


def template_request(fields: Fields) -> bytes:
    """For llama.cpp's `POST /apply-template`."""
    return msgspec.json.encode({name: fields[name] for name in _LLAMACPP if name in fields})


def tokenize_request(rendered: bytes) -> bytes:
    """For llama.cpp's `POST /tokenize`, from the rendered prompt; raises `BadReply`."""
    try:
        prompt = msgspec.json.decode(rendered, type=_Prompt).prompt
    except UNREADABLE as error:
        raise BadReply(f"the engine's template answered something else: {rendered[:200]!r}") from error
    return msgspec.json.encode({"content": prompt, "add_special": True, "parse_special": True})


def read_llamacpp(body: bytes) -> int:
    """From its answer; raises `BadReply`."""
    try:
        return len(msgspec.json.decode(body, type=_Tokens).tokens)
    except UNREADABLE as error:
        raise BadReply(f"the engine's tokenizer answered something else: {body[:200]!r}") from error
