"""The client's route chooses the dialect."""

import pytest

from polarproxy.model import Dialect
from polarproxy.proxy.routes import Action, Route, dialect_of, recognise

GENERATE = Action.GENERATE
ROUTES = {
    ("POST", "/v1/chat/completions"): Route(Dialect.CHAT, GENERATE),
    ("POST", "/v1/chat/completions/"): Route(Dialect.CHAT, GENERATE),
    ("POST", "/v1/completions"): Route(Dialect.COMPLETIONS, GENERATE),
    ("POST", "/v1/responses"): Route(Dialect.RESPONSES, GENERATE),
    ("GET", "/v1/responses"): Route(Dialect.RESPONSES, Action.SOCKET),
    ("POST", "/v1/responses/input_tokens"): Route(Dialect.RESPONSES, Action.COUNT),
    ("GET", "/v1/responses/resp_1"): Route(Dialect.RESPONSES, Action.RESPONSE, response_id="resp_1"),
    ("DELETE", "/v1/responses/resp_1"): Route(Dialect.RESPONSES, Action.RESPONSE, response_id="resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"): Route(Dialect.RESPONSES, Action.CANCEL, response_id="resp_1"),
    ("GET", "/v1/responses/resp_1/input_items"): Route(Dialect.RESPONSES, Action.INPUT_ITEMS, response_id="resp_1"),
    ("POST", "/v1/messages"): Route(Dialect.MESSAGES, GENERATE),
    ("POST", "/v1/messages/count_tokens"): Route(Dialect.MESSAGES, Action.COUNT),
    ("HEAD", "/"): Route(Dialect.MESSAGES, Action.HELLO),
    ("HEAD", "/api/hello"): Route(Dialect.MESSAGES, Action.HELLO),
    ("POST", "/v1beta/models/m:generateContent"): Route(Dialect.GEMINI, GENERATE, "m", False),
    ("POST", "/v1beta/models/m%3AgenerateContent"): Route(Dialect.GEMINI, GENERATE, "m", False),
    ("POST", "/v1/models/m:streamGenerateContent"): Route(Dialect.GEMINI, GENERATE, "m", True),
    ("POST", "/v1beta/models/org/m:countTokens"): Route(Dialect.GEMINI, Action.COUNT, "org/m"),
    ("POST", "/v1beta1/projects/p/locations/l/publishers/google/models/m:generateContent"): Route(
        Dialect.GEMINI, GENERATE, "m", False
    ),
    ("GET", "/v1beta/models"): Route(Dialect.GEMINI, Action.MODELS),
    ("GET", "/v1beta/models/m"): Route(Dialect.GEMINI, Action.MODEL, "m"),
    ("POST", "/model/us.nova%3A0/converse"): Route(Dialect.BEDROCK, GENERATE, "us.nova:0", False),
    ("POST", "/model/arn%3Aaws%3Abedrock%2Fx/converse-stream"): Route(
        Dialect.BEDROCK, GENERATE, "arn:aws:bedrock/x", True
    ),
}


@pytest.mark.parametrize(("asked", "route"), ROUTES.items())
def test_a_route_of_a_dialect(asked: tuple[str, str], route: Route) -> None:
    assert recognise(*asked) == route


LISTS = {
    ("/v1/models", "anthropic-version"): Route(Dialect.MESSAGES, Action.MODELS),
    ("/v1/models/m", "anthropic-version"): Route(Dialect.MESSAGES, Action.MODEL, "m"),
    ("/v1/models/", "x-goog-api-key"): Route(Dialect.GEMINI, Action.MODELS),
    ("/v1/models/org%2Fm", "x-goog-api-client"): Route(Dialect.GEMINI, Action.MODEL, "org/m"),
    ("/v1/models/m", "authorization"): None,
}


@pytest.mark.parametrize(("asked", "route"), LISTS.items())
def test_models_are_listed_as_the_header_says(asked: tuple[str, str], route: Route | None) -> None:
    path, header = asked
    assert recognise("GET", path, {header}) == route
    assert recognise("DELETE", path, {header}) is None
    assert dialect_of(path, {header}) is (Dialect.CHAT if route is None else route.dialect)


@pytest.mark.parametrize(
    "asked",
    [
        ("GET", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("POST", "/v1/embeddings"),
        ("PUT", "/v1/responses/resp_1"),
        ("POST", "/v1beta/models/m:embedContent"),
        ("POST", "/model/m/invoke"),
        ("GET", "/"),
    ],
)
def test_everything_else_is_no_route_of_a_dialect(asked: tuple[str, str]) -> None:
    assert recognise(*asked) is None


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages/batches", Dialect.MESSAGES),
        ("/v1/responses/x/y", Dialect.RESPONSES),
        ("/v1beta/cachedContents", Dialect.GEMINI),
        ("/model/m/invoke", Dialect.BEDROCK),
        ("/v1/embeddings", Dialect.CHAT),
        ("/", Dialect.CHAT),
    ],
)
def test_errors_are_those_of_the_paths_dialect(path: str, dialect: Dialect) -> None:
    assert dialect_of(path) is dialect
