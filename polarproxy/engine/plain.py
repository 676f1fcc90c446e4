"""Any other server of the chat API: relayed and recorded, without token ids, and so never trained."""

from __future__ import annotations

import msgspec

from polarproxy.engine.capture import Capture, Fields, choice_index, decode_scalar, decode_usage, finish_reason
from polarproxy.engine.plan import Plan, ReplyReader

_object = msgspec.json.Decoder(Fields)
_choices = msgspec.json.Decoder(list[Fields])
_encode = msgspec.json.Encoder().encode


def plan(fields: Fields, *, stream: bool) -> Plan:
    """The request as it came."""
    return Plan(body=_encode(fields), stream=stream, reader=Reader())


class Reader(ReplyReader):
    """Looks on; changes nothing."""

    def __init__(self) -> None:
        super().__init__(Capture())

    def event(self, data: bytes) -> bytes:
        self._look(data)
        return data

    def body(self, data: bytes) -> bytes:
        self._look(data)
        return data

    def _look(self, data: bytes) -> None:
        try:
            reply = _object.decode(data)
            choices = _choices.decode(reply["choices"]) if "choices" in reply else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        capture = self.capture
        if "error" in reply:
            capture.error = bytes(reply["error"]).decode("utf-8", "replace")
        capture.model = capture.model or decode_scalar(reply.get("model"))
        capture.request_id = capture.request_id or decode_scalar(reply.get("id"))
        capture.usage = decode_usage(reply.get("usage")) or capture.usage
        for choice in choices:
            kept = capture.choice(choice_index(choice))
            kept.finish = kept.finish or finish_reason(choice.get("finish_reason"))
