"""The Anthropic SDK makes the same message of what was sampled, whichever way it asks."""

import asyncio
import base64
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from pydantic import BaseModel

from polarproxy.model import Caveat, Dialect
from tests.fakes import Tool, always, compose, in_order
from tests.fakes.sampling import limited
from tests.fakes.toy_tokenizer import prompt_ids
from tests.proxy.raw_engine import raw_engine, says
from tests.proxy.rig import Rig, Starter
from tests.sdks.record import recorded
from tests.sdks.scenes import LONG, SCENES, WEATHER, Finish, Scene, check
from tests.sdks.strict import valid
from tests.sdks.ways_anthropic import EVERY_WAY, WAYS, WHOLE, Way, awaited, given, in_thread

ASK: dict[str, Any] = {"model": "any-model", "max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [{"name": "weather", "description": "The weather in a city.", "input_schema": WEATHER}]
FINISHES: dict[Finish, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}
BOTH_WAYS = pytest.mark.parametrize("way", [WAYS["create"], WAYS["stream async"]], ids=["create", "stream async"])


def asked(scene: Scene) -> dict[str, Any]:
    tools = {"tools": TOOLS} if scene.tools else {}
    stop = {"stop_sequences": [scene.stop]} if scene.stop else {}
    return {**ASK, "max_tokens": scene.limit, **tools, **stop}


@EVERY_WAY
async def test_what_was_sampled_is_what_the_sdk_gives(start: Starter, way: Way) -> None:
    rig = await start(in_order(*(scene.reply for scene in SCENES.values())))
    messages = {name: await way(rig, **asked(scene)) for name, scene in SCENES.items()}
    told = {name: given(valid(message)) for name, message in messages.items()}
    calls = await check(rig, Dialect.MESSAGES, told, FINISHES, streamed=way not in WHOLE)
    for name, message, call in zip(messages, messages.values(), calls, strict=True):
        assert way not in WHOLE or message._request_id == f"req_{call.call_id}"
        assert (name, call.losses) == (name, ())
        assert (name, message.stop_sequence) == (name, SCENES[name].stop)


@BOTH_WAYS
async def test_a_call_that_was_cut_is_told_as_far_as_it_came(start: Starter, way: Way) -> None:
    reply = compose(tools=(Tool("weather", '{"city": "Paris", "days": 3}'),))
    cut = limited(reply, next(n for n, token in enumerate(reply.tokens) if token.text == "ri") + 1)
    rig = await start(always(reply))
    message = await way(rig, **{**ASK, "tools": TOOLS, "max_tokens": len(cut.tokens)})
    (call,) = await recorded(rig, Dialect.MESSAGES, cut)
    (block,) = message.content
    assert (message.stop_reason, block.name) == ("max_tokens", "weather")
    whole = way in WHOLE
    # The SDK reads what a stream told of an object that never ended.
    assert block.input == ({"_malformed_arguments": '{"city": "Pari'} if whole else {})
    assert [loss.where for loss in call.losses] == ["content[0].input"]


@BOTH_WAYS
async def test_settings_reach_the_engine(start: Starter, way: Way) -> None:
    rig = await start(always(compose("Hello.")))
    settings: dict[str, Any] = {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": TOOLS,
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
        "output_config": {"effort": "high"},
        "service_tier": "auto",
        # This release has no arguments for them any more.
        "extra_body": {"temperature": 0.5, "top_p": 0.75, "top_k": 40, "min_p": 0.1},
    }
    await way(rig, **ASK, **settings)
    (call,) = await recorded(rig, Dialect.MESSAGES, compose("Hello."))
    assert call.losses == ()
    sampling = call.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.75, 40, 0.1)
    body = rig.received[0].json
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert (body["parallel_tool_calls"], body["user"]) == (False, "u")
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    assert body["reasoning_effort"] == "high"
    assert body["tools"][0]["function"]["parameters"] == WEATHER


class Forecast(BaseModel):
    """What the model is to answer."""

    city: str
    days: int


async def test_structured_output(start: Starter) -> None:
    rig = await start(always(compose('{"city": "Paris", "days": 3}')))

    def whole(client: Anthropic) -> Forecast | None:
        return client.messages.parse(output_format=Forecast, **ASK).parsed_output

    def streamed(client: Anthropic) -> Forecast | None:
        with client.messages.stream(output_format=Forecast, **ASK) as stream:
            return stream.get_final_message().parsed_output

    async def whole_async(client: AsyncAnthropic) -> Forecast | None:
        return (await client.messages.parse(output_format=Forecast, **ASK)).parsed_output

    forecast = Forecast(city="Paris", days=3)
    assert [await in_thread(rig, whole), await in_thread(rig, streamed)] == [forecast, forecast]
    assert await awaited(rig, whole_async) == forecast
    calls = await recorded(rig, Dialect.MESSAGES, *[compose('{"city": "Paris", "days": 3}')] * 3)
    assert [call.losses for call in calls] == [(), (), ()]
    for received in rig.received:
        output = received.json["response_format"]
        assert output["type"] == "json_schema"
        assert set(output["json_schema"]["schema"]["properties"]) == {"city", "days"}


