"""What the engine sampled, collected from its reply piece by piece and decoded once at the end.

While a reply passes by, only slices of its bytes are kept; numbers are parsed after the last byte, so that recording
adds next to nothing to each event of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.engine.choice import ChoiceCapture, Count
from polarproxy.engine.ids import JsonText, ParsedIds, parse_ids
from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.model import Completion, FinishReason, Logprobs, TokenIds, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import Sampling

Fields: TypeAlias = dict[str, msgspec.Raw]
"""The members of a JSON object, each value as the bytes that came in."""

_REASONS = {reason.value: reason for reason in FinishReason}


class _TokenDetails(msgspec.Struct):
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count
    completion_tokens: Count = 0
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _TokenDetails | None = None


_usage = msgspec.json.Decoder(_Usage)
_scalar = msgspec.json.Decoder(str | int | None)
_index = msgspec.json.Decoder(Count)
_FALSE_WORDS = frozenset((b"false", b"0", b"0.0", b"no", b"off", b"f", b"n"))
_TRUE_WORDS = frozenset((b"true", b"1", b"1.0", b"yes", b"on", b"t", b"y"))


def decode_scalar(raw: msgspec.Raw | None) -> str | None:
    """A JSON string or integer as text; None for null, absent, or anything else."""
    if raw is None:
        return None
    try:
        value = _scalar.decode(raw)
    except UNREADABLE:
        return None
    return None if value is None else str(value)


def decode_usage(raw: msgspec.Raw | None) -> Usage | None:
    """The `usage` member; None when it is absent, null or unreadable."""
    if raw is None:
        return None
    try:
        usage = _usage.decode(raw)
    except UNREADABLE:
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


def is_true(raw: msgspec.Raw | None) -> bool:
    """Whether vLLM takes a member for true; anything else is its to refuse. (pydantic's lax reading of booleans.)"""
    return raw is not None and bytes(raw).strip(b'"').lower() in _TRUE_WORDS


def is_false(raw: msgspec.Raw | None) -> bool:
    """Whether vLLM takes a member for false; neither this nor `is_true` is anything that it would refuse."""
    return raw is not None and bytes(raw).strip(b'"').lower() in _FALSE_WORDS


def choice_index(choice: Fields) -> int:
    """The index of a choice, 0 when it names none; raises `BadReply` when it cannot be one."""
    if "index" not in choice:
        return 0
    try:
        return _index.decode(choice["index"])
    except msgspec.ValidationError as error:
        raise BadReply(f"the index of a choice cannot be read: {error}") from error


@dataclass(slots=True)
class Capture:
    """Everything that one reply says about tokens."""

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
    _prompt: TokenIds | ParsedIds | None = None
    _unparsed: tuple[JsonText, ParsedIds | None] | None = None
    """The JSON array of prompt ids, and an earlier one. An open stream need not hold the ids besides."""
    _bad_prompt: BadReply | None = None

    def take_prompt(self, ids: JsonText, earlier: ParsedIds | None) -> None:
        """Keeps the JSON array of prompt ids, to be parsed when they are asked for."""
        self._unparsed = ids, earlier

    @property
    def has_prompt(self) -> bool:
        """Whether the engine has shown the prompt ids, readable or not."""
        return self._unparsed is not None or self._prompt is not None or self._bad_prompt is not None

    @property
    def prompt(self) -> TokenIds | None:
        """None: the engine did not show the prompt ids (yet), or they cannot be read, or there is none among them: no engine
        samples after nothing, so an empty list is a prompt that was not captured."""
        self._parse_prompt()
        ids = self._prompt.ids if isinstance(self._prompt, ParsedIds) else self._prompt
        return ids or None

    @prompt.setter
    def prompt(self, ids: TokenIds | None) -> None:
        self._prompt = ids

    @property
    def prompt_parsed(self) -> ParsedIds | None:
        """The prompt with its text, for reading the next one of the conversation. None: it did not come as an array."""
        self._parse_prompt()
        return self._prompt if isinstance(self._prompt, ParsedIds) else None

    def require_prompt(self) -> None:
        """Raises `BadReply` when the prompt ids that the engine showed cannot be read."""
        self._parse_prompt()
        if self._bad_prompt is not None:
            raise self._bad_prompt

    def _parse_prompt(self) -> None:
        if self._unparsed is None:
            return
        (ids, earlier), self._unparsed = self._unparsed, None
        try:
            self._prompt = parse_ids(ids, earlier)
        except BadReply as error:
            self._bad_prompt = error

    def choice(self, index: int) -> ChoiceCapture:
        """The capture of the choice with this index."""
        found = self.choices.get(index)
        if found is None:
            found = self.choices[index] = ChoiceCapture(index)
        return found

    def finished(self) -> int:
        """How many choices have said why they ended."""
        # Asked after every event: a generator would cost more than what it goes through.
        finished = 0
        for choice in self.choices.values():
            if choice.finish is not None:
                finished += 1
        return finished

    def completions(self) -> tuple[Completion, ...]:
        """The sampled tokens of every choice, by index; raises `BadReply` when they or the prompt cannot be read."""
        self.require_prompt()
        return tuple(self._completion(self.choices[index]) for index in sorted(self.choices))

    def _completion(self, choice: ChoiceCapture) -> Completion:
        ids = choice.token_ids()
        logprobs = None
        if choice.missing_logprobs:
            logprobs = Logprobs.of([None] * len(ids))
        elif choice.has_logprobs:
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
            texts |= choice.token_texts(missing)
        return texts
