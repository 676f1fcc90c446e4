"""Scoring a finished sequence again: what to ask vLLM, and which recorded log-probabilities its answer can be held against.

`prompt_logprobs` are those of the model itself: before temperature, penalties and truncation, whatever `--logprobs-mode`
says (seen with vLLM 0.32). So they are what was recorded in mode `raw`, and in mode `processed` where nothing was processed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.model import LogprobsMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polarproxy.model import Sampling, TokenIds

ROUTE = "/v1/completions"


class _Value(msgspec.Struct):
    logprob: float | None = None


class _Choice(msgspec.Struct):
    prompt_logprobs: list[dict[str, _Value] | None] | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]


_reply = msgspec.json.Decoder(_Reply)


def request(model: str, ids: TokenIds) -> bytes:
    """A completion of one token, which vLLM asks for at least, that tells the log-probability of each token before it."""
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": ids.array.tolist(),
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
        }
    )


def read(reply: bytes, ids: TokenIds) -> NDArray[np.float32]:
    """The log-probability of each token given those before it, float32 `[len]`; NaN where the engine has none, as for the
    first. Raises `BadReply`."""
    try:
        choices = _reply.decode(reply).choices
        shown = choices[0].prompt_logprobs
    except (*UNREADABLE, IndexError) as error:
        raise BadReply(f"the engine's scores cannot be read: {error}") from error
    if shown is None or len(shown) != len(ids):
        raise BadReply(f"the engine scored {0 if shown is None else len(shown)} of {len(ids)} tokens")
    values = np.full(len(ids), np.nan, np.float32)
    for place, (token, scores) in enumerate(zip(ids, shown, strict=True)):
        score = None if scores is None else scores.get(str(token))
        if score is not None and score.logprob is not None:
            values[place] = score.logprob
    return values


def incomparable(sampling: Sampling) -> str | None:
    """Why the log-probabilities of a call cannot be those that scoring gives, for a person to read. None: they can."""
    if sampling.logprobs_mode is LogprobsMode.RAW:
        return None
    mode = f"logprobs of mode {sampling.logprobs_mode}"
    if sampling.temperature not in (0.0, 1.0):
        return f"{mode} at temperature {_known(sampling.temperature)}; only those of temperature 0 and 1 are the model's own"
    penalties = (sampling.presence_penalty, sampling.frequency_penalty)
    if any(penalties) or sampling.repetition_penalty not in (None, 1.0):
        return f"{mode} with penalties"
    # At temperature 0 nothing is truncated.
    if sampling.temperature and _truncates(sampling):
        return f"{mode} with top_p, top_k or min_p"
    return None


def _truncates(sampling: Sampling) -> bool:
    top_p, top_k = sampling.top_p, sampling.top_k
    return (top_p is not None and top_p < 1) or (top_k is not None and top_k > 0) or bool(sampling.min_p)


def _known(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
