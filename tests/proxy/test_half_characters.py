"""A harness cut an emoji in two: what is translated is read with U+FFFD, and the record keeps what came."""

import json
from typing import Any

import pytest

from polarproxy.model import Dialect
from tests.fakes import always, compose
from tests.fakes.toy_tokenizer import prompt_ids
from tests.proxy.rig import Starter
from tests.proxy.speak import TRANSLATED, Question
from tests.proxy.test_socket import CREATE, socket, turn

JSON = {"Content-Type": "application/json"}
REPLY = compose("Hello.")


def cut(body: dict[str, Any]) -> bytes:
    """The body with half an emoji behind what the user says; Python writes it as half of a pair of escapes."""
    return json.dumps(body).replace('"hi"', '"hi \\ud83d"').encode()


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_half_a_character_is_no_reason_to_refuse(start: Starter, question: Question) -> None:
    rig = await start(always(REPLY))
    body = cut(question.body)
    answer = await rig.send("POST", f"{rig.base}/s/s1{question.path}", body, JSON)
    assert answer.status == 200
    assert rig.received[0].json["messages"] == [{"role": "user", "content": "hi \ufffd"}]
    call = (await rig.call()).call
    assert call.request_body == body
    assert [loss.where for loss in call.losses] == ["body"]
    assert list(call.completions[0].token_ids) == REPLY.token_ids


async def test_whole_characters_are_no_loss(start: Starter) -> None:
    rig = await start(always(REPLY))
    question = TRANSLATED[0]
    body = json.dumps(question.body).replace('"hi"', '"hi \\ud83d\\ude00"').encode()
    assert (await rig.send("POST", f"{rig.base}/s/s1{question.path}", body, JSON)).status == 200
    assert rig.received[0].json["messages"] == [{"role": "user", "content": "hi 😀"}]
    assert (await rig.call()).call.losses == ()


async def test_a_body_that_is_broken_besides_is_refused(start: Starter) -> None:
    rig = await start(always(REPLY))
    for body in (b'{"input": "\\ud83d"', b'{"model": "fake", "input": 7, "x": "\\ud83d"}'):
        assert (await rig.send("POST", f"{rig.base}/s/s1/v1/responses", body, JSON)).status == 400
    assert rig.calls() == []


async def test_a_response_to_it_can_be_continued(start: Starter) -> None:
    rig = await start(always(REPLY))
    url = f"{rig.base}/s/s1/v1/responses"
    first = await rig.send("POST", url, cut({"model": "fake", "input": "hi"}), JSON)
    more = {"model": "fake", "input": "more", "previous_response_id": first.json["id"]}
    assert (await rig.send("POST", url, json.dumps(more).encode(), JSON)).status == 200
    said = [message["content"] for message in rig.received[1].json["messages"]]
    assert said == ["hi \ufffd", "Hello.", "more"]


async def test_on_a_socket(start: Starter) -> None:
    rig = await start(always(REPLY))
    async with socket(rig) as connected:
        frames = await turn(connected, CREATE | {"input": "hi \ud83d"})
    assert frames[-1]["type"] == "response.completed"
    assert rig.received[0].json["messages"] == [{"role": "user", "content": "hi \ufffd"}]
    call = (await rig.call()).call
    assert (call.dialect, [loss.where for loss in call.losses]) == (Dialect.RESPONSES, ["body"])


@pytest.mark.parametrize(
    "path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1beta/models/m:countTokens"]
)
async def test_it_is_counted(start: Starter, path: str) -> None:
    rig = await start()
    bodies: dict[str, dict[str, Any]] = {
        "/v1/messages/count_tokens": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        "/v1/responses/input_tokens": {"model": "m", "input": "hi"},
        "/v1beta/models/m:countTokens": {"contents": [{"parts": [{"text": "hi"}]}]},
    }
    answer = await rig.send("POST", rig.base + path, cut(bodies[path]), JSON)
    assert answer.status == 200
    counted = {value for value in answer.json.values() if isinstance(value, int)}
    assert counted == {len(prompt_ids([{"role": "user", "content": "hi \ufffd"}]))}
