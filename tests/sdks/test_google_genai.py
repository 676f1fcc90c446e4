"""Google's SDK makes the same content of what was sampled, whichever way it asks."""

from typing import Any

import pytest
from google.genai import Client, errors, types
from google.genai.client import AsyncClient
from pydantic import BaseModel

from polarproxy.model import Caveat, Dialect
from tests.fakes import Tool, always, compose, in_order
from tests.fakes.sampling import limited
from tests.fakes.toy_tokenizer import prompt_ids
from tests.proxy.rig import Starter
from tests.sdks.record import recorded
from tests.sdks.scenes import LONG, SCENES, WEATHER, Finish, Scene, check
from tests.sdks.ways_genai import EVERY_WAY, QUIET, WAYS, WHOLE, Way, awaited, given, in_thread

pytestmark = QUIET
ASK: dict[str, Any] = {"model": "any-model", "contents": "hi"}
DECLARED: dict[str, Any] = {
    "name": "weather",
    "description": "The weather in a city.",
    "parameters_json_schema": WEATHER,
}
TOOLS = [types.Tool(function_declarations=[types.FunctionDeclaration(**DECLARED)])]
FINISHES: dict[Finish, str] = {"stop": "STOP", "stop_sequence": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}
THINK = types.ThinkingConfig(include_thoughts=True)
BOTH_WAYS = pytest.mark.parametrize("way", [WAYS["generate"], WAYS["stream async"]], ids=["generate", "stream async"])


def asked(scene: Scene) -> dict[str, Any]:
    config = types.GenerateContentConfig(
        max_output_tokens=scene.limit,
        tools=TOOLS if scene.tools else None,  # type: ignore[arg-type]
        stop_sequences=[scene.stop] if scene.stop else None,
        thinking_config=THINK,
    )
    return {**ASK, "config": config}


@EVERY_WAY
async def test_what_was_sampled_is_what_the_sdk_gives(start: Starter, way: Way) -> None:
    rig = await start(in_order(*(scene.reply for scene in SCENES.values())))
    responses = {name: await way(rig, **asked(scene)) for name, scene in SCENES.items()}
    told = {name: given(response) for name, response in responses.items()}
    calls = await check(rig, Dialect.GEMINI, told, FINISHES, streamed=way not in WHOLE)
    for (name, scene), call in zip(SCENES.items(), calls, strict=True):
        untold = ["candidates[0].finishReason"] if scene.stop else []
        assert (name, [loss.where for loss in call.losses]) == (name, untold)
    assert responses["text"].text == "Hello you."
    assert responses["calls"].text == "Let me see."
    assert [call.name for call in responses["calls"].function_calls or ()] == ["weather", "weather"]


@BOTH_WAYS
async def test_a_call_that_was_cut_is_told_as_it_was_sampled(start: Starter, way: Way) -> None:
    reply = compose(tools=(Tool("weather", '{"city": "Paris", "days": 3}'),))
    cut = limited(reply, next(n for n, token in enumerate(reply.tokens) if token.text == "ri") + 1)
    rig = await start(always(reply))
    config = types.GenerateContentConfig(max_output_tokens=len(cut.tokens), tools=TOOLS)  # type: ignore[arg-type]
    response = await way(rig, **ASK, config=config)
    (call,) = await recorded(rig, Dialect.GEMINI, cut)
    assert response.function_calls is not None
    (called,) = response.function_calls
    assert called.args == {"_malformed_arguments": '{"city": "Pari'}
    assert given(response).finish == "MAX_TOKENS"
    assert [loss.where for loss in call.losses] == ["candidates[0].functionCall"]


@BOTH_WAYS
async def test_settings_reach_the_engine(start: Starter, way: Way) -> None:
    rig = await start(always(compose("Hello.")))
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        temperature=0.5,
        top_p=0.75,
        top_k=40,
        seed=7,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        tools=TOOLS,  # type: ignore[arg-type]
        tool_config=types.ToolConfig(
            function_calling_config=types.FunctionCallingConfig(
                mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["weather"]
            )
        ),
        thinking_config=types.ThinkingConfig(thinking_budget=1024),
    )
    await way(rig, **ASK, config=config)
    (call,) = await recorded(rig, Dialect.GEMINI, compose("Hello."))
    assert call.losses == ()
    sampling = call.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.75, 40, 7)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.25, 0.5)
    body = rig.received[0].json
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    assert body["tools"][0]["function"]["parameters"] == WEATHER


async def test_several_candidates(start: Starter) -> None:
    rig = await start(always(LONG))
    config = types.GenerateContentConfig(candidate_count=2)
    whole = await WAYS["generate"](rig, **ASK, config=config)
    said: dict[int, str] = {}

    def use(sync: Client) -> None:
        for chunk in sync.models.generate_content_stream(**ASK, config=config):
            for candidate in chunk.candidates or ():
                assert candidate.content is not None
                texts = "".join(part.text or "" for part in candidate.content.parts or ())
                said[candidate.index or 0] = said.get(candidate.index or 0, "") + texts

    await in_thread(rig, use)
    assert [candidate.index for candidate in whole.candidates or ()] == [0, 1]
    assert said == dict.fromkeys((0, 1), "one two three four five six")
    await recorded(rig, Dialect.GEMINI, LONG, LONG, n=2)


class Forecast(BaseModel):
    """What the model is to answer."""

    city: str
    days: int