async def test_images(start: Starter) -> None:
    rig = await start(always(compose("A dot.")))
    data = base64.b64encode(b"\x89PNG dot").decode()
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "image", "source": {"type": "url", "url": "https://images.invalid/a.png"}},
    ]
    await WAYS["create"](rig, **{**ASK, "messages": [{"role": "user", "content": content}]})
    (call,) = await recorded(rig, Dialect.MESSAGES, compose("A dot."))
    assert (call.caveat, call.losses) == (Caveat.MEDIA, ())
    text, first, second = rig.received[0].json["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert first["image_url"]["url"] == f"data:image/png;base64,{data}"
    assert second["image_url"]["url"] == "https://images.invalid/a.png"


async def test_tokens_are_counted_and_nothing_is_generated(start: Starter) -> None:
    rig = await start()
    prompt: dict[str, Any] = {"model": "any-model", "system": "Be brief.", "messages": ASK["messages"], "tools": TOOLS}
    by_sync = await in_thread(rig, lambda client: client.messages.count_tokens(**prompt))
    by_beta = await awaited(rig, lambda client: client.beta.messages.count_tokens(**prompt))
    assert (rig.received, rig.calls()) == ([], [])
    await WAYS["create"](rig, max_tokens=10, **prompt)
    body = rig.received[0].json
    assert by_sync.input_tokens == by_beta.input_tokens == len(prompt_ids(body["messages"], body["tools"]))


async def test_many_counts_at_once(start: Starter) -> None:
    """As Claude Code asks for them."""
    rig = await start()

    async def use(client: AsyncAnthropic) -> list[int]:
        prompts = [{"role": "user", "content": "word " * number} for number in range(1, 25)]
        asked = (client.messages.count_tokens(model="m", messages=[prompt]) for prompt in prompts)  # type: ignore[list-item]
        return [count.input_tokens for count in await asyncio.gather(*asked)]

    assert await awaited(rig, use) == [
        len(prompt_ids([{"role": "user", "content": "word " * number}])) for number in range(1, 25)
    ]
    assert (rig.received, rig.calls()) == ([], [])


async def test_models(start: Starter) -> None:
    rig = await start()
    listed = await in_thread(rig, lambda client: [model.to_dict() for model in client.models.list(limit=1)])
    one = await in_thread(rig, lambda client: client.models.retrieve("fake"))
    assert listed == [valid(one).to_dict()]
    assert (one.id, one.type) == ("fake", "model")

    async def by_beta(client: AsyncAnthropic) -> list[str]:
        return [model.id async for model in client.beta.models.list()]

    assert await awaited(rig, by_beta) == ["fake"]
    with pytest.raises(anthropic.NotFoundError, match="serves no model"):
        await in_thread(rig, lambda client: client.models.retrieve("other"))


async def test_models_come_in_pages(start: Starter) -> None:
    names = [f"m{number}" for number in range(5)]
    async with raw_engine(says(b""), names=names) as url:
        rig = await start(upstream=url)

        def use(client: Anthropic) -> list[list[str]]:
            forwards = [model.id for model in client.models.list(limit=2)]
            backwards = [model.id for model in client.models.list(limit=2, before_id="m3").data]
            return [forwards, backwards]

        assert await in_thread(rig, use) == [names, ["m1", "m2"]]


async def stored_session(rig: Rig, **options: Any) -> str:
    """The session of a call by a client with these options."""
    await in_thread(rig, lambda client: client.messages.create(**ASK), **options)
    (session,) = rig.parts.repository.session_ids()
    return session


@pytest.mark.parametrize("kind", ["path", "bearer", "header"])
async def test_a_session_is_named_in_any_way(start: Starter, kind: str) -> None:
    rig = await start(always(LONG))
    options: dict[str, dict[str, Any]] = {
        "path": {"base_url": f"{rig.base}/s/mine", "api_key": "any"},
        "bearer": {"auth_token": rig.parts.signer.key("mine"), "api_key": None},
        "header": {"api_key": "any", "default_headers": {"x-claude-code-session-id": "mine"}},
    }
    assert await stored_session(rig, **options[kind]) == "mine"
    await recorded(rig, Dialect.MESSAGES, LONG, session="mine")


async def test_betas_are_kept_in_the_record(start: Starter) -> None:
    rig = await start(always(LONG))
    edits: Any = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}

    def use(client: Anthropic) -> Any:
        return client.beta.messages.create(
            betas=["interleaved-thinking-2025-05-14", "context-management-2025-06-27"],
            context_management=edits,
            extra_query={"beta": "true"},
            **ASK,
        )

    await in_thread(rig, use)
    (call,) = await recorded(rig, Dialect.MESSAGES, LONG)
    assert dict(call.headers)["anthropic-beta"] == "interleaved-thinking-2025-05-14,context-management-2025-06-27"
    assert (call.path, call.losses) == ("/v1/messages", ())
