"""Law 8, from a whole reply: its events say all that it says, whoever folds them."""

import json
from typing import Any

from hypothesis import given

from polarproxy.wire.chat.unfold import unfold
from polarproxy.wire.sse import DONE, EventSplitter, event_data
from tests.wire.replies import encode, replies, what_it_says


def chunks(reply: dict[str, Any], *, usage: bool = False) -> list[dict[str, Any]]:
    *events, last = unfold(encode(reply), usage=usage)
    assert event_data(last) == DONE
    return [json.loads(event_data(event) or b"") for event in events]


def add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """As SDKs add up deltas: texts are joined, tool calls are joined by their index."""
    for call in delta.pop("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        place = call.pop("index")
        assert place == len(calls)
        calls.append(call)
    for name, text in delta.items():
        message[name] = text if name == "role" else (message.get(name) or "") + (text or "")


def folded(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Each choice of a stream, as the choice of a whole reply."""
    found: dict[int, dict[str, Any]] = {}
    for part in (part for event in events for part in event["choices"]):
        choice = found.setdefault(part.pop("index"), {"message": {}, "finish_reason": None, "logprobs": []})
        assert choice["finish_reason"] is None, "something follows the end of a choice"
        add(choice["message"], part.pop("delta"))
        choice["logprobs"] += (part.pop("logprobs") or {"content": []})["content"]
        choice |= part
    return found


@given(replies())
def test_the_events_say_what_the_reply_says(reply: dict[str, Any]) -> None:
    found = folded(chunks(reply))
    assert sorted(found) == [choice["index"] for choice in reply["choices"]]
    for choice in reply["choices"]:
        told = found[choice["index"]]
        assert what_it_says(told["message"]) == what_it_says(choice["message"])
        assert told["finish_reason"] == choice["finish_reason"]
        assert told["logprobs"] == (choice.get("logprobs") or {"content": []})["content"]


@given(replies())
def test_usage_comes_last_and_only_when_asked_for(reply: dict[str, Any]) -> None:
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks(reply))
    last = chunks(reply, usage=True)[-1]
    assert (last["choices"], last["usage"]) == ([], reply["usage"])


@given(replies())
def test_every_chunk_has_the_head_of_the_reply(reply: dict[str, Any]) -> None:
    for chunk in chunks(reply, usage=True):
        assert chunk["object"] == "chat.completion.chunk"
        assert {name: chunk[name] for name in ("id", "created", "model")} == {
            name: reply[name] for name in ("id", "created", "model")
        }


@given(replies())
def test_the_events_are_whole_events(reply: dict[str, Any]) -> None:
    events = unfold(encode(reply), usage=True)
    splitter = EventSplitter()
    assert splitter.feed(b"".join(events)) == events
    assert splitter.rest() == b""


def whole(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "1", "created": 1, "model": "m", "choices": [choice]}


def test_reasoning_comes_before_what_it_led_to() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(whole(content="so", reasoning_content="hm"))]
    assert deltas == [{"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": "so"}, {}]


def test_arguments_stay_the_bytes_they_are() -> None:
    body = (
        b'{"choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":'
        b'[{"id":"a","type":"function","function":{"name":"f","arguments":"{\\"\\u00fc\\": 1e3,\\"b\\":0.10}"}}]}}]}'
    )
    assert b'"arguments":"{\\"\\u00fc\\": 1e3,\\"b\\":0.10}"' in b"".join(unfold(body, usage=False))


def test_logprobs_of_a_reply_that_says_nothing_are_kept() -> None:
    """The engine sampled an end-of-turn token and nothing else."""
    reply = whole(content="")
    reply["choices"][0]["logprobs"] = {"content": [{"token": "<|im_end|>", "logprob": -0.1}]}
    last = chunks(reply)[-1]["choices"][0]
    assert (last["finish_reason"], last["logprobs"]) == ("stop", reply["choices"][0]["logprobs"])


def test_members_that_a_dialect_adds_are_not_lost() -> None:
    reply = whole(content="so", refusal="no") | {"timings": {"prompt_n": 1}}
    reply["choices"][0]["stop_reason"] = "END"
    told = chunks(reply)
    assert {"refusal": "no"} in [chunk["choices"][0]["delta"] for chunk in told]
    assert told[-1]["choices"][0]["stop_reason"] == "END"
    assert [chunk.get("timings") for chunk in told] == [None] * (len(told) - 1) + [{"prompt_n": 1}]
