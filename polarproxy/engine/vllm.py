"""vLLM: what to add to a chat request so that the reply carries ids and logprobs, and how to take them out again.

Written from vLLM 0.32 (`vllm/entrypoints/openai/chat_completion`). `prompt_token_ids` stands at the top of a reply (in a
stream: of the first chunk of each choice), `token_ids` and `logprobs` in each choice, also in chunks with an empty delta.
What the client did not ask for becomes `null`, which is what vLLM itself would have sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine.capture import (
    Capture,
    Fields,
    choice_index,
    decode_scalar,
    decode_usage,
    finish_reason,
    is_false,
    is_true,
)
from polarproxy.engine.choice import NULL, Count, is_null
from polarproxy.engine.cuts import nulled
from polarproxy.engine.plan import Plan, ReplyReader
from polarproxy.engine.vllm_event import read_sampled
from polarproxy.engine.vllm_whole import read_whole
from polarproxy.errors import UNREADABLE, BadReply

if TYPE_CHECKING:
    from polarproxy.engine.ids import JsonText, ParsedIds
    from polarproxy.model import TokenIds

_object = msgspec.json.Decoder(Fields)
_choices = msgspec.json.Decoder(list[Fields])
_encode = msgspec.json.Encoder().encode


class _Choice(msgspec.Struct):
    index: Count = 0
    token_ids: msgspec.Raw = NULL
    logprobs: msgspec.Raw = NULL
    finish_reason: msgspec.Raw = NULL
    stop_reason: msgspec.Raw = NULL


class _Reply(msgspec.Struct):
    """The members of a whole reply that are read; the values stay the bytes that came in."""

    choices: list[_Choice]
    id: msgspec.Raw = NULL
    model: msgspec.Raw = NULL
    prompt_token_ids: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL


_reply = msgspec.json.Decoder(_Reply)

_TRUE = msgspec.Raw(b"true")
_ZERO = msgspec.Raw(b"0")
_REASONING = ("reasoning", "reasoning_content")
_NOTHING = (b"null", b'""', b"[]")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the client asked to see in its reply."""

    prompt_ids: bool = False
    token_ids: bool = False
    logprobs: bool = False
    reasoning: bool = True

    @property
    def everything(self) -> bool:
        """Whether a reply can go to the client as it is."""
        return self.prompt_ids and self.token_ids and self.logprobs and self.reasoning


_EVERYTHING = Asked(prompt_ids=True, token_ids=True, logprobs=True, reasoning=True)
_SHOWN = {_EVERYTHING: True, Asked(): False}
"""Whether clients that want all or nothing get to see what was sampled as it is. The others are few."""


def ask(fields: Fields) -> tuple[Fields, Asked]:
    """The request to send, and what the client itself asked for.

    `top_logprobs` must be a number: a null switches logprobs off in silence. Without `logprobs` a positive one is refused,
    as are those of named tokens, and stays so. `include_reasoning: false` suppresses ids, so it is never sent on; the
    reasoning is taken out of the reply instead. `stream_options` is left alone: a usage chunk that nobody asked for takes
    `system_fingerprint` away from the last choice.
    """
    hidden = is_false(fields.get("include_reasoning"))
    top = bytes(fields.get("top_logprobs", _ZERO))
    wants_ids = is_true(fields.get("return_token_ids"))
    asked = Asked(
        prompt_ids=wants_ids,
        token_ids=wants_ids and not hidden,
        logprobs=is_true(fields.get("logprobs")) and top != b"null" and not hidden,
        reasoning=not hidden,
    )
    sent = {name: value for name, value in fields.items() if not (hidden and name == "include_reasoning")}
    sent["return_token_ids"] = _TRUE
    named = not is_null(fields.get("logprob_token_ids"))
    if is_true(fields.get("logprobs")) or (top in (b"0", b"null") and not named):
        sent["logprobs"] = _TRUE
        sent["top_logprobs"] = _ZERO if top == b"null" else msgspec.Raw(top)
    return sent, asked


