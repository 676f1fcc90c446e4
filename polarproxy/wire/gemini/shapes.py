"""What is written in this dialect: parts, contents and replies. Members that are unset are left out."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Blob(msgspec.Struct, rename="camel", omit_defaults=True):
    mime_type: str
    data: str
    """Base64."""
    display_name: str | UnsetType = UNSET


class FileData(msgspec.Struct, rename="camel", omit_defaults=True):
    mime_type: str
    file_uri: str
    display_name: str | UnsetType = UNSET


class FunctionCall(msgspec.Struct):
    id: str | UnsetType
    name: str
    args: msgspec.Raw


class FunctionResponse(msgspec.Struct, omit_defaults=True):
    id: str | UnsetType
    name: str
    response: msgspec.Raw
    parts: list[Part] | UnsetType = UNSET


class Part(msgspec.Struct, rename="camel", omit_defaults=True):
    text: str | UnsetType = UNSET
    thought: bool = False
    inline_data: Blob | UnsetType = UNSET
    file_data: FileData | UnsetType = UNSET
    function_call: FunctionCall | UnsetType = UNSET
    function_response: FunctionResponse | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class Content(msgspec.Struct, omit_defaults=True):
    parts: list[Part]
    role: str | UnsetType = UNSET


class Candidate(msgspec.Struct, rename="camel"):
    content: Content
    finish_reason: str | UnsetType
    index: int


class UsageMetadata(msgspec.Struct, rename="camel", omit_defaults=True):
    prompt_token_count: int
    candidates_token_count: int | UnsetType
    total_token_count: int
    cached_content_token_count: int | UnsetType = UNSET
    thoughts_token_count: int | UnsetType = UNSET


class Response(msgspec.Struct, rename="camel"):
    """A whole reply, or one chunk of a stream."""

    candidates: list[Candidate]
    usage_metadata: UsageMetadata | UnsetType
    model_version: str
    response_id: str
