"""Compares what the clients saw with what is in the store."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import CallStatus, CapturedCall
from tests.crash.sampled import sampled, serial_of_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.crash.client import Seen


@dataclass(frozen=True)
class Wrong:
    """One reply that is not in the store as it was seen."""

    serial: int
    what: str

    def __str__(self) -> str:
        return f"reply {self.serial}: {self.what}"


def compare(ledger: Sequence[Seen], stored: Iterable[CapturedCall]) -> Iterator[Wrong]:
    """Yields every ledger entry that is missing, there twice, or differs in one id or logprob (as float32)."""
    by_serial: dict[int, list[CapturedCall]] = defaultdict(list)
    for captured in stored:
        for completion in captured.call.completions:
            serial = serial_of_ids(completion.token_ids)
            if serial is not None:
                by_serial[serial].append(captured)
    seen_twice = {seen.serial for seen in ledger if seen.serial in by_serial and len(by_serial[seen.serial]) != 1}
    for seen in ledger:
        if seen.serial not in by_serial:
            yield Wrong(seen.serial, f"lost (session {seen.session_id}, {'streamed' if seen.streamed else 'whole'})")
        elif seen.serial in seen_twice:
            yield Wrong(seen.serial, f"stored {len(by_serial[seen.serial])} times")
        else:
            yield from (Wrong(seen.serial, what) for what in _differences(seen, by_serial[seen.serial][0]))


def _differences(seen: Seen, captured: CapturedCall) -> Iterator[str]:
    call = captured.call
    right = sampled(seen.serial)
    if call.session_id != seen.session_id:
        yield f"stored in session {call.session_id}, asked in {seen.session_id}"
    if call.status is not CallStatus.COMPLETED:
        yield f"stored as {call.status}"
    if call.streamed is not seen.streamed:
        yield f"stored with streamed={call.streamed}"
    if call.prompt_token_ids is None or tuple(call.prompt_token_ids) != seen.prompt_token_ids:
        yield "other prompt ids"
    if len(call.completions) != 1:
        yield f"{len(call.completions)} completions"
        return
    completion = call.completions[0]
    if tuple(completion.token_ids) != right.token_ids:
        yield "other token ids"
    logprobs = np.asarray(right.logprobs, dtype=np.float32)
    if completion.logprobs is None or not np.array_equal(completion.logprobs.array, logprobs):
        yield "other logprobs"