async def test_structured_output(start: Starter) -> None:
    said = compose('{"city": "Paris", "days": 3}')
    rig = await start(always(said))
    by_class = types.GenerateContentConfig(response_mime_type="application/json", response_schema=Forecast)
    by_schema = types.GenerateContentConfig(
        response_mime_type="application/json", response_json_schema=Forecast.model_json_schema()
    )
    first = await WAYS["generate"](rig, **ASK, config=by_class)
    second = await WAYS["generate async"](rig, **ASK, config=by_schema)
    assert (first.parsed, second.text) == (Forecast(city="Paris", days=3), '{"city": "Paris", "days": 3}')
    calls = await recorded(rig, Dialect.GEMINI, said, said)
    assert [call.losses for call in calls] == [(), ()]
    for received in rig.received:
        output = received.json["response_format"]
        assert output["type"] == "json_schema"
        assert set(output["json_schema"]["schema"]["properties"]) == {"city", "days"}


async def test_images(start: Starter) -> None:
    rig = await start(always(compose("A dot.")))
    contents = [
        "What is it?",
        types.Part.from_bytes(data=b"\x89PNG dot", mime_type="image/png"),
        types.Part.from_uri(file_uri="https://images.invalid/a.png", mime_type="image/png"),
    ]
    await WAYS["generate"](rig, model="any-model", contents=contents)
    (call,) = await recorded(rig, Dialect.GEMINI, compose("A dot."))
    assert (call.caveat, call.losses) == (Caveat.MEDIA, ())
    text, first, second = rig.received[0].json["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert first["image_url"]["url"] == "data:image/png;base64,iVBORyBkb3Q="
    assert second["image_url"]["url"] == "https://images.invalid/a.png"


async def test_halves_of_characters_are_read_as_a_lenient_server_reads_them(start: Starter) -> None:
    """A text that was cut in the middle of an emoji: the SDK sends it as it is, half of an escape."""
    rig = await start(always(LONG))
    ask: dict[str, Any] = {"model": "any-model", "contents": "cut \ud83d"}
    for name in ("generate", "stream async"):
        await WAYS[name](rig, **ask)
    calls = await recorded(rig, Dialect.GEMINI, LONG, LONG)
    assert [[loss.where for loss in call.losses] for call in calls] == [["body"], ["body"]]
    assert all(b"cut \\ud83d" in call.request_body for call in calls)
    assert [received.json["messages"][0]["content"] for received in rig.received] == ["cut \ufffd"] * 2
    counted = await in_thread(rig, lambda sync: sync.models.count_tokens(**ask))
    assert counted.total_tokens == len(calls[0].prompt_token_ids or ())


async def test_tokens_are_counted_and_nothing_is_generated(start: Starter) -> None:
    rig = await start()
    by_sync = await in_thread(rig, lambda sync: sync.models.count_tokens(**ASK))
    by_async = await awaited(rig, lambda aio: aio.models.count_tokens(**ASK))
    assert (rig.received, rig.calls()) == ([], [])
    await WAYS["generate"](rig, **ASK)
    prompt = prompt_ids(rig.received[0].json["messages"])
    assert by_sync.total_tokens == by_async.total_tokens == len(prompt)


@pytest.mark.parametrize("version", ["v1", "v1beta"])
async def test_models(start: Starter, version: str) -> None:
    """`v1`, where OpenAI's clients look for models too, is what this SDK takes unless told otherwise."""
    rig = await start()

    def use(sync: Client) -> tuple[list[str | None], types.Model]:
        return [model.name for model in sync.models.list(config={"page_size": 1})], sync.models.get(model="fake")

    async def use_async(aio: AsyncClient) -> list[str | None]:
        return [model.name async for model in await aio.models.list()]

    names, model = await in_thread(rig, use, api_version=version)
    assert names == await awaited(rig, use_async, api_version=version) == ["models/fake"]
    assert (model.name, model.input_token_limit, model.output_token_limit) == ("models/fake", 32768, 32768)
    assert "generateContent" in (model.supported_actions or ())
    with pytest.raises(errors.ClientError, match="serves no model") as caught:
        await in_thread(rig, lambda sync: sync.models.get(model="other"), api_version=version)
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


async def test_the_paths_of_vertex(start: Starter) -> None:
    rig = await start(always(LONG))

    def use(_: Client) -> list[str]:
        options = types.HttpOptions(base_url=rig.base, client_args={"verify": False})
        with Client(vertexai=True, api_key=rig.parts.signer.key("s1"), http_options=options) as vertex:
            chunks = "".join(chunk.text or "" for chunk in vertex.models.generate_content_stream(**ASK))
            return [vertex.models.generate_content(**ASK).text or "", chunks]

    assert await in_thread(rig, use) == ["one two three four five six"] * 2
    calls = await recorded(rig, Dialect.GEMINI, LONG, LONG)
    assert {call.requested_model for call in calls} == {"any-model"}


@pytest.mark.parametrize("version", ["v1", "v1beta"])
@pytest.mark.parametrize("kind", ["path", "header"])
async def test_a_session_is_named_in_any_way(start: Starter, kind: str, version: str) -> None:
    rig = await start(always(LONG))
    options: dict[str, dict[str, Any]] = {
        "path": {"base_url": f"{rig.base}/s/mine"},
        "header": {"headers": {"x-polarproxy-session": "mine"}},
    }
    more = options[kind] | {"api_version": version}
    await in_thread(rig, lambda sync: sync.models.generate_content(**ASK), "any", **more)
    await recorded(rig, Dialect.GEMINI, LONG, session="mine")
    assert rig.parts.repository.session_ids() == ["mine"]
