"""The ways in which boto3 can converse: each gives the same message, or something is wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import cache
from typing import Any, TypeAlias, TypeVar

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]

from tests.proxy.rig import SECONDS, Rig
from tests.sdks.scenes import Counts, Given, Part

Way: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]
"""Takes a rig, a key and the members of a request; gives what `converse` does."""
_T = TypeVar("_T")


@cache
def _session() -> Any:
    """Keeps the service models, which take long to read."""
    return boto3.session.Session()


def client(rig: Rig, key: str | None, *, attempts: int = 1, mode: str = "standard", prefix: str = "") -> Any:
    """A client that holds a key, that of session `s1` if None, as the id of its access key."""
    return _session().client(
        "bedrock-runtime",
        endpoint_url=rig.base + prefix,
        region_name="us-east-1",
        aws_access_key_id=key or rig.parts.signer.key("s1"),
        aws_secret_access_key="any",
        config=Config(
            retries={"total_max_attempts": attempts, "mode": mode}, read_timeout=SECONDS, connect_timeout=SECONDS
        ),
    )


async def in_thread(rig: Rig, use: Callable[[Any], _T], key: str | None = None, **options: Any) -> _T:
    """What a use of the client gives; boto3 has no asynchronous one."""

    def run() -> _T:
        with closing(client(rig, key, **options)) as bedrock:
            return use(bedrock)

    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(run)


def life(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What the events of a stream add up to, in their order, as `converse` gives it."""
    (first, start), *rest = [_only(event) for event in events]
    assert (first, start) == ("messageStart", {"role": "assistant"})
    *blocks, (stop_name, stop), (metadata_name, metadata) = rest
    assert (stop_name, metadata_name) == ("messageStop", "metadata")
    content: list[dict[str, Any]] = []
    closed = 0
    for name, event in blocks:
        index = event["contentBlockIndex"]
        match name:
            case "contentBlockStart":
                assert index == len(content) == closed
                content.append({"toolUse": {**event["start"]["toolUse"], "input": ""}})
            case "contentBlockDelta":
                if index == len(content):
                    assert index == closed
                    content.append({})
                _add(content[index], event["delta"])
            case "contentBlockStop":
                assert index == closed == len(content) - 1
                closed += 1
    assert closed == len(content)
    return {"output": {"message": {"role": "assistant", "content": content}}, **stop, **metadata}


def _only(event: dict[str, Any]) -> tuple[str, Any]:
    ((name, value),) = event.items()
    return name, value


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    kind, more = _only(delta)
    match kind:
        case "text":
            block["text"] = block.get("text", "") + more
        case "toolUse":
            block["toolUse"]["input"] += more["input"]
        case "reasoningContent":
            part, text = _only(more)
            reasoning = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {})
            reasoning[part] = reasoning.get(part, "") + text
        case other:
            raise AssertionError(other)


async def _converse(rig: Rig, key: str | None = None, **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await in_thread(rig, lambda bedrock: bedrock.converse(**request), key)
    return answer


async def _stream(rig: Rig, key: str | None = None, **request: Any) -> dict[str, Any]:
    def use(bedrock: Any) -> dict[str, Any]:
        answer = bedrock.converse_stream(**request)
        with closing(answer["stream"]) as stream:
            return {"ResponseMetadata": answer["ResponseMetadata"], **life(stream)}

    return await in_thread(rig, use, key)


WAYS: dict[str, Way] = {"converse": _converse, "stream": _stream}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def given(answer: dict[str, Any]) -> Given:
    """What an answer tells."""
    usage = answer["usage"]
    prompt, cached, sampled = usage["inputTokens"], usage["cacheReadInputTokens"], usage["outputTokens"]
    assert usage["totalTokens"] == prompt + cached + sampled
    assert isinstance(answer["metrics"]["latencyMs"], int)
    return Given(
        id=answer["ResponseMetadata"]["RequestId"],
        model=None,
        said=tuple(_said(block) for block in answer["output"]["message"]["content"]),
        finish=answer["stopReason"],
        counts=Counts(prompt + cached, cached, sampled, None),
        stop=answer.get("additionalModelResponseFields", {}).get("stop_sequence"),
    )


def _said(block: dict[str, Any]) -> Part:
    kind, value = _only(block)
    match kind:
        case "text":
            return ("text", value)
        case "toolUse":
            return ("call", value["name"], value["input"])
        case "reasoningContent":
            assert value["reasoningText"]["signature"]
            return ("thinking", value["reasoningText"]["text"])
    raise AssertionError(kind)
