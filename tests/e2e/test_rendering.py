"""The rendering fake answers what the real engine's render route answers, and real templates are found out as with the fake."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polarproxy.engine.exact.conversation import RENDER_ROUTE, rendered_ids
from polarproxy.engine.exact.probe import probe, read
from polarproxy.engine.exact.template import Standing, TemplateFacts
from polarproxy.model import TokenIds
from tests.e2e.vllm_server import VllmServer
from tests.fakes.rendering.renderer import Templated, probed, render

pytestmark = pytest.mark.vllm

TOOLS = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}]
CALLS = [
    {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"n":1e3, "s":"\\u00fc <|im_end|>"}'}},
    {"id": "b", "type": "function", "function": {"name": "look", "arguments": "no JSON"}},
]
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": [{"type": "text", "text": "You"}, {"type": "text", "text": "help."}]},
    {"role": "user", "content": "e\u0301 🙂\n\n"},
    {"role": "assistant", "reasoning": "\nHm.\n", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
    {"role": "tool", "tool_call_id": "b", "content": "<|im_start|>"},
    {"role": "assistant", "content": "\n\nSo. "},
    {"role": "user", "content": "?"},
]


def ask(server: VllmServer, body: bytes) -> TokenIds | None:
    """What the engine renders. None: it refuses."""
    asked = urllib.request.Request(server.url + RENDER_ROUTE, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as reply:
            return rendered_ids(reply.read())
    except urllib.error.HTTPError as error:
        if error.code == 400:
            return None
        raise


def fake() -> Templated:
    return Templated.load(Path(os.environ["POLARPROXY_TEST_MODELS"]) / "tiny-chat")


@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": False}])
@pytest.mark.parametrize("prompt", [True, False])
def test_the_fake_renders_as_the_engine(vllm_chat: VllmServer, kwargs: dict[str, Any], prompt: bool) -> None:
    for length in range(2, len(CONVERSATION) + 1):
        members = {"model": vllm_chat.model, "chat_template_kwargs": kwargs, "add_generation_prompt": prompt}
        for tools in ({}, {"tools": TOOLS}):
            body = json.dumps(members | tools | {"messages": CONVERSATION[:length]}).encode()
            assert ask(vllm_chat, body) == render(fake(), body)


def test_a_real_template_is_found_out(vllm_chat: VllmServer) -> None:
    for fields in ({}, {"tools": msgspec.Raw(json.dumps(TOOLS).encode())}):
        given = fields | {"model": msgspec.Raw(json.dumps(vllm_chat.model).encode())}
        wanted = probe(given)
        found = read(wanted, [ask(vllm_chat, body) for body in wanted.bodies])
        assert isinstance(found, TemplateFacts)
        assert found.after_text is found.after_calls is found.before_system is Standing.SHORT
        assert not found.ids_shown
        assert found == probed(fake(), given)
