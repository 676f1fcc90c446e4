"""Responses that are kept: asked for again, continued, listed, deleted; and only those of one's own session."""

import json
from typing import Any

from tests.fakes import always, compose, in_order
from tests.proxy.rig import Answer, Rig, Starter, _encoded

PATH = "/v1/responses"
BODY: dict[str, Any] = {"model": "fake", "input": "hi"}
JSON = {"Content-Type": "application/json"}


async def make(rig: Rig, prefix: str = "/s/s1", **more: Any) -> Answer:
    return await rig.send("POST", rig.base + prefix + PATH, _encoded(BODY | more), JSON)


async def test_a_response_can_be_asked_for_again(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    made = (await make(rig)).json
    again = await rig.send("GET", f"{rig.base}/s/s1{PATH}/{made['id']}")
    assert again.json == made
    listed = (await rig.send("GET", f"{rig.base}/s/s1{PATH}/{made['id']}/input_items")).json
    assert [item["content"][0]["text"] for item in listed["data"]] == ["hi"]


async def test_a_streamed_response_is_kept_as_it_was_streamed(start: Starter) -> None:
    rig = await start(always(compose("Hello.", reasoning="hm")))
    streamed = await make(rig, stream=True)
    last = json.loads(streamed.events[-1].split(b"data: ")[1])
    assert last["type"] == "response.completed"
    again = await rig.send("GET", f"{rig.base}/s/s1{PATH}/{last['response']['id']}")
    assert again.json == last["response"]


async def test_a_conversation_goes_on_from_a_kept_response(start: Starter) -> None:
    rig = await start(in_order(*(compose(f"answer {number}") for number in range(3))))
    previous: dict[str, Any] = {}
    for number in range(3):
        made = (await make(rig, input=f"question {number}", **previous)).json
        previous = {"previous_response_id": made["id"]}
    asked = json.loads(rig.received[2].body)["messages"]
    assert [(message["role"], message["content"]) for message in asked] == [
        ("user", "question 0"),
        ("assistant", "answer 0"),
        ("user", "question 1"),
        ("assistant", "answer 1"),
        ("user", "question 2"),
    ]


async def test_items_may_be_named_by_their_ids(start: Starter) -> None:
    rig = await start(in_order(compose("answer"), compose("again")))
    made = (await make(rig)).json
    reference = {"type": "item_reference", "id": made["output"][0]["id"]}
    user = {"role": "user", "content": "more"}
    assert (await make(rig, input=[{"role": "user", "content": "hi"}, reference, user])).status == 200
    asked = json.loads(rig.received[1].body)["messages"]
    assert [message["content"] for message in asked] == ["hi", "answer", "more"]


async def test_instructions_are_not_carried_over(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    made = (await make(rig, instructions="Be brief.")).json
    await make(rig, previous_response_id=made["id"])
    assert [m["role"] for m in json.loads(rig.received[0].body)["messages"]] == ["system", "user"]
    assert [m["role"] for m in json.loads(rig.received[1].body)["messages"]] == ["user", "assistant", "user"]


async def test_a_deleted_response_is_gone_and_its_call_stays(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    made = (await make(rig)).json
    url = f"{rig.base}/s/s1{PATH}/{made['id']}"
    deleted = await rig.send("DELETE", url)
    assert deleted.json == {"id": made["id"], "object": "response", "deleted": True}
    assert (await rig.send("GET", url)).status == 404
    continued = await make(rig, previous_response_id=made["id"])
    assert (continued.status, continued.error["code"], continued.error["param"]) == (
        400,
        "previous_response_not_found",
        "previous_response_id",
    )
    assert len(rig.calls()) == 1


async def test_a_response_that_was_not_to_be_kept_is_not(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    made = (await make(rig, store=False)).json
    assert (await rig.send("GET", f"{rig.base}/s/s1{PATH}/{made['id']}")).status == 404


async def test_one_session_does_not_see_those_of_another(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    made = (await make(rig)).json
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
        assert (await rig.send(method, f"{rig.base}/s/other{PATH}/{made['id']}{path}")).status == 404
    assert (await make(rig, prefix="/s/other", previous_response_id=made["id"])).status == 400
    assert (await rig.send("GET", f"{rig.base}/s/s1{PATH}/{made['id']}")).status == 200


async def test_without_a_session_a_continued_response_stays_in_its_own(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    made = (await make(rig, prefix="")).json
    await make(rig, prefix="", previous_response_id=made["id"])
    (session_id,) = rig.parts.repository.session_ids()
    assert len(rig.calls(session_id)) == 2


async def test_only_background_responses_can_be_cancelled(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    made = (await make(rig)).json
    answer = await rig.send("POST", f"{rig.base}/s/s1{PATH}/{made['id']}/cancel")
    assert (answer.status, "background" in answer.error["message"]) == (400, True)
