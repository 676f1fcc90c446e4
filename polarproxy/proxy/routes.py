"""Which dialect a route belongs to, and what it asks for. The client's route chooses the dialect; there is no flag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import unquote

from polarproxy.model import Dialect

if TYPE_CHECKING:
    from collections.abc import Container


class Action(StrEnum):
    """What a route asks for."""

    GENERATE = "generate"
    COUNT = "count"
    """How many tokens a prompt has; never a generation."""
    MODELS = "models"
    MODEL = "model"
    RESPONSE = "response"
    """A stored response of the Responses API."""
    INPUT_ITEMS = "input_items"
    CANCEL = "cancel"
    SOCKET = "socket"
    """The WebSocket transport of the Responses API."""
    HELLO = "hello"
    """A probe whether anybody is there."""


@dataclass(frozen=True, slots=True)
class Route:
    """A route that was recognised."""

    dialect: Dialect
    action: Action
    model: str | None = None
    """Named by the path (Gemini, Bedrock). None: the body names it."""
    stream: bool | None = None
    """Chosen by the path (Gemini, Bedrock). None: the body chooses."""
    response_id: str = ""


NATIVE = frozenset((Dialect.CHAT, Dialect.COMPLETIONS))
"""The dialects that engines themselves speak; every other one is translated."""

_FIXED: dict[tuple[str, str], Route] = {
    ("POST", "/v1/chat/completions"): Route(Dialect.CHAT, Action.GENERATE),
    ("POST", "/v1/completions"): Route(Dialect.COMPLETIONS, Action.GENERATE),
    ("POST", "/v1/responses"): Route(Dialect.RESPONSES, Action.GENERATE),
    ("GET", "/v1/responses"): Route(Dialect.RESPONSES, Action.SOCKET),
    ("POST", "/v1/responses/input_tokens"): Route(Dialect.RESPONSES, Action.COUNT),
    ("POST", "/v1/messages"): Route(Dialect.MESSAGES, Action.GENERATE),
    ("POST", "/v1/messages/count_tokens"): Route(Dialect.MESSAGES, Action.COUNT),
    ("HEAD", "/"): Route(Dialect.MESSAGES, Action.HELLO),
    ("HEAD", "/api/hello"): Route(Dialect.MESSAGES, Action.HELLO),
    ("GET", "/v1beta/models"): Route(Dialect.GEMINI, Action.MODELS),
}
_RESPONSE = re.compile(r"/v1/responses/([A-Za-z0-9_-]{1,64})(/cancel|/input_items)?")
_GEMINI = re.compile(r"/v1(?:beta1?|alpha)?/(?:[^:]*/)?models/(.+):([A-Za-z]+)")
_GEMINI_VERBS = {
    "generateContent": (Action.GENERATE, False),
    "streamGenerateContent": (Action.GENERATE, True),
    "countTokens": (Action.COUNT, None),
}
_GEMINI_MODEL = re.compile(r"/v1beta/models/(.+)")
_MODELS = re.compile(r"/v1/models(?:/(.+))?")
_LISTED_AS = {
    "anthropic-version": Dialect.MESSAGES,
    "x-goog-api-key": Dialect.GEMINI,
    "x-goog-api-client": Dialect.GEMINI,
}
"""Headers by which the clients of other dialects are told that ask for models where those of OpenAI's do."""
_BEDROCK = re.compile(r"/model/([^/]+)/(converse|converse-stream)")
_RESPONSE_ACTIONS = {
    ("GET", None): Action.RESPONSE,
    ("DELETE", None): Action.RESPONSE,
    ("GET", "/input_items"): Action.INPUT_ITEMS,
    ("POST", "/cancel"): Action.CANCEL,
}


def recognise(method: str, raw_path: str, headers: Container[str] = ()) -> Route | None:
    """The route of a path without our prefix, percent-encoded as it was sent; None when no dialect has it.

    `headers`: their names, which may have to tell whose the path is.
    """
    path = unquote(raw_path).rstrip("/") or "/"
    fixed = _FIXED.get((method, path))
    if fixed is not None:
        return fixed
    if method == "POST" and (found := _BEDROCK.fullmatch(raw_path.rstrip("/"))):
        return Route(Dialect.BEDROCK, Action.GENERATE, unquote(found[1]), found[2] == "converse-stream")
    if method == "POST" and (found := _GEMINI.fullmatch(path)) and found[2] in _GEMINI_VERBS:
        action, stream = _GEMINI_VERBS[found[2]]
        return Route(Dialect.GEMINI, action, found[1], stream)
    if method == "GET" and (found := _GEMINI_MODEL.fullmatch(path)):
        return Route(Dialect.GEMINI, Action.MODEL, found[1])
    if (found := _RESPONSE.fullmatch(path)) and (method, found[2]) in _RESPONSE_ACTIONS:
        return Route(Dialect.RESPONSES, _RESPONSE_ACTIONS[method, found[2]], response_id=found[1])
    if method == "GET" and (found := _MODELS.fullmatch(path)) and (dialect := _listed_as(headers)) is not None:
        return Route(dialect, Action.MODEL if found[1] else Action.MODELS, found[1])
    return None


def _listed_as(headers: Container[str]) -> Dialect | None:
    return next((dialect for name, dialect in _LISTED_AS.items() if name in headers), None)


def dialect_of(raw_path: str, headers: Container[str] = ()) -> Dialect:
    """The dialect whose errors a client of this path understands; chat's where neither it nor a header tells."""
    path = unquote(raw_path)
    if path.startswith("/v1/messages"):
        return Dialect.MESSAGES
    if path.startswith("/v1/responses"):
        return Dialect.RESPONSES
    if path.startswith("/v1beta") or _GEMINI.fullmatch(path):
        return Dialect.GEMINI
    if _MODELS.fullmatch(path.rstrip("/")):
        return _listed_as(headers) or Dialect.CHAT
    return Dialect.BEDROCK if path.startswith("/model/") else Dialect.CHAT
