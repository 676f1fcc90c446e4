"""boto3 makes the same message of what was sampled, streamed or not."""

import json
from typing import Any

import pytest

from polarproxy.model import Caveat, Dialect
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Faults, Reply, Tool, always, compose, in_order
from tests.fakes.sampling import limited
from tests.proxy.rig import Rig, Starter, until
from tests.sdks.record import recorded
from tests.sdks.scenes import BOTH, FINAL, LONG, SCENES, THOUGHTFUL, WEATHER, Finish, Scene, check
from tests.sdks.ways_bedrock import EVERY_WAY, WAYS, Way, given, in_thread

MODEL = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-2-lite-v1:0"
ASK: dict[str, Any] = {"modelId": "any-model", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
TOOLS = {"tools": [{"toolSpec": {"name": "weather", "description": "The weather.", "inputSchema": {"json": WEATHER}}}]}
FINISHES: dict[Finish, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


def asked(scene: Scene) -> dict[str, Any]:
    inference = {"maxTokens": scene.limit} | ({"stopSequences": [scene.stop]} if scene.stop else {})
    return {**ASK, "inferenceConfig": inference} | ({"toolConfig": TOOLS} if scene.tools else {})


def parsed(answer: dict[str, Any]) -> dict[str, Any]:
    """A stream tells the input of a tool as text, which its user must read."""
    for block in answer["output"]["message"]["content"]:
        if isinstance(block.get("toolUse", {}).get("input"), str):
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return answer


@EVERY_WAY
async def test_what_was_sampled_is_what_the_sdk_gives(start: Starter, way: Way) -> None:
    rig = await start(in_order(*(scene.reply for scene in SCENES.values())))
    answers = {name: await way(rig, **asked(scene)) for name, scene in SCENES.items()}
    told = {name: given(parsed(answer)) for name, answer in answers.items()}
    calls = await check(rig, Dialect.BEDROCK, told, FINISHES, streamed=way is WAYS["stream"])
    assert told["stopped"].stop == "three"
    assert [call.losses for call in calls] == [()] * len(calls)


async def test_the_input_of_a_tool_is_streamed_as_it_was_sampled(start: Starter) -> None:
    scene = SCENES["a call"]
    rig = await start(always(scene.reply))
    answer = await WAYS["stream"](rig, **asked(scene))
    (block,) = answer["output"]["message"]["content"]
    assert block["toolUse"]["input"] == '{"city":  "Par\\u00efs\\n", "days": 1e0}'


@EVERY_WAY
async def test_a_call_that_was_cut_is_told_as_it_was_sampled(start: Starter, way: Way) -> None:
    reply = compose(tools=(Tool("weather", '{"city": "Paris", "days": 3}'),))
    cut = limited(reply, next(n for n, token in enumerate(reply.tokens) if token.text == "ri") + 1)
    rig = await start(always(reply))
    answer = await way(rig, **ASK, toolConfig=TOOLS, inferenceConfig={"maxTokens": len(cut.tokens)})
    (call,) = await recorded(rig, Dialect.BEDROCK, cut)
    (block,) = answer["output"]["message"]["content"]
    assert answer["stopReason"] == "max_tokens"
    malformed = '{"city": "Pari'
    whole = way is WAYS["converse"]
    assert block["toolUse"]["input"] == ({"_malformed_arguments": malformed} if whole else malformed)
    wrapped = ["output.message.content[0].toolUse.input"] if whole else []
    assert [loss.where for loss in call.losses] == wrapped


@EVERY_WAY
async def test_the_time_is_told(start: Starter, way: Way) -> None:
    rig = await start(always(LONG, faults=Faults(first_byte_delay=0.1)))
    answer = await way(rig, **ASK)
    assert answer["metrics"]["latencyMs"] >= 50


@EVERY_WAY
async def test_settings_reach_the_engine(start: Starter, way: Way) -> None:
    rig = await start(always(compose("Hello.")))
    await way(
        rig,
        modelId=MODEL,
        messages=ASK["messages"],
        system=[{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
        inferenceConfig={"temperature": 0.5, "topP": 0.75, "maxTokens": 100},
        toolConfig={**TOOLS, "toolChoice": {"tool": {"name": "weather"}}},
        additionalModelRequestFields={
            "inferenceConfig": {"topK": 40},
            "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"},
        },
        requestMetadata={"run": "7"},
    )
    (call,) = await recorded(rig, Dialect.BEDROCK, compose("Hello."))
    assert call.losses == ()
    assert (call.requested_model, call.served_model) == (MODEL, "fake")
    sampling = call.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (0.5, 0.75, 40, 100)
    body = rig.received[0].json
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert (body["chat_template_kwargs"], body["reasoning_effort"]) == ({"enable_thinking": True}, "high")
    assert body["tools"][0]["function"]["parameters"] == WEATHER


async def test_structured_output(start: Starter) -> None:
    said = compose('{"city": "Paris"}')
    rig = await start(always(said))
    structure = {"jsonSchema": {"name": "forecast", "schema": json.dumps(WEATHER)}}
    output = {"textFormat": {"type": "json_schema", "structure": structure}}
    await WAYS["converse"](rig, **ASK, outputConfig=output)
    await recorded(rig, Dialect.BEDROCK, said)
    asked_for = rig.received[0].json["response_format"]
    assert (asked_for["type"], asked_for["json_schema"]["schema"]) == ("json_schema", WEATHER)


async def test_images(start: Starter) -> None:
    rig = await start(always(compose("A dot.")))
    content = [{"text": "What is it?"}, {"image": {"format": "png", "source": {"bytes": b"\x89PNG dot"}}}]
    await WAYS["converse"](rig, modelId="any-model", messages=[{"role": "user", "content": content}])
    (call,) = await recorded(rig, Dialect.BEDROCK, compose("A dot."))
    assert call.caveat is Caveat.MEDIA
    text, image = rig.received[0].json["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert image["image_url"]["url"] == "data:image/png;base64,iVBORyBkb3Q="


async def test_halves_of_characters_are_read_as_a_lenient_server_reads_them(start: Starter) -> None:
    """A text that was cut in the middle of an emoji: boto3 sends it as it is, half of an escape."""
    rig = await start(always(LONG))
    for way in WAYS.values():
        await way(rig, modelId="any-model", messages=[{"role": "user", "content": [{"text": "cut \ud83d"}]}])
    calls = await recorded(rig, Dialect.BEDROCK, LONG, LONG)
    assert [[loss.where for loss in call.losses] for call in calls] == [["body"]] * 2
    assert all(b"cut \\ud83d" in call.request_body for call in calls)
    assert [received.json["messages"][0]["content"] for received in rig.received] == ["cut \ufffd"] * 2


async def test_a_session_is_named_by_the_path(start: Starter) -> None:
    rig = await start(always(LONG))
    await in_thread(rig, lambda bedrock: bedrock.converse(**ASK), "any", prefix="/s/mine")
    await recorded(rig, Dialect.BEDROCK, LONG, session="mine")


# Conversations


async def check_one_branch(rig: Rig, *replies: Reply) -> list[dict[str, Any]]:
    """The engine was told every turn as it had sampled it, so all are one branch without a gap; its last messages."""
    await recorded(rig, Dialect.BEDROCK, *replies)
    await until(lambda: all(captured.delivered for captured in rig.calls()))
    trajectory = build_trajectory("s1", rig.calls())
    assert len(trajectory.branches) == 1
    assert trajectory.trained_tokens == sum(len(reply.tokens) for reply in replies)
    messages: list[dict[str, Any]] = rig.received[-1].json["messages"]
    return messages


@EVERY_WAY
async def test_tools_to_a_final_answer(start: Starter, way: Way) -> None:
    rig = await start(in_order(BOTH, FINAL))
    question = {"role": "user", "content": [{"text": "Weather in Paris and Lyon?"}]}
    first = parsed(await way(rig, modelId="any-model", messages=[question], toolConfig=TOOLS))
    said = first["output"]["message"]
    uses = [block["toolUse"] for block in said["content"] if "toolUse" in block]
    results = [
        {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": "sun"}], "status": "success"}}
        for use in uses
    ]
    history = [question, said, {"role": "user", "content": results}]
    last = await way(rig, modelId="any-model", messages=history, toolConfig=TOOLS)
    assert last["output"]["message"]["content"][-1] == {"text": "Sun in both."}
    _, assistant, *tools = await check_one_branch(rig, BOTH, FINAL)
    assert (assistant["content"], assistant["reasoning"]) == ("Let me see.", "Two cities.")
    assert [(tool["role"], tool["content"]) for tool in tools] == [("tool", "sun")] * 2
    assert [tool["tool_call_id"] for tool in tools] == [call["id"] for call in assistant["tool_calls"]]


@pytest.mark.parametrize("kept", [True, False], ids=["whole", "without its text"])
@EVERY_WAY
async def test_reasoning_comes_back(start: Starter, way: Way, kept: bool) -> None:
    rig = await start(in_order(THOUGHTFUL, FINAL))
    said = (await way(rig, **ASK))["output"]["message"]
    if not kept:
        said["content"][0]["reasoningContent"]["reasoningText"]["text"] = ""
    await way(rig, modelId="any-model", messages=[*ASK["messages"], said, {"role": "user", "content": [{"text": "?"}]}])
    _, assistant, _ = await check_one_branch(rig, THOUGHTFUL, FINAL)
    assert (assistant["reasoning"], assistant["content"]) == ("Two and two.", "Four.")
