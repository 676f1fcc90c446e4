"""A chat request as the fake engine understands it; fields it does not know are ignored, as vLLM ignores them."""

from typing import Any

import msgspec


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class KvTransferParams(msgspec.Struct, frozen=True):
    prompt_token_ids: list[int] | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: list[str] | str | None = None
    stop_token_ids: list[int] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None
    include_reasoning: bool = True
    kv_transfer_params: KvTransferParams | None = None

    @property
    def choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return bool(self.include_usage and self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def forced_prompt(self) -> list[int] | None:
        return self.kv_transfer_params.prompt_token_ids if self.kv_transfer_params else None


class CompletionRequest(msgspec.Struct, frozen=True):
    prompt: str | list[int]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = 16
    temperature: float | None = None
    logprobs: int | None = None
    return_token_ids: bool | None = None

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)
