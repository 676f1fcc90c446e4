"""Compares what the clients saw with what is in the store."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import CallStatus, CapturedCall
from tests.crash.sampled import sampled, serial_of_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.crash.client import Seen


@dataclass(frozen=True)
class Wrong:
    """One reply that is not in the store as it was seen."""

    serial: int
    what: str

    def __str__(self) -> str:
        return f"reply {self.serial}: {self.what}"


def serial_of(captured: CapturedCall) -> int | None:
    """The serial of what a call sampled, whole or cut; None when it sampled nothing that tells."""
    completions = captured.call.completions
    return serial_of_ids(completions[0].token_ids) if completions else None


def compare(seen: Sequence[Seen], stored: Iterable[CapturedCall]) -> Iterator[Wrong]:
    """Yields every reply that was seen and is missing, that is there twice (whether seen or not), that differs in one id or
    logprob (as float32), or that stands before one which the same client saw earlier."""
    by_serial: dict[int, list[CapturedCall]] = defaultdict(list)
    for captured in stored:
        serial = serial_of(captured)
        if serial is not None:
            by_serial[serial].append(captured)
    for serial, found in by_serial.items():
        if len(found) > 1:
            yield Wrong(serial, f"stored {len(found)} times")
        for captured in found:
            if captured.call.status is CallStatus.COMPLETED:
                yield from (Wrong(serial, what) for what in _torn(serial, captured))
    for one in seen:
        if one.serial not in by_serial:
            yield Wrong(one.serial, f"lost (session {one.session_id}, {'streamed' if one.streamed else 'whole'})")
        else:
            yield from (Wrong(one.serial, what) for what in _differences(one, by_serial[one.serial][0]))
    yield from _disorder(seen, by_serial)


def _torn(serial: int, captured: CapturedCall) -> Iterator[str]:
    right = sampled(serial)
    if len(captured.call.completions) != 1:
        yield f"{len(captured.call.completions)} completions"
    completion = captured.call.completions[0]
    if tuple(completion.token_ids) != right.token_ids:
        yield "other token ids"
    logprobs = np.asarray(right.logprobs, dtype=np.float32)
    if completion.logprobs is None or not np.array_equal(completion.logprobs.array, logprobs):
        yield "other logprobs"


def _differences(one: Seen, captured: CapturedCall) -> Iterator[str]:
    call = captured.call
    if call.session_id != one.session_id:
        yield f"stored in session {call.session_id}, asked in {one.session_id}"
    if call.status is not CallStatus.COMPLETED:
        yield f"stored as {call.status}"
    if call.streamed is not one.streamed:
        yield f"stored with streamed={call.streamed}"
    if call.prompt_token_ids is None or tuple(call.prompt_token_ids) != one.prompt_token_ids:
        yield "other prompt ids"


def _disorder(seen: Sequence[Seen], by_serial: Mapping[int, list[CapturedCall]]) -> Iterator[Wrong]:
    """A client asks again when it has seen the answer, so that its calls arrived in the order of the ledger."""
    by_session: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in seen:
        for captured in by_serial.get(one.serial, ())[:1]:
            by_session[one.session_id].append((captured.call.ordinal, one.serial))
    for places in by_session.values():
        for (before, earlier), (after, later) in pairwise(places):
            if before >= after:
                yield Wrong(later, f"stands at {after}, and reply {earlier}, which came before it, at {before}")
