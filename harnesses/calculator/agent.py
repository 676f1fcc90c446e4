"""A small tool-calling agent on the OpenAI SDK: solves an arithmetic word task with a calculator.

    python agent.py "There are 3 boxes with 4 pens in each box. How many pens are there?"

Where the model is comes from OPENAI_BASE_URL, OPENAI_API_KEY and MODEL, as for any program built on the SDK. The last
line of standard output is the last line of the model's answer. Exit code 1: no answer within the allowed turns.
"""

import argparse
import ast
import json
import math
import operator
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

SYSTEM = "Solve the task with the calculator. End with the number alone."
CALCULATOR: "ChatCompletionToolParam" = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST_EXPRESSION = 200


class Unsolvable(Exception):
    """The expression is no arithmetic, or has no value; the message is what the model is told."""


@dataclass(frozen=True)
class Options:
    """How the model is asked."""

    model: str
    temperature: float
    max_turns: int
    max_tokens: int
    stream: bool


@dataclass(frozen=True)
class ToolCall:
    """One call of the model, `arguments` exactly as sampled."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """What the model said in one turn."""

    text: str
    calls: tuple[ToolCall, ...]


def evaluate(expression: str) -> str:
    """The value of numbers joined by + - * / and parentheses, with at most two decimals; raises Unsolvable."""
    if len(expression) > LONGEST_EXPRESSION:
        raise Unsolvable("error: the expression is too long")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
        if not math.isfinite(value):
            raise OverflowError
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unsolvable("error: not an arithmetic expression") from None
    except ZeroDivisionError:
        raise Unsolvable("error: division by zero") from None
    except OverflowError:
        raise Unsolvable("error: the value is too large") from None
    rounded = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if rounded == "-0" else rounded


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    raise Unsolvable("error: not an arithmetic expression")


def use_tool(call: ToolCall) -> str:
    """What the model is told the tool answered, errors included."""
    if call.name != CALCULATOR["function"]["name"]:
        return f"error: there is no tool {call.name}"
    try:
        arguments = json.loads(call.arguments)
    except json.JSONDecodeError:
        return "error: the arguments are not JSON"
    if not isinstance(arguments, dict) or not isinstance(arguments.get("expression"), str):
        return "error: the argument expression is missing"
    try:
        return evaluate(arguments["expression"])
    except Unsolvable as problem:
        return str(problem)


def ask(client: "OpenAI", messages: list["ChatCompletionMessageParam"], options: Options) -> Answer:
    """One turn of the model, streamed or not."""
    return _ask_streamed(client, messages, options) if options.stream else _ask_whole(client, messages, options)


def _ask_whole(client: "OpenAI", messages: list["ChatCompletionMessageParam"], options: Options) -> Answer:
    reply = client.chat.completions.create(
        model=options.model,
        messages=messages,
        tools=[CALCULATOR],
        temperature=options.temperature,
        max_tokens=options.max_tokens,
    )
    message = reply.choices[0].message
    functions = [call for call in message.tool_calls or [] if call.type == "function"]
    calls = [ToolCall(call.id, call.function.name, call.function.arguments) for call in functions]
    return Answer(message.content or "", tuple(calls))


def _ask_streamed(client: "OpenAI", messages: list["ChatCompletionMessageParam"], options: Options) -> Answer:
    text = ""
    calls: dict[int, ToolCall] = {}
    with client.chat.completions.create(
        model=options.model,
        messages=messages,
        tools=[CALCULATOR],
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        stream=True,
    ) as chunks:
        for delta in (choice.delta for chunk in chunks for choice in chunk.choices):
            text += delta.content or ""
            for piece in delta.tool_calls or []:
                known = calls.get(piece.index, ToolCall("", "", ""))
                name = (piece.function.name if piece.function else None) or ""
                arguments = (piece.function.arguments if piece.function else None) or ""
                calls[piece.index] = ToolCall(
                    known.id or piece.id or "", known.name + name, known.arguments + arguments
                )
    return Answer(text, tuple(calls.values()))


def _as_history(answer: Answer) -> "ChatCompletionMessageParam":
    if not answer.calls:
        return {"role": "assistant", "content": answer.text}
    return {
        "role": "assistant",
        "content": answer.text or None,
        "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ],
    }


def solve(client: "OpenAI", instruction: str, options: Options) -> str | None:
    """The model's last words; None when it still calls the tool in the last allowed turn."""
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": instruction},
    ]
    for _ in range(options.max_turns):
        answer = ask(client, messages, options)
        messages.append(_as_history(answer))
        if not answer.calls:
            return answer.text
        for call in answer.calls:
            result = use_tool(call)
            print(f"calculator {call.arguments} -> {result}", flush=True)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Solve an arithmetic word task with a calculator.")
    parser.add_argument("instruction")
    parser.add_argument("--model", default=os.environ.get("MODEL", "demo"))
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-turns", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--no-stream", action="store_true", help="ask for whole replies")
    given = parser.parse_args()
    options = Options(given.model, given.temperature, given.max_turns, given.max_tokens, not given.no_stream)

    # Imported late: it takes most of the start-up time, and the calculator above works without it.
    from openai import OpenAI

    answer = solve(OpenAI(), given.instruction, options)
    if answer is None:
        print("no answer", file=sys.stderr)
        return 1
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
