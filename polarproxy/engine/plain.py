"""Any other server of the chat API: relayed and recorded, without token ids, and so never trained."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from polarproxy.engine.capture import Capture, Fields, choice_index, decode_scalar, decode_usage, finish_reason
from polarproxy.engine.choice import NULL, is_null
from polarproxy.engine.plan import Plan, ReplyReader
from polarproxy.errors import UNREADABLE, BadReply

_object = msgspec.json.Decoder(Fields)
_choices = msgspec.json.Decoder(list[Fields] | None)
_encode = msgspec.json.Encoder().encode


def plan(fields: Fields, *, stream: bool) -> Plan:
    """The request as it came."""
    return Plan(body=_encode(fields), stream=stream, reader=Reader())


class Reader(ReplyReader):
    """Looks on; changes nothing."""

    def __init__(self) -> None:
        super().__init__(Capture())

    def event(self, data: bytes) -> bytes:
        """The chunk as it came; raises `BadReply` when it cannot be read: it may be one that ends the reply."""
        self._look(data)
        return data

    def body(self, data: bytes) -> bytes:
        """The reply as it came, of whatever form: with several prompts llama.cpp answers with an array."""
        with suppress(BadReply):
            self._look(data)
        return data

    def _look(self, data: bytes) -> None:
        try:
            reply = _object.decode(data)
            choices = _choices.decode(reply.get("choices", NULL)) or ()
        except UNREADABLE as bad:
            raise BadReply(f"the engine's reply is not one of the chat API ({bad}): {data[:200]!r}") from bad
        capture = self.capture
        if (error := reply.get("error")) is not None and not is_null(error):
            capture.error = bytes(error).decode("utf-8", "replace")
        capture.model = capture.model or decode_scalar(reply.get("model"))
        capture.request_id = capture.request_id or decode_scalar(reply.get("id"))
        capture.usage = decode_usage(reply.get("usage")) or capture.usage
        for choice in choices:
            kept = capture.choice(choice_index(choice))
            kept.finish = kept.finish or finish_reason(choice.get("finish_reason"))
