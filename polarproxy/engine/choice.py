"""What was sampled of one choice, collected piece by piece.

While a reply passes by, only slices of its bytes are kept; numbers are parsed after the last byte, so that recording
adds next to nothing to each event of a stream. Only in a long stream is what has come so far parsed now and then: the
numbers take a fraction of the room that their JSON takes.
"""

from __future__ import annotations

import array
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec

from polarproxy.engine.ids import JsonText, decode_ids
from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.model import FinishReason, Logprobs, TokenIds

if TYPE_CHECKING:
    from collections.abc import Container

NULL = msgspec.Raw(b"null")
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""Of tokens, or the index of a choice. What is larger counts nothing, and no column holds it."""
_NO_IDS = b"[]"
_COPIED = 1024
"""A first piece of more bytes is kept as the view of the reply that it is: mostly it is the only one."""
_CONDENSED = 1 << 16
"""Bytes of logprobs that are kept as they came."""


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


_byte_list = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None)
_contents = msgspec.json.Decoder(_LogprobContent), msgspec.json.Decoder(list[_LogprobContent])
_values = msgspec.json.Decoder(_Values), msgspec.json.Decoder(list[_Values])

T = TypeVar("T")
Decoders: TypeAlias = tuple[msgspec.json.Decoder[T], msgspec.json.Decoder[list[T]]]
"""For one value, and for an array of them."""


def is_null(raw: JsonText | None) -> bool:
    """Whether a member is absent or null."""
    return raw is None or (len(view := memoryview(raw)) == len(b"null") and bytes(view) == b"null")


def floats(numbers: list[float | None]) -> bytes:
    """As little-endian float32; None becomes NaN, and what is too large infinite."""
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except (OverflowError, struct.error):
        nan = float("nan")
        return array.array("f", [nan if number is None else number for number in numbers]).tobytes()


def read_numbers(logprobs: memoryview) -> list[float | None]:
    """The log-probabilities in one JSON object with logprobs; raises `BadReply` when it cannot be read."""
    try:
        return [entry.logprob for entry in _values[0].decode(logprobs).content or ()]
    except UNREADABLE as error:
        raise BadReply(f"the logprobs cannot be read: {error}") from error


@dataclass(slots=True)
class ChoiceCapture:
    """The pieces of one choice, in the order in which they came."""

    index: int
    first_ids: msgspec.Raw | TokenIds | None = None
    """The first JSON array of ids, if it is a large one, or the ids in it."""
    ids: bytearray = field(default_factory=bytearray)
    """The JSON arrays of ids that follow, one behind the other."""
    first_logprobs: msgspec.Raw | memoryview | None = None
    """The first JSON object with logprobs, if it is a large one."""
    first_numbers: list[float | None] | None = None
    """The numbers in it. None: they were not read yet."""
    logprobs: bytearray = field(default_factory=bytearray)
    """The JSON objects with logprobs that follow, each with a comma behind it."""
    has_logprobs: bool = False
    """Whether any piece had logprobs."""
    missing_logprobs: bool = False
    """Some sampled tokens have no entry, and it is not known which: every value counts as missing."""
    finish: FinishReason | None = None
    stop: str | None = None
    _parsed: _Parsed | None = None
    """What came before. None: nothing was parsed yet."""

    def take_few(self, ids: bytes, logprobs: bytes) -> None:
        """Keeps the ids and logprobs of one small piece of the reply that has both."""
        self.ids += ids
        self.logprobs += logprobs
        self.logprobs += b","
        self.has_logprobs = True
        if len(self.logprobs) > _CONDENSED:
            self.condense()

    def take(self, ids: msgspec.Raw | None, logprobs: msgspec.Raw | None) -> None:
        """Keeps the ids and logprobs of one piece of the reply; null and absent are nothing."""
        if ids is not None and not is_null(ids) and not _is_empty(view := memoryview(ids)):
            if len(view) > _COPIED and self.first_ids is None and not self.ids:
                self.first_ids = ids
            else:
                self.ids += view
        if logprobs is not None and not is_null(logprobs):
            view = memoryview(logprobs)
            if len(view) > _COPIED and not self.has_logprobs:
                self.first_logprobs = logprobs
            else:
                self.logprobs += view
                self.logprobs += b","
            self.has_logprobs = True
            if len(self.logprobs) > _CONDENSED:
                self.condense()

    def take_whole(self, ids: TokenIds | None, logprobs: memoryview, numbers: list[float | None]) -> None:
        """Keeps the ids and logprobs of a whole reply, of which both were read already."""
        self.first_ids = ids
        self.first_logprobs, self.first_numbers, self.has_logprobs = logprobs, numbers, True

    def condense(self) -> None:
        """Parses what came so far. What cannot be read is an error in the end, and not in the middle of a stream."""
        parsed = self._parsed or _Parsed()
        if parsed.error is None:
            try:
                parsed.add(self._token_ids(), self.entries())
            except BadReply as error:
                parsed.error = error
        self._parsed = parsed
        self.first_ids = self.first_logprobs = self.first_numbers = None
        self.ids, self.logprobs = bytearray(), bytearray()

    def entries(self) -> list[LogprobEntry]:
        """The logprob entries that were not parsed yet; raises `BadReply` when they cannot be read."""
        return [entry for part in self.logprob_parts(_contents) for entry in part.content or ()]

    def values(self) -> Logprobs:
        """All log-probabilities; raises `BadReply` when they cannot be read."""
        return Logprobs(bytes(self._before().logprobs) + floats(self.numbers()))

    def numbers(self) -> list[float | None]:
        """The log-probabilities that were not parsed yet; raises `BadReply` when they cannot be read."""
        if self.first_numbers is not None and not self.logprobs:
            return self.first_numbers
        found: list[float | None] = []
        for part in self.logprob_parts(_values):
            found += [entry.logprob for entry in part.content or ()]
        return found

    def logprob_parts(self, decoders: Decoders[T]) -> list[T]:
        """Every piece with logprobs that was not parsed yet, decoded; raises `BadReply` when one cannot be read."""
        one, many = decoders
        try:
            parts = [] if self.first_logprobs is None else [one.decode(self.first_logprobs)]
            return parts + many.decode(b"[%b]" % bytes(self.logprobs[:-1])) if self.logprobs else parts
        except UNREADABLE as error:
            raise BadReply(f"the logprobs of choice {self.index} cannot be read: {error}") from error

    def token_ids(self) -> TokenIds:
        """All sampled ids; empty when the engine gave none. Raises `BadReply` when a piece is not an array of ids."""
        before = self._before().ids
        return TokenIds(bytes(before)) + self._token_ids() if before else self._token_ids()

    def _token_ids(self) -> TokenIds:
        first = self.first_ids or TokenIds()
        first = first if isinstance(first, TokenIds) else decode_ids(first)
        return first + decode_ids(bytes(self.ids.replace(b"][", b","))) if self.ids else first

    def token_texts(self, wanted: Container[int]) -> dict[int, bytes]:
        """The bytes of those tokens whose ids are `wanted`, as the engine spelled them. Raises `BadReply`."""
        before = self._before()
        spelled = _Parsed(texts=before.texts, matching=before.matching)
        spelled.add(self._token_ids(), self.entries())
        if not spelled.matching:
            return {}
        return {token_id: text for token_id, text in spelled.texts.items() if token_id in wanted}

    def _before(self) -> _Parsed:
        parsed = self._parsed or _Parsed()
        if parsed.error is not None:
            raise parsed.error
        return parsed


@dataclass(slots=True)
class _Parsed:
    """The pieces of one choice that were parsed, as little-endian int32 and float32."""

    ids: bytearray = field(default_factory=bytearray)
    logprobs: bytearray = field(default_factory=bytearray)
    texts: dict[int, bytes] = field(default_factory=dict)
    """How the engine spells these ids."""
    matching: bool = True
    """Whether each id had its entry; else it is not known which entry spells which id."""
    error: BadReply | None = None
    """Why some could not be read. None: all could."""

    def add(self, ids: TokenIds, entries: list[LogprobEntry]) -> None:
        """What follows."""
        self.ids += ids.raw
        self.logprobs += floats([entry.logprob for entry in entries])
        self.matching = self.matching and len(ids) == len(entries)
        if self.matching:
            for token_id, entry in zip(ids, entries, strict=True):
                if token_id not in self.texts and not entry.token.startswith("token_id:"):
                    self.texts[token_id] = _entry_bytes(entry)


def _is_empty(ids: memoryview) -> bool:
    """Whether it is an array with nothing in it, or only blanks. A large one is left to who parses it."""
    return len(ids) <= _COPIED and b"".join(bytes(ids).split()) == _NO_IDS


def _entry_bytes(entry: LogprobEntry) -> bytes:
    try:
        numbers = _byte_list.decode(entry.bytes)
    except msgspec.ValidationError:
        numbers = None
    return bytes(numbers) if numbers is not None else entry.token.encode("utf-8", "surrogatepass")
