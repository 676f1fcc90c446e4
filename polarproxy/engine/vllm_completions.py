"""vLLM's `/v1/completions`: what to add to a request so that the reply carries ids and logprobs, and how to cut them out.

Written from vLLM 0.32 (`vllm/entrypoints/openai/completion`). Ids and logprobs stand in each choice: `prompt_token_ids` (in
a stream: in its first chunk), `token_ids` of what was sampled, and `logprobs`. What the client did not ask for becomes
`null`, which is what vLLM itself would have sent.

With `echo` the prompt stands in front of `text`, and its values in front of the logprobs; `token_ids` never holds it. But
`return_token_ids` takes the prompt out of `text` again, so here it is put back. Where it cannot be known, the request
goes to the engine as it is and its call has no ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine import plain
from polarproxy.engine.capture import decode_scalar, decode_usage, finish_reason, is_false, is_true
from polarproxy.engine.choice import NULL, Count, is_null
from polarproxy.engine.completion_capture import CompletionCapture
from polarproxy.engine.completion_prompt import only_prompt, text_of
from polarproxy.engine.cuts import nulled, place_of
from polarproxy.engine.plan import Plan, ReplyReader
from polarproxy.errors import UNREADABLE, BadReply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.engine.capture import Fields
    from polarproxy.engine.ids import ParsedIds

_encode = msgspec.json.Encoder().encode
_TRUE = msgspec.Raw(b"true")
_ZERO = msgspec.Raw(b"0")
_NO_ECHO = ("suffix", "prompt_embeds", "truncation_side")
"""Where vLLM refuses to echo, or echoes another text than it was given."""


class _Choice(msgspec.Struct):
    """The members of a choice that are read; the values stay the bytes that came in."""

    index: Count = 0
    text: msgspec.Raw = NULL
    token_ids: msgspec.Raw = NULL
    prompt_token_ids: msgspec.Raw = NULL
    logprobs: msgspec.Raw = NULL
    finish_reason: msgspec.Raw = NULL
    stop_reason: msgspec.Raw = NULL


class _Reply(msgspec.Struct):
    """A whole reply, or a chunk of one."""

    choices: list[_Choice] | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw = NULL
    model: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL


_reply = msgspec.json.Decoder(_Reply)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the client asked to see in its reply."""

    prompt_ids: bool = False
    token_ids: bool = False
    logprobs: bool = False
    echo: bool = False
    """Whether the engine puts the prompt's values in front of the logprobs."""
    prompt: bytes = b""
    """What to put in front of each choice's text, as the inside of a JSON string."""


def ask(fields: Fields, *, stream: bool) -> tuple[Fields, Asked] | None:
    """The request to send, and what the client itself asked for. None: it must go to the engine as it is.

    `echo` is sent on only when the client wants the prompt's logprobs: with logprobs of ours alone it would make the
    engine compute them, and leave its prefix cache aside.
    """
    prompt, logprobs = only_prompt(fields), not is_null(fields.get("logprobs"))
    # Logprobs of named tokens are refused without `logprobs`; with ours they would not be.
    if prompt is None or not (logprobs or is_null(fields.get("logprob_token_ids"))):
        return None
    echo, wants_ids = is_true(fields.get("echo")), is_true(fields.get("return_token_ids"))
    text = text_of(prompt) if echo and not wants_ids else ""
    if echo and (text is None or not _can_echo(fields)):
        return None
    sent = fields | {"return_token_ids": _TRUE}
    if not logprobs:
        sent["logprobs"] = _ZERO
        if echo:
            del sent["echo"]
    return sent, Asked(
        # A stream that echoes shows the prompt's ids to everybody.
        prompt_ids=wants_ids or (echo and stream),
        token_ids=wants_ids,
        logprobs=logprobs,
        echo=echo and logprobs,
        prompt=_encode(text or "")[1:-1],
    )


def _can_echo(fields: Fields) -> bool:
    """Whether the echo is the prompt as it was given, and something is sampled after it."""
    # Whatever is false in this way is no number of tokens but 0, with which only the prompt is answered.
    return not is_false(fields.get("max_tokens")) and all(is_null(fields.get(name)) for name in _NO_ECHO)


