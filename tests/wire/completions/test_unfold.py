"""A whole reply as a stream: folding it gives the reply back (law 8)."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.completions.unfold import unfold
from polarproxy.wire.sse import DONE, event_data

USAGE = {"completion_tokens": 2, "prompt_tokens": 3, "total_tokens": 5}
VALUES = {"content": [{"id": 5, "token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}]}


def reply(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"id": "c1", "object": "text_completion", "created": 1, "model": "m", "system_fingerprint": "f"}
    return {**head, "choices": list(choices), "usage": USAGE, **more}


def choice(index: int = 0, text: str = "a", finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish, **more}


def chunks(events: list[bytes]) -> list[dict[str, Any]]:
    *sent, end = [event_data(event) for event in events]
    assert end == DONE
    return [json.loads(data or b"") for data in sent]


def folded(events: list[bytes]) -> dict[str, Any]:
    """What a client makes of a stream: texts joined, the last word of everything else."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks(events):
        for part in chunk.pop("choices"):
            known = choices.setdefault(part["index"], {"text": "", "logprobs": None})
            known["text"] += part.pop("text")
            known["logprobs"] = part.pop("logprobs", None) or known["logprobs"]
            known |= part
        whole |= chunk
    return whole | {"choices": [choices[index] for index in sorted(choices)]}


CHOICES = st.builds(
    choice,
    text=st.text(max_size=4),
    finish=st.sampled_from(["stop", "length"]),
    logprobs=st.sampled_from([None, VALUES]),
    stop_reason=st.none() | st.text(max_size=2),
)


@given(st.lists(CHOICES, min_size=1, max_size=3), st.dictionaries(st.sampled_from(["timings", "x"]), st.integers()))
def test_folding_gives_the_reply_back(found: list[dict[str, Any]], more: dict[str, int]) -> None:
    whole = reply(*({**each, "index": index} for index, each in enumerate(found)), **more)
    assert folded(unfold(json.dumps(whole).encode())) == whole


def test_a_choice_is_what_was_said_and_then_why_it_ended() -> None:
    whole = reply(choice(logprobs=VALUES), choice(1, "b", "length"), timings={"n": 1})
    head = {name: value for name, value in whole.items() if name not in ("choices", "usage", "timings")}
    assert chunks(unfold(json.dumps(whole).encode())) == [
        {**head, "choices": [{"index": 0, "text": "a", "logprobs": VALUES, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]},
        {**head, "choices": [{"index": 1, "text": "b", "logprobs": None, "finish_reason": None}]},
        {
            **head,
            "choices": [{"index": 1, "text": "", "logprobs": None, "finish_reason": "length"}],
            "usage": USAGE,
            "timings": {"n": 1},
        },
    ]


def test_a_reply_without_choices_is_a_stream_without_chunks() -> None:
    assert chunks(unfold(json.dumps(reply()).encode())) == []


def test_values_keep_their_bytes() -> None:
    odd = b'{"choices":[{"index":0,"text":"\\u00fc","x":[1e3, 0.10]}],"timings":{"t" :1.0}}'
    said, ended, _ = unfold(odd)
    assert b'"text":"\\u00fc"' in said
    assert b"[1e3, 0.10]" in ended
    assert b'{"t" :1.0}' in ended
