"""vLLM's error replies, word for word."""

from dataclasses import dataclass
from typing import Any

from tests.fakes.request import ChatRequest, TextRequest

ENGINE_ERROR = "EngineCore encountered an issue. See stack trace (above) for the root cause."
MAX_LOGPROBS = 20
STATUS_TYPES = {429: "RateLimitError", 500: "InternalServerError", 503: "ServiceUnavailableError"}


@dataclass(eq=False)
class EngineError(Exception):
    """An error that is answered with `status` and the usual `error` object; when it is `late`, as an event of a stream
    that has begun by then."""

    message: str
    status: int = 400
    type: str = "BadRequestError"
    param: str | None = None
    late: bool = False

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.status}}


def engine_died() -> EngineError:
    return EngineError(ENGINE_ERROR, 500, STATUS_TYPES[500])


def of_status(status: int) -> EngineError:
    return EngineError(f"scripted fault {status}", status, STATUS_TYPES.get(status, "BadRequestError"))


def invalid(field: str, kind: str, message: str, given: str) -> EngineError:
    """A request that does not have the right form."""
    where = f"body.{field}"
    detail = f"{{'type': '{kind}', 'loc': '{where}', 'msg': '{message}', 'input': {given}}}"
    return EngineError(f"1 validation error:\n  {detail}", 400, "Bad Request", where)


def check_model(model: str | None, served: str) -> None:
    if model is not None and model != served:
        message = f"The model `{model}` does not exist. Valid aliases: {served}."
        raise EngineError(message, 404, "NotFoundError", "model")


def check_chat(request: ChatRequest, served: str, max_model_len: int) -> None:
    _check_options(request)
    if request.top_logprobs and not request.logprobs:
        message = "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)"
        raise EngineError(message, param="top_logprobs")
    check_model(request.model, served)
    if not request.messages:
        raise EngineError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    _check_choices(request.choices)
    if request.token_limit is not None:
        _check_limit(request.token_limit, max_model_len)


def check_text(request: TextRequest, served: str, max_model_len: int) -> None:
    if request.prompt is None or request.prompt == "":
        message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
        raise EngineError(message, param="prompt")
    _check_options(request)
    if request.logprobs is not None and request.logprobs < -1:
        message = f"`logprobs` must be a positive value or -1. (parameter=logprobs, value={request.logprobs})"
        raise EngineError(message, param="logprobs")
    check_model(request.model, served)
    _check_choices(request.n)
    if not request.prompts:
        raise EngineError("You must pass at least one prompt")
    if not all(request.prompts):
        raise EngineError("The decoder prompt cannot be empty", late=True)
    if request.logprobs is not None and request.logprobs > MAX_LOGPROBS:
        message = f"Requested sample logprobs of {request.logprobs}, which is greater than max allowed: {MAX_LOGPROBS}"
        raise EngineError(f"{message} (parameter=logprobs, value={request.logprobs})", param="logprobs", late=True)
    if not request.only_echo:
        _check_limit(request.token_limit, max_model_len)


def _check_options(request: ChatRequest | TextRequest) -> None:
    if request.stream_options and not request.stream:
        message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
        raise EngineError(message, param="stream_options")


def _check_choices(n: int) -> None:
    if n < 1:
        raise EngineError(f"n must be at least 1, got {n}.")


def _check_limit(limit: int, max_model_len: int) -> None:
    if limit < 1:
        tail = f"(parameter=max_tokens, value={limit})"
        raise EngineError(f"max_tokens must be at least 1, got {limit}. {tail}", param="max_tokens")
    if limit > max_model_len:
        message = (
            f"max_tokens={limit} cannot be greater than max_model_len={max_model_len}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={limit})"
        )
        raise EngineError(message, param="max_tokens")


def check_length(prompt_tokens: int, max_model_len: int) -> None:
    """The tokenizer stops one past the limit, so the message never knows by how much a prompt is too long."""
    if prompt_tokens > max_model_len:
        count = max_model_len + 1
        message = (
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least "
            f"{count} input tokens, which exceeds this limit even without any output tokens. Please reduce the length "
            f"of the input prompt. (parameter=input_tokens, value={count})"
        )
        raise EngineError(message, param="input_tokens")
