"""Exact prompts in the dialects whose clients bring no ids, or send what they got back in another shape."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.exact.talk import Talk, exact_rig
from tests.proxy.rig import Rig

Json = dict[str, Any]


async def post(rig: Rig, path: str, body: Json) -> Any:
    answer = await rig.send(
        "POST", f"{rig.base}/s/s1{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    assert answer.status == 200, answer.body
    return answer.json


async def gemini(rig: Rig, turns: int) -> None:
    """Thoughts are dropped, as Gemini CLI drops them."""
    contents: list[Json] = [{"role": "user", "parts": [{"text": "Weather in Paris?"}]}]
    tools = [{"functionDeclarations": [{"name": "weather", "parameters": {"type": "OBJECT", "properties": {}}}]}]
    for _ in range(turns):
        said = await post(rig, "/v1beta/models/fake:generateContent", {"contents": contents, "tools": tools})
        parts: list[Json] = [part for part in said["candidates"][0]["content"]["parts"] if not part.get("thought")]
        contents.append({"role": "model", "parts": parts})
        answers: list[Json] = [
            {"functionResponse": {"name": part["functionCall"]["name"], "response": {"output": "18 degrees"}}}
            for part in parts
            if "functionCall" in part
        ]
        asked: list[Json] = [{"text": f"And after {len(contents)}?"}]
        contents.append({"role": "user", "parts": answers or asked})


async def bedrock(rig: Rig, turns: int) -> None:
    messages: list[Json] = [{"role": "user", "content": [{"text": "Weather in Paris?"}]}]
    tool = {"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object", "properties": {}}}}}
    for _ in range(turns):
        said = await post(rig, "/model/fake/converse", {"messages": messages, "toolConfig": {"tools": [tool]}})
        message = said["output"]["message"]
        messages.append(message)
        results: list[Json] = [
            {"toolResult": {"toolUseId": block["toolUse"]["toolUseId"], "content": [{"text": "18 degrees"}]}}
            for block in message["content"]
            if "toolUse" in block
        ]
        asked: list[Json] = [{"text": f"And after {len(messages)}?"}]
        messages.append({"role": "user", "content": results or asked})


@pytest.mark.parametrize("converse", [gemini, bedrock])
async def test_six_turns_are_one_branch(tmp_path: Path, converse: Any) -> None:
    async with exact_rig(tmp_path) as rig:
        await converse(rig, 6)
        talk = Talk(rig)
        assert talk.outcomes() == ["first"] + ["exact"] * 5
        trajectory = await talk.trajectory()
        assert (len(trajectory.branches), trajectory.coverage) == (1, 1.0)
