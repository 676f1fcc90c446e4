"""The scripted engine: streams and whole replies agree, ids and logprobs pair up, histories come again as their tokens."""

import json
from typing import Any

import aiohttp
import pytest

from polarproxy.model.harness import Turn
from polarproxy.rollout.scripted import tokens
from polarproxy.rollout.scripted.engine import ScriptedEngine, played

TOOL = {"type": "function", "function": {"name": "bash", "parameters": {}}}
CALL = Turn(text="I will é.", tool="bash", arguments={"command": "echo ü", "n": 1})
DONE = Turn(text="Done, all of it: " + "x" * 40)
ASKED = {"return_token_ids": True, "logprobs": True, "stream_options": {"include_usage": True}, "tools": [TOOL]}


async def ask(
    engine: ScriptedEngine, messages: list[dict[str, Any]], **body: Any
) -> tuple[dict[str, Any], list[int], list[int]]:
    """Message, prompt ids and sampled ids; logprobs are as many as these."""
    sent = {"messages": messages, **body}
    async with aiohttp.ClientSession() as client, client.post(engine.url + "/v1/chat/completions", json=sent) as reply:
        assert reply.status == 200
        raw = (await reply.read()).decode()
    if not body.get("stream"):
        whole = json.loads(raw)
        (choice,) = whole["choices"]
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"]) == whole["usage"]["completion_tokens"]
        assert choice["finish_reason"] == ("tool_calls" if choice["message"].get("tool_calls") else "stop")
        return choice["message"], whole["prompt_token_ids"], choice["token_ids"]
    events = [json.loads(line.removeprefix("data: ")) for line in raw.split("\n\n") if line and "[DONE]" not in line]
    assert raw.endswith("data: [DONE]\n\n")
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    ids: list[int] = []
    for event in events[:-1]:
        (choice,) = event["choices"]
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
        ids += choice["token_ids"]
        message["content"] += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            message["tool_calls"] = [{name: call[name] for name in ("id", "type", "function")}]
    assert events[-1]["usage"]["completion_tokens"] == len(ids)
    return message, events[0]["prompt_token_ids"], ids


@pytest.mark.parametrize("turn", [CALL, DONE], ids=["call", "text"])
async def test_a_stream_is_the_whole_reply_in_pieces(turn: Turn) -> None:
    async with ScriptedEngine(played([turn])) as engine:
        whole = await ask(engine, [{"role": "user", "content": "hi"}], **ASKED)
        streamed = await ask(engine, [{"role": "user", "content": "hi"}], **ASKED, stream=True)
    for message, _, _ in (whole, streamed):
        for call in message.get("tool_calls", ()):
            call["id"] = "an id"
    assert whole == streamed
    assert whole[2][-1] == tokens.END


async def test_a_later_prompt_goes_on_from_what_was_sampled() -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    async with ScriptedEngine(played([CALL, DONE])) as engine:
        message, prompt, sampled = await ask(engine, messages, **ASKED)
        messages += [message, {"role": "tool", "content": [{"type": "text", "text": "ok"}], "tool_call_id": "x"}]
        last, later, _ = await ask(engine, messages, **ASKED)
    assert later[: len(prompt) + len(sampled)] == prompt + sampled
    assert last["content"] == DONE.text


async def test_what_is_not_the_main_conversation_gets_the_last_text() -> None:
    async with ScriptedEngine(played([CALL, DONE])) as engine:
        asked = ASKED | {"tools": []}
        assert (await ask(engine, [{"role": "user", "content": "a title?"}], **asked))[0]["content"] == DONE.text
        assert [one.offered for one in engine.asked] == [frozenset()]


async def test_ids_come_only_when_asked_for() -> None:
    async with ScriptedEngine(played([DONE])) as engine, aiohttp.ClientSession(engine.url) as client:
        async with client.post("/v1/chat/completions", json={"messages": []}) as reply:
            whole = await reply.json()
        async with client.get("/v1/models") as reply:
            assert (await reply.json())["data"][0]["owned_by"] == "vllm"
    assert whole["prompt_token_ids"] is None
    assert (whole["choices"][0]["token_ids"], whole["choices"][0]["logprobs"]) == (None, None)
