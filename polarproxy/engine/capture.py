"""What the engine sampled, collected from its reply piece by piece and decoded once at the end.

While a reply passes by, only slices of its bytes are kept; numbers are parsed after the last byte, so that recording
adds next to nothing to each event of a stream.
"""

from __future__ import annotations

import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import numpy as np

from polarproxy.errors import BadReply
from polarproxy.model import Completion, FinishReason, Logprobs, TokenIds, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import Sampling

Fields: TypeAlias = dict[str, msgspec.Raw]
"""The members of a JSON object, each value as the bytes that came in."""

NULL = msgspec.Raw(b"null")
_NO_IDS = b"[]"
_REASONS = {reason.value: reason for reason in FinishReason}


class LogprobEntry(msgspec.Struct, gc=False):
    """One sampled token in `logprobs.content`."""

    token: str = ""
    logprob: float | None = None
    """None: the engine could not write the value as a number."""
    bytes: msgspec.Raw = NULL
    id: int | None = None
    """Token id, where the engine puts it here (llama.cpp)."""


class _LogprobContent(msgspec.Struct):
    content: list[LogprobEntry] | None = None


class _Value(msgspec.Struct, gc=False):
    """A sampled token's value alone, which is all that recording needs."""

    logprob: float | None = None


class _Values(msgspec.Struct):
    content: list[_Value] | None = None


class _TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _TokenDetails | None = None


_logprob_contents = msgspec.json.Decoder(list[_LogprobContent])
_logprob_values = msgspec.json.Decoder(list[_Values])
_usage = msgspec.json.Decoder(_Usage)
_scalar = msgspec.json.Decoder(str | int | None)
_byte_list = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None)
_index = msgspec.json.Decoder(int)
_FALSE_WORDS = frozenset((b"false", b"0", b"0.0", b"no", b"off", b"f", b"n"))
_TRUE_WORDS = frozenset((b"true", b"1", b"1.0", b"yes", b"on", b"t", b"y"))
_MAX_ID = np.iinfo(np.int32).max
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class ParsedIds:
    """Token ids together with the text that they were read from."""

    text: bytes
    """What stood between the brackets of the JSON array."""
    ids: TokenIds


def parse_ids(raw: bytes | msgspec.Raw, earlier: ParsedIds | None = None) -> ParsedIds:
    """A JSON array of token ids; raises `BadReply` when it is anything else.

    When the array begins with the very text of an `earlier` one, as the next prompt of a conversation does, only the rest
    is parsed.
    """
    whole = memoryview(raw)
    if len(whole) < 2 or whole[0] != ord("[") or whole[-1] != ord("]"):
        raise BadReply(f"expected an array of token ids, got {bytes(whole[:40])!r}")
    text = bytes(whole[1:-1])
    if earlier is None or not earlier.text or not text.startswith(earlier.text):
        return ParsedIds(text, _parse(text))
    rest = text[len(earlier.text) :]
    if not rest:
        return earlier
    # A comma must follow: otherwise the last number of the earlier array is only the beginning of a longer one.
    return ParsedIds(text, earlier.ids + _parse(rest[1:]) if rest.startswith(b",") else _parse(text))


def _parse(text: bytes) -> TokenIds:
    if not text or text.isspace():
        return TokenIds()
    expected = text.count(b",") + 1
    try:
        # Wider than an id: as int32, 2**32 + 1 would be read as 1.
        ids = np.fromstring(text, dtype=np.int64, sep=",")
    except ValueError as error:
        raise BadReply(f"an array of token ids holds something else: {error}") from error
    if ids.size != expected:
        raise BadReply(f"of {expected} token ids only {ids.size} can be read")
    if ids.min() < 0 or ids.max() > _MAX_ID:
        raise BadReply(f"token ids must lie in 0..2**31-1, found {ids.min()}..{ids.max()}")
    return TokenIds(ids.astype("<i4").tobytes())


def decode_ids(raw: bytes | msgspec.Raw) -> TokenIds:
    """A JSON array of token ids; raises `BadReply` when it is anything else."""
    return parse_ids(raw).ids


def decode_scalar(raw: msgspec.Raw | None) -> str | None:
    """A JSON string or integer as text; None for null, absent, or anything else."""
    if raw is None:
        return None
    try:
        value = _scalar.decode(raw)
    except _UNREADABLE:
        return None
    return None if value is None else str(value)


def decode_usage(raw: msgspec.Raw | None) -> Usage | None:
    """The `usage` member; None when it is absent, null or unreadable."""
    if raw is None:
        return None
    try:
        usage = _usage.decode(raw)
    except _UNREADABLE:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=prompt.cached_tokens if prompt else None,
        reasoning_tokens=completion.reasoning_tokens if completion else None,
    )


def finish_reason(raw: msgspec.Raw | None) -> FinishReason | None:
    """None while the engine has not said; `other` for a reason we do not know."""
    text = decode_scalar(raw)
    if text is None:
        return None
    return _REASONS.get(text, FinishReason.OTHER)


def is_null(raw: msgspec.Raw | None) -> bool:
    """Whether a member is absent or null."""
    return raw is None or (len(view := memoryview(raw)) == len(b"null") and bytes(view) == b"null")


def is_true(raw: msgspec.Raw | None) -> bool:
    """Whether vLLM takes a member for true; anything else is its to refuse. (pydantic's lax reading of booleans.)"""
    return raw is not None and bytes(raw).strip(b'"').lower() in _TRUE_WORDS


