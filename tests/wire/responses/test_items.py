"""Responses that are kept and continued."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.neutral.reply import Choice, Reply
from polarproxy.wire.neutral.request import Message, Text, ToolUse
from polarproxy.wire.responses.items import (
    Head,
    deleted,
    input_items,
    item_list,
    output_items,
    read_head,
    response_id,
    with_history,
    with_references,
)
from polarproxy.wire.responses.reply import encode_reply
from polarproxy.wire.responses.request import decode_request
from tests.wire.responses.bodies import ID, RUN, envelope, request, text

HI = {"role": "user", "content": "hi"}


def test_the_head_of_a_request() -> None:
    assert read_head(b'{"input":"x"}') == Head(None, True, True, False, None, (), None)
    said = request(
        HI,
        {"type": "item_reference", "id": "msg_1"},
        {"id": "msg_2"},
        previous_response_id="resp_1",
        store=False,
        generate=False,
        stream=True,
        stream_id="lane",
    )
    assert read_head(said) == Head("resp_1", False, False, True, "m", ("msg_1", "msg_2"), "lane")
    nulls = b'{"input":null,"store":null,"generate":null,"stream":null,"prompt_cache_options":null}'
    assert read_head(nulls) == Head(None, True, True, False, None, (), None)
    assert read_head(b'{"generate":true,"prompt_cache_options":{"prewarm":true}}').generate is False


@pytest.mark.parametrize("body", [b"", b"[]", b'{"store":"no"}', b'{"previous_response_id":5}', b'{"input":[5]}'])
def test_what_has_no_head_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        read_head(body)


def test_earlier_items_come_before_the_own_ones() -> None:
    first = request(HI, instructions="be kind")
    reply = encode_reply(Reply((Choice(0, (ToolUse("c1", "run", '{"a": 1}'),), "tool_calls"),)), envelope(first)).body
    earlier = [*input_items(first, ID), *output_items(reply)]
    body = request(
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        previous_response_id=response_id(reply),
        tools=[RUN],
    )
    read = decode_request(with_history(body, earlier))
    assert read.losses == ()
    assert [message.role for message in read.request.messages] == ["user", "assistant", "tool"]
    assert read.request.messages[1] == Message("assistant", (ToolUse("c1", "run", '{"a": 1}'),))
    assert [tool.name for tool in read.request.tools] == ["run"]


def test_a_text_is_continued_like_items() -> None:
    read = decode_request(with_history(b'{"input":"next","previous_response_id":"r"}', [json.dumps(HI).encode()]))
    assert [message.parts for message in read.request.messages] == [(Text("hi"),), (Text("next"),)]


def test_history_keeps_the_bytes_of_all_else() -> None:
    body = b'{"x": 1.0, "input":[{"role":"user", "content":"a"}],"tools": [ ]}'
    continued = with_history(body, [b'{"id": "b"}'])
    assert continued == b'{"x":1.0,"input":[{"id": "b"},{"role":"user", "content":"a"}],"tools":[ ]}'


def test_references_are_replaced_by_what_was_found() -> None:
    body = request(HI, {"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"})
    found = with_references(body, {"msg_1": json.dumps(text("assistant", "ho")).encode()})
    assert read_head(found).references == ("msg_2",)
    assert json.loads(found)["input"][1]["role"] == "assistant"
    assert decode_request(with_references(b'{"input":"x"}', {})).request.messages == (Message("user", (Text("x"),)),)


@pytest.mark.parametrize(
    ("item", "listed"),
    [
        (
            HI,
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "hi"}],
                "type": "message",
                "status": "completed",
                "id": "msg_abi00",
            },
        ),
        (
            {"role": "assistant", "content": "ho", "id": "msg_own", "x": 1},
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "ho", "annotations": []}],
                "id": "msg_own",
                "x": 1,
                "type": "message",
                "status": "completed",
            },
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}", "status": "incomplete"},
            {
                "type": "function_call",
                "call_id": "c",
                "name": "n",
                "arguments": "{}",
                "status": "incomplete",
                "id": "fc_abi00",
            },
        ),
        ({"type": "new_thing", "id": None}, {"type": "new_thing", "id": "item_abi00"}),
        ({"id": "msg_1"}, {"id": "msg_1"}),
    ],
)
def test_an_item_as_it_is_listed(item: dict[str, Any], listed: dict[str, Any]) -> None:
    assert [json.loads(one) for one in input_items(request(item), "ab")] == [listed]


def test_a_text_is_listed_as_a_message() -> None:
    listed = json.loads(input_items(b'{"input":"hi"}', "ab")[0])
    assert (listed["id"], listed["content"]) == ("msg_abi00", [{"type": "input_text", "text": "hi"}])
    assert input_items(b"{}", "ab") == []


def page(*given: object, **more: object) -> tuple[list[str], bool]:
    items = [json.dumps({"type": "message", "role": "user", "id": f"m{place}"}).encode() for place in range(5)]
    read = json.loads(item_list(items, *given, **more))  # type: ignore[arg-type]
    ids = [item["id"] for item in read["data"]]
    assert (read["object"], read["first_id"], read["last_id"]) == (
        "list",
        ids[0] if ids else None,
        ids[-1] if ids else None,
    )
    return ids, read["has_more"]


def test_pages_of_items() -> None:
    assert page() == (["m4", "m3", "m2", "m1", "m0"], False)
    assert page(2) == (["m4", "m3"], True)
    assert page(2, "m3") == (["m2", "m1"], True)
    assert page(2, "m1", "desc") == (["m0"], False)
    assert page(order="asc", limit=5) == (["m0", "m1", "m2", "m3", "m4"], False)
    assert page(order="asc", after="m4") == ([], False)


@pytest.mark.parametrize("more", [{"order": "up"}, {"after": "m9"}])
def test_pages_that_are_not_there(more: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        page(**more)


def test_a_deleted_response() -> None:
    assert json.loads(deleted("resp_1")) == {"id": "resp_1", "object": "response", "deleted": True}
