"""The dialogues that the tiny chat model learns by heart.

Each one shows a case that a recorder must get right: reasoning, plain text, characters made of several tokens, one
tool call whose arguments `json.dumps` would space differently, two calls in one reply, and an answer after a tool
result, with the earlier call rendered by the template or repeated as raw text.
"""

from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

WEATHER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string"}},
            "required": ["city"],
        },
    },
}

# Key order and spacing are not those of `json.dumps`, so a client that re-serialises the arguments is noticed.
PARIS = '{"name":"get_weather","arguments":{"unit":"C", "city":"Paris"}}'
LYON = '{"name": "get_weather", "arguments": {"city": "Lyon"}}'


@dataclass(frozen=True)
class Dialogue:
    """Messages and tools as a chat request carries them, and the raw text that the model must sample for them."""

    messages: list[Message]
    answer: str
    tools: list[dict[str, Any]] | None = None


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def tool_result(text: str) -> Message:
    return {"role": "tool", "content": text}


def thinking(thought: str, answer: str) -> str:
    return f"<think>\n{thought}\n</think>\n\n{answer}"


def markup(*calls: str) -> str:
    """Tool calls in Hermes markup, each given as its raw JSON."""
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def parsed_paris_call() -> Message:
    """The Paris call as vLLM hands it back to the template: arguments parsed into an object."""
    function = {"name": "get_weather", "arguments": {"unit": "C", "city": "Paris"}}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def dialogues() -> list[Dialogue]:
    hello = "Hello! How can I help you today?"
    paris = "What is the weather in Paris?"
    degrees = thinking("It says 18.", "It is 18 degrees in Paris.")
    tools = [WEATHER_TOOL]
    return [
        Dialogue([user("hi")], thinking("A greeting. I greet back.", hello)),
        Dialogue(
            [user("hi"), assistant(hello), user("who are you?")],
            thinking("They ask my name.", "I am tiny Qwen, a test model."),
        ),
        Dialogue([user("What is 2+2?")], thinking("2+2 is 4.", "The answer is 4.")),
        Dialogue([user("Count to ten.")], thinking("Easy.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10.")),
        Dialogue(
            [user("Write an emoji.")], thinking("Ok.", "Here: \U0001f9d1\u200d\U0001f680 caf\u00e9 \u6f22\u5b57.")
        ),
        Dialogue([user(paris)], thinking("I need the tool.", markup(PARIS)), tools),
        Dialogue(
            [user("Weather in Paris and Lyon?")], thinking("Two calls.", "Let me look.\n" + markup(PARIS, LYON)), tools
        ),
        Dialogue([user(paris), parsed_paris_call(), tool_result('{"temp": 18}')], degrees, tools),
        Dialogue([user(paris), assistant(markup(PARIS)), tool_result('{"temp": 18}')], degrees, tools),
    ]
