"""llama.cpp's `/v1/completions`: asked in one piece, as for chat, since a matched stop string leaves its streams unseen.

Its logprobs have the form of the chat API here too, and `echo` and `suffix` mean nothing to it. A prompt of token ids is
what it conditions on; a text is turned into ids by the server's own tokenizer. Either way their number must equal
`tokens_evaluated`. A prompt that mixes texts and ids, which only this server takes, stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine import llamacpp, plain
from polarproxy.engine.choice import NULL
from polarproxy.engine.completion_prompt import is_text, only_prompt
from polarproxy.engine.ids import decode_ids
from polarproxy.engine.plan import FollowUp, Plan
from polarproxy.errors import BadReply

if TYPE_CHECKING:
    from polarproxy.engine.capture import Fields
    from polarproxy.model import TokenIds

_encode = msgspec.json.Encoder().encode
_number = msgspec.json.Decoder(int | bool | None)
_ADDED = {
    "stream": msgspec.Raw(b"false"),
    "return_tokens": msgspec.Raw(b"true"),
    "verbose": msgspec.Raw(b"true"),
}
_NOT_SENT = ("logprobs", "stream_options", "return_token_ids")


def plan(fields: Fields, *, stream: bool) -> Plan:
    """The request in one piece, asking for ids and one probability a token; as it is when it holds several prompts."""
    prompt = only_prompt(fields)
    if prompt is None:
        return plain.plan(fields, stream=stream)
    asked = _asked_for(fields)
    sent = {name: value for name, value in fields.items() if name not in _NOT_SENT} | _ADDED
    sent["n_probs"] = msgspec.Raw(_encode(max(1, asked)))
    return Plan(body=_encode(sent), stream=False, reader=Reader(prompt, logprobs=asked > 0))


def _asked_for(fields: Fields) -> int:
    """How many values a token the client wants to see; the server's own name for it goes first."""
    try:
        return int(_number.decode(fields.get("n_probs", fields.get("logprobs", NULL))) or 0)
    except msgspec.ValidationError:
        return 0


class Reader(llamacpp.Reader):
    """Takes ids and logprobs out of a verbose reply."""

    def __init__(self, prompt: msgspec.Raw, *, logprobs: bool) -> None:
        super().__init__(logprobs=logprobs)
        self._given = bytes(prompt) if is_text(prompt) else _ids(prompt)

    def body(self, data: bytes) -> bytes:
        view = super().body(data)
        given, verbose = self._given, self._prompt
        if verbose is not None and given is not None and not isinstance(given, bytes):
            self.capture.prompt = given if len(given) == verbose.tokens_evaluated else None
        return view

    def follow_up(self) -> FollowUp | None:
        if self._prompt is None or not isinstance(self._given, bytes):
            return None
        body = {"content": msgspec.Raw(self._given), "add_special": True, "parse_special": True, "with_pieces": True}
        return FollowUp("/tokenize", _encode(body))

    def _choice(self, choice: Fields, verbose: llamacpp._Verbose) -> None:
        super()._choice(choice, verbose)
        # What chat leaves out is null here.
        choice.setdefault("logprobs", NULL)


def _ids(prompt: msgspec.Raw) -> TokenIds | None:
    """None when texts are among them."""
    try:
        return decode_ids(prompt)
    except BadReply:
        return None