def is_false(raw: msgspec.Raw | None) -> bool:
    """Whether vLLM takes a member for false; neither this nor `is_true` is anything that it would refuse."""
    return raw is not None and bytes(raw).strip(b'"').lower() in _FALSE_WORDS


def choice_index(choice: Fields) -> int:
    """The index of a choice, 0 when it names none; raises `BadReply` when it is no integer."""
    if "index" not in choice:
        return 0
    try:
        return _index.decode(choice["index"])
    except msgspec.ValidationError as error:
        raise BadReply(f"the index of a choice cannot be read: {error}") from error


@dataclass(slots=True)
class ChoiceCapture:
    """The pieces of one choice, in the order in which they came."""

    index: int
    ids: bytearray = field(default_factory=bytearray)
    """The JSON arrays of ids, one behind the other."""
    logprobs: bytearray = field(default_factory=bytearray)
    """The JSON objects with logprobs, each with a comma behind it."""
    missing_logprobs: bool = False
    """Some sampled tokens have no entry, and it is not known which: every value counts as missing."""
    finish: FinishReason | None = None
    stop: str | None = None

    def take(self, ids: msgspec.Raw | None, logprobs: msgspec.Raw | None) -> None:
        """Keeps the ids and logprobs of one piece of the reply; null and absent are nothing."""
        if ids is not None and not is_null(ids) and memoryview(ids) != _NO_IDS:
            self.ids += memoryview(ids)
        if logprobs is not None and not is_null(logprobs):
            self.logprobs += memoryview(logprobs)
            self.logprobs += b","

    def entries(self) -> list[LogprobEntry]:
        """All logprob entries, decoded."""
        if not self.logprobs:
            return []
        try:
            parts = _logprob_contents.decode(b"[%b]" % bytes(self.logprobs[:-1]))
        except _UNREADABLE as error:
            raise BadReply(f"the logprobs of choice {self.index} cannot be read: {error}") from error
        if len(parts) == 1:
            return parts[0].content or []
        return [entry for part in parts for entry in part.content or ()]

    def values(self) -> Logprobs:
        """All log-probabilities; raises `BadReply` when they cannot be read."""
        try:
            parts = _logprob_values.decode(b"[%b]" % bytes(self.logprobs[:-1]))
        except _UNREADABLE as error:
            raise BadReply(f"the logprobs of choice {self.index} cannot be read: {error}") from error
        nan = float("nan")
        numbers = [nan if entry.logprob is None else entry.logprob for part in parts for entry in part.content or ()]
        return Logprobs(array.array("f", numbers).tobytes())

    def token_ids(self) -> TokenIds:
        """All sampled ids; empty when the engine gave none. Raises `BadReply` when a piece is not an array of ids."""
        return decode_ids(bytes(self.ids.replace(b"][", b",")) or _NO_IDS)


@dataclass(slots=True)
class Capture:
    """Everything that one reply says about tokens."""

    prompt: TokenIds | None = None
    """None: the engine did not show the prompt ids (yet)."""
    prompt_parsed: ParsedIds | None = None
    """The prompt with its text, for reading the next one of the conversation. None: it did not come as an array."""
    prompt_texts: dict[int, bytes] = field(default_factory=dict)
    """How the engine spells the prompt's tokens; empty when it does not say."""
    choices: dict[int, ChoiceCapture] = field(default_factory=dict)
    usage: Usage | None = None
    model: str | None = None
    request_id: str | None = None
    error: str | None = None
    """The engine's own error inside a stream, as it wrote it."""
    applied: Sampling | None = None
    """Sampling parameters as the engine says it applied them. None: it does not say."""

    def choice(self, index: int) -> ChoiceCapture:
        """The capture of the choice with this index."""
        found = self.choices.get(index)
        if found is None:
            found = self.choices[index] = ChoiceCapture(index)
        return found

    def finished(self) -> int:
        """How many choices have said why they ended."""
        return sum(choice.finish is not None for choice in self.choices.values())

    def completions(self) -> tuple[Completion, ...]:
        """The sampled tokens of every choice, by index; raises `BadReply` when they cannot be read."""
        return tuple(self._completion(self.choices[index]) for index in sorted(self.choices))

    def _completion(self, choice: ChoiceCapture) -> Completion:
        ids = choice.token_ids()
        logprobs = None
        if choice.missing_logprobs:
            logprobs = Logprobs.of([None] * len(ids))
        elif choice.logprobs:
            logprobs = choice.values()
        return Completion(
            index=choice.index,
            token_ids=ids,
            logprobs=logprobs,
            finish_reason=choice.finish,
            stop_reason=choice.stop,
        )

    def token_texts(self, wanted: Iterable[int]) -> dict[int, bytes]:
        """The bytes of those tokens whose ids are `wanted`, as the engine spelled them."""
        missing = set(wanted)
        texts = {token: text for token, text in self.prompt_texts.items() if token in missing}
        missing -= texts.keys()
        for choice in self.choices.values():
            entries = choice.entries()
            ids = list(choice.token_ids())
            if len(ids) != len(entries):
                continue
            for token_id, entry in zip(ids, entries, strict=True):
                if token_id in missing and not entry.token.startswith("token_id:"):
                    texts[token_id] = _entry_bytes(entry)
        return texts


def _entry_bytes(entry: LogprobEntry) -> bytes:
    try:
        numbers = _byte_list.decode(entry.bytes)
    except msgspec.ValidationError:
        numbers = None
    return bytes(numbers) if numbers is not None else entry.token.encode("utf-8", "surrogatepass")