def plan(fields: Fields, *, stream: bool, earlier: ParsedIds | None = None) -> Plan:
    """How to send one request to vLLM and read what comes back. `earlier`: the session's previous prompt, if it is at hand."""
    asked = ask(fields, stream=stream)
    if asked is None:
        return plain.plan(fields, stream=stream)
    return Plan(body=_encode(asked[0]), stream=stream, reader=Reader(asked[1], earlier))


class Reader(ReplyReader):
    """Reads one reply, keeps its tokens in `capture`, and returns what the client is to see."""

    capture: CompletionCapture

    def __init__(self, asked: Asked, earlier: ParsedIds | None = None) -> None:
        super().__init__(CompletionCapture())
        self._asked = asked
        self._earlier = earlier
        self._begun: set[int] = set()

    def event(self, data: bytes) -> bytes:
        """The `data` of one chunk, as the client is to see it; raises `BadReply` when it is not one of this API."""
        reply = self._decode(data)
        if reply.choices is msgspec.UNSET:
            if not is_null(reply.error):
                self.capture.error = bytes(reply.error).decode("utf-8", "replace")
            return data
        return self._read(data, reply, reply.choices)

    def body(self, data: bytes) -> bytes:
        """A whole reply, as the client is to see it; raises `BadReply` when it is not one of this API."""
        reply = self._decode(data)
        if reply.choices is msgspec.UNSET:
            raise BadReply(f"the engine's reply has no choices: {data[:200]!r}")
        view = self._read(data, reply, reply.choices)
        self.capture.require_prompt()
        return view

    def _decode(self, data: bytes) -> _Reply:
        try:
            return _reply.decode(data)
        except UNREADABLE as error:
            raise BadReply(f"the engine's reply is not one of the completions API ({error}): {data[:200]!r}") from error

    def _read(self, data: bytes, reply: _Reply, choices: list[_Choice]) -> bytes:
        self._read_head(reply)
        asked, unasked = self._asked, list[msgspec.Raw]()
        for choice in choices:
            self._read_choice(choice)
            unasked += [choice.prompt_token_ids] * (not asked.prompt_ids)
            unasked += [choice.token_ids] * (not asked.token_ids) + [choice.logprobs] * (not asked.logprobs)
        unasked = [value for value in unasked if not is_null(value)]
        new = {choice.index for choice in choices} - self._begun
        self._begun |= new
        if asked.prompt and new:
            first = [choice.text for choice in choices if choice.index in new]
            return _nulled_and_echoed(data, unasked, first, asked.prompt)
        return nulled(data, unasked) if unasked else data

    def _read_head(self, reply: _Reply) -> None:
        capture = self.capture
        if capture.model is None:
            capture.model = decode_scalar(reply.model)
            capture.request_id = decode_scalar(reply.id)
        capture.usage = decode_usage(reply.usage) or capture.usage

    def _read_choice(self, choice: _Choice) -> None:
        capture, kept = self.capture, self.capture.choice(choice.index)
        if not capture.has_prompt and not is_null(choice.prompt_token_ids):
            capture.take_prompt(choice.prompt_token_ids, self._earlier)
        if self._asked.echo and capture.prompt is not None:
            kept.echoed = len(capture.prompt)
        kept.take(choice.token_ids, choice.logprobs)
        if kept.finish is None:
            kept.finish = finish_reason(choice.finish_reason)
            if kept.finish is not None:
                kept.stop = decode_scalar(choice.stop_reason)


def _nulled_and_echoed(
    whole: bytes, unasked: Iterable[msgspec.Raw], texts: Iterable[msgspec.Raw], prompt: bytes
) -> bytes:
    """The text with these values `null`, and with the prompt at the beginning of these strings."""
    pieces: list[bytes] = []
    at = 0
    cuts = [(*place_of(whole, value), b"null") for value in unasked]
    # Behind the quotation mark, where nothing is taken away.
    cuts += [(start + 1, start + 1, prompt) for start, _ in (place_of(whole, text) for text in texts)]
    for start, stop, put in sorted(cuts):
        pieces += (whole[at:start], put)
        at = stop
    return b"".join((*pieces, whole[at:]))
