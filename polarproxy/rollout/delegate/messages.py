"""The messages between a trainer and its delegate, version v0, as JSON; docs/guides/delegate.md shows them.

The form is ours. A result has the names of a reward handler: `id`, `aggregate_reward_score`, `metrics_list`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from polarproxy.errors import UNREADABLE, BadRequest, InvalidValue
from polarproxy.rollout.service.request import TaskRequest  # noqa: TC001  (msgspec reads it)

Version = Literal["v0"]
VERSION: Version = "v0"
LONGEST_ID = 200
_LONGEST_ERROR = 2000
_OURS = ("messages", "model", "tools", "tool_choice", "stream", "stream_options", "n", "logprobs", "return_token_ids")
"""What sampling parameters cannot say, because the message says it elsewhere or the answer depends on it."""


class RolloutRequest(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="rollout_request"
):
    """Trainer to delegate: run this task."""

    version: Version
    id: str
    """Chosen by the trainer. Given again with the same task, it is the same request."""
    task: TaskRequest


class GenerateRequest(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="generate_request"
):
    """Trainer to delegate: one reply of the engine, recorded as a call of the session."""

    version: Version
    id: str
    session_id: str
    messages: list[dict[str, Any]]
    """As in a chat completion request."""
    sampling: dict[str, Any] = {}
    """`temperature`, `max_tokens`, …"""
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    """None: the engine's default."""
    model: str | None = None
    """None: what the engine serves."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A component of a reward."""

    name: str
    value: float
    type: str
    """`Reward`, `Penalty` or `Metric`."""


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens of a rollout lie: what batches and exports know them by, and how many there are."""

    session_id: str
    task_id: str
    group_id: str
    turns: int
    completion_tokens: int


class RolloutResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout of a request."""

    id: str
    """The request's, a slash, and the number of the rollout."""
    state: str
    """`done`, or `skipped`: it was not wanted any more."""
    status: str | None
    """Of its session. None: it was skipped."""
    aggregate_reward_score: float | None
    """None: it has no reward, which is not 0."""
    metrics_list: list[Metric]
    usable: bool
    trajectory: Trajectory | None
    """None: it has no session."""
    error: str | None = None


class RolloutResponse(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="rollout_response"):
    """Delegate to trainer: what became of a task."""

    version: Version = VERSION
    id: str
    task_id: str
    """Of the task service: `GET /api/tasks/ID`."""
    state: str
    """`done` or `cancelled`."""
    rollouts: list[RolloutResult]
    left_out: int = 0
    """Results that the queue has no room for; `GET /api/tasks/ID/sessions` has them."""


class GenerateResponse(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="generate_response"):
    """Delegate to trainer: what the engine replied."""

    version: Version = VERSION
    id: str
    session_id: str
    message: dict[str, Any]
    """As in a chat completion."""
    finish_reason: str | None
    prompt_token_ids: list[int] | None
    """None, as for the next two: the engine gives none."""
    token_ids: list[int] | None
    logprobs: list[float | None] | None
    """One for each of `token_ids`."""


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """Delegate to trainer: nothing came of a request, and nothing will."""

    version: Version = VERSION
    id: str | None
    """None: the request had none that could be read."""
    error: str


Request = RolloutRequest | GenerateRequest
Response = RolloutResponse | GenerateResponse | ErrorResponse


class _Head(msgspec.Struct):
    version: Any = None
    id: Any = None


def encode(message: Request | Response) -> str:
    """JSON without the two characters that some queues do not carry."""
    return msgspec.json.encode(message).decode().replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def read_request(text: str) -> Request:
    """Raises `BadRequest` with what is wrong and where."""
    head = _head(text)
    if head.version != VERSION:
        raise BadRequest(f"this delegate speaks version {VERSION!r}, and the message has {head.version!r}")
    try:
        request = msgspec.json.decode(text.encode("utf-8", "replace"), type=Request)
    except (*UNREADABLE, InvalidValue) as error:
        raise BadRequest(f"this is no request of version {VERSION}: {error}") from error
    if not 0 < len(request.id) <= LONGEST_ID:
        raise BadRequest(f"id must have 1 to {LONGEST_ID} characters, not {len(request.id)}")
    if isinstance(request, GenerateRequest):
        for name in _OURS:
            if name in request.sampling:
                raise BadRequest(f"sampling cannot say {name!r}")
    return request


def refusal(text: str, why: str) -> ErrorResponse:
    """The answer to a message that cannot be worked off, whatever it is."""
    try:
        given = _head(text).id
    except BadRequest:
        given = None
    known = given if isinstance(given, str) and len(given) <= LONGEST_ID else None
    return ErrorResponse(id=known, error=why.encode("utf-8", "replace").decode()[:_LONGEST_ERROR])


def _head(text: str) -> _Head:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"), type=_Head)
    except UNREADABLE as error:
        raise BadRequest(f"this is no JSON object: {error}") from error
