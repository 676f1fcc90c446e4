"""llama.cpp's server: exact ids from its verbose reply, the prompt's ids from its own tokenizer.

Its streams leave out the end-of-turn token, so it is never asked to stream: the whole reply is fetched and cut into
events. `__verbose.tokens` holds every sampled id; the logprob entries may miss some (parts of a cut character, a matched
stop string), and then all values of that reply count as missing. The prompt is shown as text and turned into ids by the
server's `/tokenize`, the function the server itself used; the length must equal `tokens_evaluated`.
Logprobs are those of the raw logits. They are the sampling distribution's own only when no sampler changed it.
"""

from __future__ import annotations

import msgspec

from polarproxy.engine.capture import Capture, Fields, choice_index, decode_scalar, decode_usage, finish_reason, is_true
from polarproxy.engine.plan import FollowUp, Plan, ReplyReader
from polarproxy.errors import UNREADABLE, BadReply, InvalidValue
from polarproxy.model import LogprobsMode, Sampling, TokenIds

_object = msgspec.json.Decoder(Fields)
_choices = msgspec.json.Decoder(list[Fields])
_integer = msgspec.json.Decoder(int | None)
_encode = msgspec.json.Encoder().encode

_ADDED = {
    "stream": msgspec.Raw(b"false"),
    "n_probs": msgspec.Raw(b"1"),
    "return_tokens": msgspec.Raw(b"true"),
    "verbose": msgspec.Raw(b"true"),
}
_NOT_SENT = ("logprobs", "top_logprobs", "stream_options", "return_token_ids", "include_reasoning")


class _Settings(msgspec.Struct):
    """`generation_settings`: what the server says it applied."""

    seed: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    mirostat: int = 0
    dynatemp_range: float = 0.0
    adaptive_target: float = -1.0
    max_tokens: int | None = None
    grammar: msgspec.Raw = msgspec.Raw(b'""')
    logit_bias: list[msgspec.Raw] | None = None


class _Verbose(msgspec.Struct):
    tokens: msgspec.Raw
    prompt: str
    tokens_evaluated: int
    generation_settings: _Settings | None = None


class _Piece(msgspec.Struct):
    id: int
    piece: str | list[int]
    """Text; bytes where they are not valid UTF-8 by themselves."""


class _Tokenized(msgspec.Struct):
    tokens: list[_Piece]


_verbose = msgspec.json.Decoder(_Verbose)
_tokenized = msgspec.json.Decoder(_Tokenized)


def plan(fields: Fields, *, stream: bool) -> Plan:
    """The request in one piece, asking for ids and one probability a token."""
    sent = {name: value for name, value in fields.items() if name not in _NOT_SENT} | _ADDED
    asked = is_true(fields.get("logprobs"))
    if asked:
        sent["n_probs"] = msgspec.Raw(_encode(max(1, _top(fields))))
    return Plan(body=_encode(sent), stream=False, reader=Reader(logprobs=asked))


def _top(fields: Fields) -> int:
    try:
        return _integer.decode(fields.get("top_logprobs", b"0")) or 0
    except msgspec.ValidationError:
        return 0


def _unchanged(applied: _Settings) -> bool:
    """Whether no sampler moved the distribution away from the raw softmax."""
    return (
        (applied.temperature, applied.top_p, applied.typical_p, applied.repeat_penalty) == (1.0, 1.0, 1.0, 1.0)
        and (applied.presence_penalty, applied.frequency_penalty, applied.dry_multiplier) == (0.0, 0.0, 0.0)
        and (applied.xtc_probability, applied.mirostat, applied.dynatemp_range) == (0.0, 0, 0.0)
        and not applied.logit_bias
        and applied.adaptive_target < 0
        and applied.top_k <= 0
        and applied.min_p <= 0
        and applied.top_n_sigma < 0
        and bytes(applied.grammar) == b'""'
    )


def _sampling(applied: _Settings) -> Sampling:
    return Sampling(
        temperature=applied.temperature,
        top_p=applied.top_p,
        top_k=applied.top_k,
        min_p=applied.min_p,
        presence_penalty=applied.presence_penalty,
        frequency_penalty=applied.frequency_penalty,
        repetition_penalty=applied.repeat_penalty,
        max_tokens=applied.max_tokens,
        seed=applied.seed,
        logprobs_mode=LogprobsMode.PROCESSED if _unchanged(applied) else LogprobsMode.RAW,
    )


class Reader(ReplyReader):
    """Takes ids and logprobs out of a verbose reply."""

    def __init__(self, *, logprobs: bool) -> None:
        super().__init__(Capture())
        self._logprobs = logprobs
        self._prompt: _Verbose | None = None

    def body(self, data: bytes) -> bytes:
        try:
            reply = _object.decode(data)
            choices = _choices.decode(reply["choices"])
            verbose = _verbose.decode(reply.pop("__verbose"))
        except (KeyError, *UNREADABLE) as error:
            raise BadReply(f"the engine's reply has no choices or no verbose part ({error}): {data[:200]!r}") from error
        self._prompt = verbose
        self._head(reply, verbose)
        for choice in choices:
            self._choice(choice, verbose)
        reply["choices"] = msgspec.Raw(_encode(choices))
        return _encode(reply)

    def _head(self, reply: Fields, verbose: _Verbose) -> None:
        capture = self.capture
        capture.model = decode_scalar(reply.get("model"))
        capture.request_id = decode_scalar(reply.get("id"))
        capture.usage = decode_usage(reply.get("usage"))
        if verbose.generation_settings is not None:
            capture.applied = _sampling(verbose.generation_settings)

    def _choice(self, choice: Fields, verbose: _Verbose) -> None:
        kept = self.capture.choice(choice_index(choice))
        kept.finish = finish_reason(choice.get("finish_reason"))
        # The verbose part is of choice 0 only; without it the ids of another choice may lack tokens, so it has none.
        if kept.index == 0:
            kept.take(verbose.tokens, choice.get("logprobs"))
            entries = kept.entries()
            kept.missing_logprobs = [entry.id for entry in entries] != list(kept.token_ids())
        if not self._logprobs:
            choice.pop("logprobs", None)

    def follow_up(self) -> FollowUp | None:
        if self._prompt is None:
            return None
        body = {"content": self._prompt.prompt, "add_special": True, "parse_special": True, "with_pieces": True}
        return FollowUp("/tokenize", _encode(body))

    def answer(self, data: bytes) -> None:
        try:
            pieces = _tokenized.decode(data).tokens
            ids = TokenIds.of(piece.id for piece in pieces)
        except (msgspec.DecodeError, InvalidValue) as error:
            raise BadReply(f"the engine's tokenizer answered something else: {data[:200]!r}") from error
        # Of another length it is not the prompt that was evaluated; then the prompt stays unknown and nothing is trained.
        if self._prompt is not None and len(ids) == self._prompt.tokens_evaluated:
            self.capture.prompt = ids
            self.capture.prompt_texts = {piece.id: _piece_bytes(piece.piece) for piece in pieces}


def _piece_bytes(piece: str | list[int]) -> bytes:
    return piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else bytes(piece)
