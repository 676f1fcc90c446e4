"""Counting the tokens of a prompt: asked of the engine's tokenizer, never a generation, never recorded as a call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine import counting
from polarproxy.errors import NotOffered
from polarproxy.model import Dialect
from polarproxy.proxy.replies import refuse
from polarproxy.proxy.server.response import Response
from polarproxy.wire.chat.errors import read_error
from polarproxy.wire.chat.fields import read_request
from polarproxy.wire.chat.request import encode_request
from polarproxy.wire.gemini import count as gemini
from polarproxy.wire.messages import count as messages
from polarproxy.wire.messages.request import decode_request as read_messages
from polarproxy.wire.responses.request import decode_request as read_responses
from polarproxy.wire.surrogates import read_leniently

if TYPE_CHECKING:
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.upstream import Upstream
    from polarproxy.proxy.visit import Visit
    from polarproxy.wire.chat.fields import Fields
    from polarproxy.wire.neutral.request import Decoded


def _read(visit: Visit, body: bytes) -> Decoded:
    match visit.route.dialect:
        case Dialect.MESSAGES:
            return read_messages(body, counting=True)
        case Dialect.GEMINI:
            return gemini.decode_count(body, model=visit.route.model or "")
        case _:
            return read_responses(body)


def _answer(dialect: Dialect, tokens: int) -> bytes:
    match dialect:
        case Dialect.MESSAGES:
            return messages.encode_count(tokens)
        case Dialect.GEMINI:
            return gemini.encode_count(tokens)
        case _:
            return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": tokens})


async def serve_count(parts: Parts, visit: Visit, body: bytes) -> Response:
    """How many tokens the prompt has; raises `BadRequest`, `NotOffered`, `BadReply`, `EngineUnreachable`, `EngineTimeout`."""
    decoded, _ = read_leniently(partial(_read, visit), body)
    fields = read_request(encode_request(decoded.request).body).fields
    chosen = await parts.fleet.choose(visit.address.session_id, decoded.request.model)
    upstream = chosen.upstream
    if chosen.model is not None:
        fields["model"] = msgspec.Raw(msgspec.json.encode(chosen.model))
    facts = await upstream.facts()
    if facts.name == "vllm":
        status, answer = await upstream.ask("POST", "/tokenize", counting.vllm_request(fields))
        count = counting.read_vllm
    elif facts.name == "llamacpp":
        status, answer = await _ask_llamacpp(upstream, fields)
        count = counting.read_llamacpp
    else:
        raise NotOffered(f"the engine at {upstream.name} has no tokenizer to count with")
    if status != 200:
        return refuse(status, read_error(answer)[1], visit.route.dialect)
    return Response.of_json(_answer(visit.route.dialect, count(answer)))


async def _ask_llamacpp(upstream: Upstream, fields: Fields) -> tuple[int, bytes]:
    status, rendered = await upstream.ask("POST", "/apply-template", counting.template_request(fields))
    if status != 200:
        return status, rendered
    return await upstream.ask("POST", "/tokenize", counting.tokenize_request(rendered))
