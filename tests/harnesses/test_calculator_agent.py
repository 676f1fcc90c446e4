"""The calculator harness: its arithmetic, and the whole program against the embedded engine."""

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from polarproxy.rollout.calculator import TASKS, CalculatorTask, verify
from polarproxy.rollout.demo import model_path
from polarproxy.rollout.embedded import EmbeddedEngine
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Ended, Spec

FOLDER = Path(__file__).parents[2] / "harnesses" / "calculator"
needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("openai") is None,
    reason="needs xllamacpp and openai: pip install 'polarproxy[demo]'",
)


@pytest.fixture(scope="module")
def agent() -> Iterator[ModuleType]:
    """The program as a module; it lies outside every package, as a harness does."""
    spec = importlib.util.spec_from_file_location("calculator_agent", FOLDER / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while it is being executed
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("6*7", "42"),
        (" 47 + 38 ", "85"),
        ("(13+28)*7", "287"),
        ("14*12-35", "133"),
        ("7/2", "3.5"),
        ("1/3", "0.33"),
        ("-5+2", "-3"),
        ("1.50", "1.5"),
        ("100", "100"),
        ("0", "0"),
        ("-1/900", "0"),
    ],
)
def test_arithmetic(agent: ModuleType, expression: str, value: str) -> None:
    assert agent.evaluate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "6*", "a+1", "__import__('os')", "2**99", "1 if 1 else 2", "True+1", "'a'*3", "1//0", "1/0",
        "9" * 400, "1\0", "(" * 150 + "1" + ")" * 49, "1e308*1e308-1e308*1e308",
    ],
)  # fmt: skip
def test_what_is_not_arithmetic_is_refused(agent: ModuleType, expression: str) -> None:
    with pytest.raises(agent.Unsolvable, match="error: "):
        agent.evaluate(expression)


def test_a_bad_tool_call_is_told_to_the_model(agent: ModuleType) -> None:
    assert agent.use_tool(agent.ToolCall("1", "search", "{}")) == "error: there is no tool search"
    assert agent.use_tool(agent.ToolCall("1", "calculator", "{")) == "error: the arguments are not JSON"
    assert "missing" in agent.use_tool(agent.ToolCall("1", "calculator", "[]"))
    assert "missing" in agent.use_tool(agent.ToolCall("1", "calculator", '{"expression": 3}'))
    assert agent.use_tool(agent.ToolCall("1", "calculator", '{"expression": "1/0"}')) == "error: division by zero"


async def solve(base_url: str, task: CalculatorTask, *extra: str) -> Ended:
    command = [sys.executable, str(FOLDER / "agent.py"), task.instruction, *extra]
    environment = {"OPENAI_BASE_URL": f"{base_url}/v1", "OPENAI_API_KEY": "unused", "MODEL": "demo"}
    async with Runtimes().running("local", Spec()) as runtime:
        return await runtime.exec(command, env=environment, budget=Budget(120))


@needs_engine
@pytest.mark.parametrize("extra", [(), ("--no-stream",)], ids=["streamed", "whole"])
async def test_it_solves_tasks_with_its_tool(extra: tuple[str, ...]) -> None:
    with EmbeddedEngine(model_path()) as engine:
        results = await asyncio.gather(*(solve(engine.base_url, task, "--temperature", "0", *extra) for task in TASKS))
    assert [result.stderr for result in results] == [""] * len(TASKS)
    assert [result.exit_code for result in results] == [0] * len(TASKS)
    assert all("calculator {" in result.stdout for result in results)
    right = [verify(task, result.stdout)[0].value for task, result in zip(TASKS, results, strict=True)]
    assert sum(right) >= 3


@needs_engine
@pytest.mark.parametrize("extra", [(), ("--no-stream",)], ids=["streamed", "whole"])
async def test_a_reply_cut_by_the_token_limit_is_an_answer(extra: tuple[str, ...]) -> None:
    with EmbeddedEngine(model_path()) as engine:
        result = await solve(engine.base_url, TASKS[0], "--temperature", "0", "--max-tokens", "5", *extra)
    assert result.exit_code == 0
    # The engine keeps an unfinished call back in a stream, and gives it as text in a whole reply.
    assert result.stdout.strip() == ('<tool_call>\n{"name":' if extra else "")


@needs_engine
async def test_an_agent_that_never_answers_fails() -> None:
    with EmbeddedEngine(model_path()) as engine:
        result = await solve(engine.base_url, TASKS[0], "--temperature", "0", "--max-turns", "1")
    assert (result.exit_code, result.stderr) == (1, "no answer\n")


@needs_engine
async def test_an_unreachable_model_is_a_failure_the_runner_sees() -> None:
    result = await solve("http://127.0.0.1:9", TASKS[0])
    assert result.exit_code == 1
    assert "Connection" in result.stderr
