"""Harnesses use model names of their own: they are served by the engine's model, and see the name they used."""

import json
from typing import Any

import pytest

from tests.proxy.rig import BODY, Answer, Rig, Starter

STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def sent_model(rig: Rig) -> Any:
    return json.loads(rig.received[-1].body)["model"]


def shown_models(answer: Answer) -> set[str]:
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        chunks = [json.loads(event.removeprefix(b"data: ")) for event in answer.events if not event.endswith(b"[DONE]")]
        return {chunk["model"] for chunk in chunks}
    return {answer.json["model"]}


@pytest.mark.parametrize("how", [{}, STREAM], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("model_map", "asked", "served"),
    [
        ("", "fake", "fake"),
        ("", "gpt-unheard-of", "fake"),
        ("small=fake", "small", "fake"),
        ("small=other", "small", "other"),
        ("*=other", "gpt-unheard-of", "other"),
        ("*=other", "fake", "fake"),
        ("off", "gpt-unheard-of", "gpt-unheard-of"),
    ],
)
async def test_the_engine_gets_the_served_name_and_the_client_sees_its_own(
    start: Starter, how: dict[str, Any], model_map: str, asked: str, served: str
) -> None:
    rig = await start(model_map=model_map)
    answer = await rig.ask(BODY | how | {"model": asked})
    assert sent_model(rig) == served
    call = (await rig.call()).call
    assert call.requested_model == asked
    if served == "fake":  # the only one that the engine has
        assert shown_models(answer) == {asked}
        assert call.served_model == served
    else:
        assert answer.status == 404
    assert json.loads(call.request_body)["model"] == asked


async def test_a_request_that_names_no_model_is_served(start: Starter) -> None:
    rig = await start()
    assert (await rig.ask({"messages": BODY["messages"]})).status == 200
    assert (await rig.call()).call.requested_model is None


async def test_but_for_the_name_a_renamed_reply_is_the_engines_own(start: Starter) -> None:
    rig = await start()
    request_id = {"X-Request-Id": "same"}
    direct = (await rig.ask_engine(headers=request_id)).json
    renamed = (await rig.ask(BODY | {"model": "mine"}, headers=request_id)).json
    assert renamed == direct | {"model": "mine", "created": renamed["created"]}
    assert list(renamed) == list(direct)
