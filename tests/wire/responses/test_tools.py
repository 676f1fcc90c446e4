"""Declarations of tools and the choice among them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.neutral.request import Request, Tool, ToolChoice
from polarproxy.wire.responses import freeform
from polarproxy.wire.responses.calls import SHELL_PARAMETERS
from polarproxy.wire.responses.request import decode_request, encode_request
from tests.wire.responses.bodies import AGENTS, PARAMETERS, PATCH, RUN, SEARCH, SHELL, decoded, losses

SCHEMA = json.dumps(PARAMETERS).encode()


def tools(*declared: dict[str, Any]) -> tuple[Tool, ...]:
    return decoded(tools=list(declared)).request.tools


def test_a_function() -> None:
    assert tools(RUN) == (Tool("run", "Runs it.", SCHEMA, strict=False),)
    assert tools({"type": "function", "name": "bare"}) == (Tool("bare"),)


def test_a_namespace_is_flattened() -> None:
    assert tools(AGENTS, RUN) == (
        Tool("agents__spawn", None, SCHEMA, strict=False, namespace="agents", own_name="spawn"),
        Tool("run", "Runs it.", SCHEMA, strict=False),
    )


def test_a_freeform_tool_becomes_a_function_of_one_text() -> None:
    plain = {**PATCH, "format": {"type": "text"}}
    assert tools(plain) == (Tool("patch", "Edits files.", freeform.PARAMETERS, kind="custom"),)
    described = tools(PATCH)[0].description
    assert described is not None
    assert described.startswith("Edits files.\n\n")
    assert described.endswith("(lark):\nstart: /.+/")
    inside = tools({**AGENTS, "tools": [PATCH]})[0]
    assert (inside.name, inside.kind, inside.namespace, inside.own_name) == (
        "agents__patch",
        "custom",
        "agents",
        "patch",
    )


def test_the_local_shell_becomes_a_function() -> None:
    shell = tools(SHELL)[0]
    assert (shell.name, shell.kind, shell.parameters) == ("local_shell", "local_shell", SHELL_PARAMETERS)


@pytest.mark.parametrize("kind", ["web_search", "file_search", "mcp", "code_interpreter", "tool_search", "brand_new"])
def test_a_tool_that_the_provider_runs_is_left_out(kind: str) -> None:
    read = decoded(tools=[{"type": kind, "vector_store_ids": []}, RUN])
    assert [tool.name for tool in read.request.tools] == ["run"]
    assert [loss.where for loss in read.losses] == ["tools[0]"]
    assert kind in read.losses[0].why


def test_members_without_a_meaning_are_reported() -> None:
    more = {"defer_loading": True, "output_schema": {}, "async": False, "allowed_callers": None}
    assert losses(tools=[{**RUN, **more}]) == ["tools[0].defer_loading", "tools[0].output_schema"]


def test_names_fit_the_engine_and_stay_apart() -> None:
    read = tools(
        {"type": "function", "name": "a.b"},
        {"type": "function", "name": "a_b"},
        {"type": "custom", "name": "a_b"},
        {"type": "namespace", "name": "a", "description": "", "tools": [{"type": "function", "name": "b"}]},
        {"type": "function", "name": "a__b"},
    )
    assert [(tool.name, tool.own_name) for tool in read] == [
        ("a_b", "a.b"),
        ("a_b_2", "a_b"),
        ("a_b_3", "a_b"),
        ("a__b", "b"),
        ("a__b_2", "a__b"),
    ]


def test_of_a_tool_that_is_declared_again_the_first_counts() -> None:
    again = {**RUN, "description": "Runs it now."}
    later = {"type": "additional_tools", "tools": [RUN, again]}
    read = decoded(later, tools=[RUN, {"type": "function", "name": "x"}, again])
    assert [(tool.name, tool.description) for tool in read.request.tools] == [("run", "Runs it."), ("x", None)]
    assert [loss.where for loss in read.losses] == ["tools[2]", "input[0].tools[1]"]


def test_many_tools_whose_names_become_the_same_are_all_kept() -> None:
    read = tools(*({"type": "function", "name": chr(0x4E00 + place)} for place in range(20_000)))
    assert [tool.name for tool in read[:3]] == ["_", "__2", "__3"]
    assert len({tool.name for tool in read}) == 20_000


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "run"}, ToolChoice("named", "run")),
        ({"type": "function", "name": "spawn"}, ToolChoice("named", "agents__spawn")),
        ({"type": "function", "name": "spawn", "namespace": "agents"}, ToolChoice("named", "agents__spawn")),
        ({"type": "custom", "name": "patch"}, ToolChoice("named", "patch")),
        ({"type": "local_shell"}, ToolChoice("named", "local_shell")),
        (None, None),
    ],
)
def test_a_choice(said: object, choice: ToolChoice | None) -> None:
    read = decoded(tools=[RUN, {**AGENTS, "description": ""}, PATCH, SHELL], tool_choice=said)
    assert (read.request.tool_choice, read.losses) == (choice, ())


def test_allowed_tools_are_the_only_ones_told() -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "run"}, SEARCH]}
    read = decoded(
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x"},
        tools=[PATCH, RUN],
        tool_choice=allowed,
    )
    assert [tool.name for tool in read.request.tools] == ["run"]
    assert read.request.tool_choice == ToolChoice("required")
    assert [loss.where for loss in read.losses] == ["tool_choice.tools"]


def test_a_choice_of_a_tool_that_is_left_out_is_reported() -> None:
    read = decoded(tools=[RUN], tool_choice={"type": "file_search"})
    assert read.request.tool_choice is None
    assert [loss.where for loss in read.losses] == ["tool_choice"]


@pytest.mark.parametrize("said", ["sometimes", 5, {"name": "run"}])
def test_what_is_no_choice_is_refused(said: object) -> None:
    with pytest.raises(BadRequest, match=r"^tool_choice: "):
        decoded(tools=[RUN], tool_choice=said)


@pytest.mark.parametrize("declared", ["x", [5], [{"type": "function", "name": 5}], [{"type": "namespace", "tools": 1}]])
def test_what_is_no_declaration_is_refused(declared: object) -> None:
    with pytest.raises(BadRequest, match="tools"):
        decoded(tools=declared)


def test_tools_of_every_kind_are_written_as_they_were_read() -> None:
    read = tools(RUN, AGENTS, {**PATCH, "format": None}, SHELL, {**AGENTS, "tools": [PATCH]})
    for choice in (ToolChoice("named", "patch"), ToolChoice("named", "local_shell"), ToolChoice("named", "run")):
        request = Request("m", (), tools=read, tool_choice=choice)
        written = encode_request(request)
        assert written.losses == ()
        assert decode_request(written.body).request == request
    kinds = [tool["type"] for tool in json.loads(written.body)["tools"]]
    assert kinds == ["function", "namespace", "custom", "local_shell", "namespace"]
