"""What goes wrong on the way from the fake engine to its client.

An event is one `data:` event of a stream. The body of a reply that is not streamed counts as two, its halves, so every
fault below works on both.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """All off by default. Delays are in seconds; the `*_after` count events sent before it happens.

    On the wire: `end_after` ends the body properly but early; `cut_after` closes the connection in mid-body;
    `reset_after` resets it; `refuse` closes it before any reply; `hold_after` waits until `FakeEngine.release()` (or the
    client leaves, or the engine stops; 0 also holds back a refusal); `error_after` reports an engine error as vLLM does.
    `chop` writes the body in pieces of these sizes in turn, wherever they fall.

    In the data: `steps_per_event` puts several engine steps into one event; `no_prompt_ids`, `no_token_ids` and
    `no_logprobs` answer null though asked; `drop_logprobs` leaves out the entries of the first k tokens, so that there
    are fewer logprobs than ids, and `drop_ids` the other way round.
    """

    status: int | None = None
    retry_after: int | None = None
    refuse: bool = False
    first_byte_delay: float = 0.0
    event_delay: float = 0.0
    end_after: int | None = None
    cut_after: int | None = None
    reset_after: int | None = None
    hold_after: int | None = None
    error_after: int | None = None
    chop: tuple[int, ...] = ()
    steps_per_event: int = 1
    no_prompt_ids: bool = False
    no_token_ids: bool = False
    no_logprobs: bool = False
    drop_logprobs: int = 0
    drop_ids: int = 0
