"""An event that is known by its bytes is kept and shown as one that is decoded, and nearly all of vLLM's are known."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.engine import vllm
from polarproxy.engine.vllm import Asked, Reader
from polarproxy.engine.vllm_event import read_sampled
from polarproxy.errors import BadReply
from polarproxy.wire.sse import EventSplitter, event_data
from tests.engine import recordings

TEXT = st.one_of(
    st.text(max_size=6), st.sampled_from(['"', "\\", '\\"', '}]},"finish_reason":null', "\n", "é", "\ud83d"])
)
VALUE = st.one_of(st.none(), st.floats(-30, 0), st.integers(-5, 0))
BYTES = st.none() | st.lists(st.integers(0, 255), max_size=3)
FIRST = b'{"id":"chatcmpl-1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'


def entry(draw: st.DrawFn) -> dict[str, Any]:
    top = draw(st.sampled_from([[], [], [], [{"token": "a", "logprob": -1, "bytes": None}]]))
    return {"token": draw(TEXT), "logprob": draw(VALUE), "bytes": draw(BYTES), "top_logprobs": top}


@st.composite
def usual(draw: st.DrawFn) -> bytes:
    """As vLLM has them."""
    said = st.dictionaries(st.sampled_from(["content", "reasoning"]), TEXT | st.none(), max_size=2)
    called = st.builds(lambda text: {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}, TEXT)
    entries = [
        {"token": draw(TEXT), "logprob": draw(VALUE), "bytes": draw(BYTES), "top_logprobs": []} for _ in range(2)
    ]
    choice = {
        "index": draw(st.sampled_from([0, 1])),
        "delta": draw(said | called),
        "logprobs": {"content": entries[: draw(st.integers(1, 2))]},
        "finish_reason": None,
        "token_ids": draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=2)),
    }
    event = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": draw(TEXT), "choices": [choice]}
    text = json.dumps(event, separators=(",", ":"), ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


@st.composite
def odd(draw: st.DrawFn) -> bytes:
    """With a member more, less, of another kind, or elsewhere."""
    delta = draw(
        st.one_of(
            st.dictionaries(st.sampled_from(["content", "reasoning", "refusal"]), TEXT | st.none(), max_size=2),
            st.just({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}),
            st.just({"content": None, "tool_calls": [{"id": "a", "index": 0, "function": {"name": "f"}}]}),
        )
    )
    choice: dict[str, Any] = {
        "index": draw(st.sampled_from([0, 0, 1, 12, -1])),
        "delta": delta,
        "logprobs": draw(
            st.sampled_from(
                [{"content": [entry(draw) for _ in range(draw(st.integers(0, 2)))]}, None, {"content": None}]
            )
        ),
        "finish_reason": draw(st.sampled_from([None, None, "stop"])),
        "token_ids": draw(st.one_of(st.lists(st.integers(0, 2**31 - 1), max_size=2), st.none())),
    }
    event = {
        "id": draw(TEXT),
        "object": "chat.completion.chunk",
        "created": 1,
        "model": draw(TEXT),
        "choices": [choice],
    }
    if draw(st.booleans()):
        changed = draw(st.sampled_from([choice, event]))
        changed[draw(st.sampled_from(["x", "usage", "prompt_token_ids", "choices", "stop_reason"]))] = draw(
            st.sampled_from([None, [1], {"prompt_tokens": 1}])
        )
        members = draw(st.permutations(list(changed.items())))
        changed.clear()
        changed.update(members)
    separators = draw(st.sampled_from([(",", ":"), (",", ":"), (",", ":"), (", ", ": ")]))
    text = json.dumps(event, separators=separators, ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


def told(sent: list[bytes], asked: Asked) -> tuple[object, ...]:
    reader = Reader(asked)
    views: list[object] = []
    for event in (FIRST, *sent):
        try:
            views.append(reader.event(event))
        except BadReply as error:
            views.append(str(error))
    try:
        done: object = [
            (one.index, one.token_ids, one.logprobs and one.logprobs.raw, one.finish_reason)
            for one in reader.capture.completions()
        ]
    except BadReply as error:
        done = str(error)
    return views, done, reader.capture.model, reader.capture.usage


@given(st.lists(usual() | odd(), max_size=3), st.sampled_from([Asked(), vllm._EVERYTHING]))
def test_known_or_decoded(sent: list[bytes], asked: Asked) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm, "read_sampled", lambda _: None)
        decoded = told(sent, asked)
    assert told(sent, asked) == decoded


@given(usual() | odd())
def test_what_is_known_stands_in_the_event(event: bytes) -> None:
    found = read_sampled(event)
    if found is None:
        return
    (choice,) = json.loads(event)["choices"]
    assert (found.choice, json.loads(found.token_ids)) == (choice["index"], choice["token_ids"])
    assert json.loads(found.logprobs) == choice["logprobs"]
    if choice["delta"] == {}:
        assert found.view is None
    else:
        assert json.loads(found.view or b"")["choices"] == [choice | {"logprobs": None, "token_ids": None}]


@pytest.mark.parametrize("name", ["hi", "emoji", "two", "hi_stop", "tool", "tools", "tool_cut"])
def test_nearly_all_that_a_real_vllm_streams_is_known(name: str) -> None:
    parts = map(event_data, EventSplitter().feed(recordings.stream(name)))
    sampled = [data for data in parts if data is not None and b'"token_ids":[' in data]
    decoded = [data for data in sampled if read_sampled(data) is None]
    assert len(sampled) > 10
    # Those that end a choice, and those that begin a call of a tool.
    assert all(b'"finish_reason":"' in data or b'"name":' in data for data in decoded)


@pytest.mark.parametrize("asked", [Asked(token_ids=True), Asked(logprobs=True), Asked(reasoning=False)], ids=str)
def test_for_clients_that_want_a_part_every_event_is_decoded(asked: Asked) -> None:
    event = recordings.stream("hi")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm, "read_sampled", lambda _: pytest.fail("it was not decoded"))
        told([data for one in EventSplitter().feed(event) if (data := event_data(one)) not in (None, b"[DONE]")], asked)
