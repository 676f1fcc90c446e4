"""Requests as the fake engine understands them; fields it does not know are ignored, as vLLM ignores them."""

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


class TextRequest(msgspec.Struct, frozen=True):
    """A request to `/v1/completions`."""

    prompt: str | list[Any] | None = None
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int = 1
    max_tokens: int | None = 16
    temperature: float | None = None
    stop: list[str] | str | None = None
    stop_token_ids: list[int] | None = None
    echo: bool | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        if self.prompt is None or isinstance(self.prompt, str):
            return [self.prompt or ""]
        ids = bool(self.prompt) and isinstance(self.prompt[0], int)
        return [self.prompt] if ids else self.prompt

    @property
    def token_limit(self) -> int:
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def only_echo(self) -> bool:
        """The prompt alone is answered, though a token is sampled."""
        return bool(self.echo) and self.token_limit == 0

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def shown_prompt_logprobs(self) -> int | None:
        """How many values of each prompt token are shown beside its own. None: no values."""
        return self.logprobs if self.prompt_logprobs is None and self.echo else self.prompt_logprobs

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return bool(self.include_usage and self.stream_options and self.stream_options.continuous_usage_stats)