def plan(fields: Fields, *, stream: bool, earlier: ParsedIds | None = None, as_it_comes: bool = False) -> Plan:
    """How to send one request to vLLM and read what comes back.

    `earlier`: the session's previous prompt, if it is at hand. `as_it_comes`: the reply is read once more, by who puts it
    into another dialect, so that nothing need be cut out of it.
    """
    sent, asked = ask(fields)
    return Plan(body=_encode(sent), stream=stream, reader=Reader(_EVERYTHING if as_it_comes else asked, earlier))


def forced(body: bytes, prompt: TokenIds) -> bytes:
    """The body of a plan, with a prompt instead of the one that vLLM would render; its parsers run as ever.

    Meant for disaggregated serving, which needs no connector to be taken. Ignored with media in the messages.
    """
    ids = _encode({"prompt_token_ids": prompt.array.tolist()})
    return b'%b,"kv_transfer_params":%b}' % (body[:-1], ids)


class Reader(ReplyReader):
    """Reads one reply, keeps its tokens in `capture`, and returns what the client is to see."""

    def __init__(self, asked: Asked, earlier: ParsedIds | None = None) -> None:
        super().__init__(Capture())
        self._asked = asked
        self._earlier = earlier
        self._shown = _SHOWN.get(asked)

    def event(self, data: bytes) -> bytes | None:
        """The `data` of one chunk, as the client is to see it; None when it would not have been sent to this client.

        Raises `BadReply` when it is not a chunk of the chat API.
        """
        # The first event tells more than what was sampled.
        if self._shown is not None and self.capture.model is not None:
            sampled = read_sampled(data)
            # What comes after the end of a choice is shown in any case.
            if sampled is not None and (sampling := self.capture.choice(sampled.choice)).finish is None:
                sampling.take_few(sampled.token_ids, sampled.logprobs)
                return data if self._shown else sampled.view
        chunk = self._object(data)
        if "choices" not in chunk:
            return self._without_choices(chunk, data)
        self._head(chunk)
        choices = self._choice_list(chunk)
        if not choices:
            return data
        kept = [choice for choice in choices if self._choice(choice, "delta")]
        if self._asked.everything:
            return data
        if not kept:
            return None
        return self._encode(chunk, kept)

    def body(self, data: bytes) -> bytes:
        """A whole reply, as the client is to see it; raises `BadReply` when it is not one of the chat API."""
        view = self._cut_body(data) if self._asked.reasoning else self._rewrite_body(data)
        self.capture.require_prompt()
        return view

    def _cut_body(self, data: bytes) -> bytes:
        """What the client did not ask for is cut out where it stands."""
        view = None if self._asked.logprobs else self._cut_in_one_pass(data)
        return self._cut_anywhere(data) if view is None else view

    def _cut_in_one_pass(self, data: bytes) -> bytes | None:
        """None: the reply is not quite as vLLM writes it, and nothing was kept of it."""
        asked = self._asked
        read = read_whole(data, cut_prompt=not asked.prompt_ids, cut_sampled=not asked.token_ids)
        if read is None:
            return None
        reply = read.reply
        (choice,) = reply.choices
        self._read_head(read.prompt, reply.model, reply.id, reply.usage)
        self.capture.choice(choice.index).take_whole(read.sampled, read.logprobs, read.numbers)
        self._read_end(choice.index, choice.finish_reason, choice.stop_reason)
        return read.view

    def _cut_anywhere(self, data: bytes) -> bytes:
        try:
            reply = _reply.decode(data)
        except UNREADABLE as error:
            raise BadReply(f"the engine's reply is not one of the chat API ({error}): {data[:200]!r}") from error
        asked, unasked = self._asked, []
        self._read_head(reply.prompt_token_ids, reply.model, reply.id, reply.usage)
        if not asked.prompt_ids:
            unasked.append(reply.prompt_token_ids)
        for choice in reply.choices:
            self._read_choice(choice.index, choice.token_ids, choice.logprobs, choice.finish_reason, choice.stop_reason)
            unasked += [choice.token_ids] * (not asked.token_ids) + [choice.logprobs] * (not asked.logprobs)
        return nulled(data, (value for value in unasked if not is_null(value)))

    def _rewrite_body(self, data: bytes) -> bytes:
        """For a client that wants no reasoning, which stands inside the message."""
        reply = self._object(data)
        if "choices" not in reply:
            raise BadReply(f"the engine's reply has no choices: {data[:200]!r}")
        self._head(reply)
        choices = self._choice_list(reply)
        for choice in choices:
            self._choice(choice, "message")
        return self._encode(reply, choices)

    def _object(self, data: bytes) -> Fields:
        try:
            return _object.decode(data)
        except UNREADABLE as error:
            raise BadReply(f"the engine sent something that is not a JSON object: {data[:200]!r}") from error

    def _choice_list(self, reply: Fields) -> list[Fields]:
        try:
            return _choices.decode(reply["choices"])
        except UNREADABLE as error:
            raise BadReply(f"the choices of the engine's reply cannot be read: {error}") from error

    def _without_choices(self, chunk: Fields, data: bytes) -> bytes:
        if (error := chunk.get("error")) is not None and not is_null(error):
            self.capture.error = bytes(error).decode("utf-8", "replace")
        return data

    def _head(self, reply: Fields) -> None:
        self._read_head(reply.get("prompt_token_ids"), reply.get("model"), reply.get("id"), reply.get("usage"))
        if "prompt_token_ids" in reply and not self._asked.prompt_ids:
            reply["prompt_token_ids"] = NULL

    def _read_head(
        self,
        prompt: JsonText | None,
        model: msgspec.Raw | None,
        request_id: msgspec.Raw | None,
        usage: msgspec.Raw | None,
    ) -> None:
        capture = self.capture
        if prompt is not None and not capture.has_prompt and not is_null(prompt):
            capture.take_prompt(prompt, self._earlier)
        if capture.model is None:
            capture.model = decode_scalar(model)
            capture.request_id = decode_scalar(request_id)
        if usage is not None:
            capture.usage = decode_usage(usage) or capture.usage

    def _choice(self, choice: Fields, part: str) -> bool:
        """Takes the tokens out of a choice; whether anything is left that this client would have been sent."""
        finish, stop = choice.get("finish_reason"), choice.get("stop_reason")
        finished = self._read_choice(
            choice_index(choice), choice.get("token_ids"), choice.get("logprobs"), finish, stop
        )
        asked = self._asked
        if not asked.token_ids and "token_ids" in choice:
            choice["token_ids"] = NULL
        if not asked.logprobs and "logprobs" in choice:
            choice["logprobs"] = NULL
        if not asked.reasoning and part in choice:
            hide = _hide_in_delta if part == "delta" else _hide_in_message
            choice[part] = msgspec.Raw(_encode(hide(self._object(bytes(choice[part])))))
        if part == "message" or asked.token_ids or asked.logprobs:
            return True
        return finished or part not in choice or bytes(choice[part]) != b"{}"

    def _read_choice(
        self,
        index: int,
        token_ids: msgspec.Raw | None,
        logprobs: msgspec.Raw | None,
        finish: msgspec.Raw | None,
        stop: msgspec.Raw | None,
    ) -> bool:
        """Keeps the tokens of a choice; whether it has said why it ended."""
        self.capture.choice(index).take(token_ids, logprobs)
        return self._read_end(index, finish, stop)

    def _read_end(self, index: int, finish: msgspec.Raw | None, stop: msgspec.Raw | None) -> bool:
        """Whether a choice has said why it ended."""
        kept = self.capture.choice(index)
        if kept.finish is None:
            kept.finish = finish_reason(finish)
            if kept.finish is not None:
                kept.stop = decode_scalar(stop)
        return kept.finish is not None

    def _encode(self, reply: Fields, choices: list[Fields]) -> bytes:
        reply["choices"] = msgspec.Raw(_encode(choices))
        return _encode(reply)


def _hide_in_message(members: Fields) -> Fields:
    return members | {name: NULL for name in _REASONING if name in members}


def _hide_in_delta(members: Fields) -> Fields:
    """As vLLM's parsers write it: `reasoning` is null, and a delta that said nothing else is empty. The first delta, which
    only names the role, is not theirs."""
    if "role" in members:
        return members
    if all(name in _REASONING or bytes(value) in _NOTHING for name, value in members.items()):
        return {}
    return members | {_REASONING[0]: NULL}
