"""Neutral values that this dialect can say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from polarproxy.wire.neutral.request import Media, Part, Request, Text, ToolUse
from tests.wire.neutral.strategies import EVERY_MEMBER, json_objects, media_parts, replies, requests, texts

if TYPE_CHECKING:
    from polarproxy.wire.neutral.reply import Reply

OWN_MEMBERS = ("guardrailConfig", "performanceConfig", "serviceTier", "promptVariables")


@cache
def media(*, audio: bool) -> st.SearchStrategy[Media]:
    """Media with their bytes, or in S3. Results of tools hold no sounds."""
    inline = media_parts(("image", "video", "audio") if audio else ("image", "video"), urls=False)
    documents = media_parts(("document",), urls=False).map(lambda part: replace(part, name="quarterly report"))
    stored = st.sampled_from(("image/png", "video/mp4")).map(lambda mime: Media(mime, "s3://bucket/a/key.bin"))
    return inline | documents | stored


def _extra() -> st.SearchStrategy[dict[str, bytes]]:
    names = st.sampled_from((*OWN_MEMBERS, "x_first", "min_p"))
    return st.dictionaries(names, json_objects(), max_size=2)


def _given_arguments(part: Part) -> Part:
    """No arguments at all are `{}` here."""
    return replace(part, arguments=part.arguments or "{}") if isinstance(part, ToolUse) else part


def _sayable(request: Request, extra: dict[str, bytes]) -> Request:
    messages = [replace(message, parts=tuple(map(_given_arguments, message.parts))) for message in request.messages]
    output = request.output and replace(request.output, strict=None)
    return replace(request, messages=tuple(messages), output=output, extra=extra)


@cache
def sayable_requests() -> st.SearchStrategy[Request]:
    """Requests of which nothing is lost here."""
    drawn = requests(
        developers=False,
        users=st.builds(Text, texts()) | media(audio=True),
        message_names=False,
        media=media(audio=False),
        namespaces=False,
        parameters="always",
        tool_choices=("auto", "required", "named"),
        outputs=("schema",),
        members=tuple(member for member in EVERY_MEMBER if member not in ("n", "stream_usage")),
        extra=False,
    )
    return st.builds(_sayable, drawn, _extra())


def _true(reply: Reply) -> Reply:
    choice = reply.choices[0]
    parts = tuple(
        replace(part, arguments=part.arguments or "{}") if isinstance(part, ToolUse) else part for part in choice.parts
    )
    usage = reply.usage
    if usage is not None and usage.cached_tokens is not None:
        usage = replace(usage, prompt_tokens=usage.prompt_tokens + usage.cached_tokens)
    return replace(reply, choices=(replace(choice, parts=parts),), usage=usage)


@cache
def sayable_replies() -> st.SearchStrategy[Reply]:
    """Replies of which nothing is lost here, apart from arguments that have to be wrapped."""
    return replies(several_choices=False, usage="always", reasoning_tokens=False).map(_true)
