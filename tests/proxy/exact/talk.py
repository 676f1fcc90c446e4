"""A conversation with a fake engine whose replies a client cannot send back as they were sampled."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from polarproxy.engine.probe import PROBE_PROMPT
from polarproxy.model import CapturedCall, Prompting, PromptOutcome, TokenIds
from polarproxy.trajectory.branches import Trajectory, build_trajectory
from tests.fakes import Received, Reply, Tool, Turn, compose
from tests.fakes.toy_tokenizer import encode
from tests.proxy.rig import Rig, rig, until

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ARGUMENTS = '{"unit":"C", "city":"Paris"}'
"""Spelled as no writer of JSON spells it, so that a whole reply has other text than was sampled."""
Message = dict[str, Any]


def thinks(messages: Sequence[Message]) -> Reply:
    """A reply that thinks, which clients drop; every second one calls a tool."""
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn % 2 == 0:
        return compose(None, reasoning=f"Thought {turn}.", tools=[Tool("weather", ARGUMENTS)])
    return compose(f"Answer {turn}.", reasoning=f"Thought {turn}.")


Replies = Callable[[Sequence[Message]], Reply | list[Reply]]
"""What the engine says after these messages, to each of several choices."""


def scripted(reply: Replies) -> Callable[[Received], Turn]:
    """By the messages of a request, so that the question whether the engine takes prompts uses nothing up."""

    def turn(received: Received) -> Turn:
        messages = received.json["messages"]
        said = compose("1") if messages[-1].get("content") == PROBE_PROMPT else reply(messages)
        return Turn(tuple(said) if isinstance(said, list) else (said,))

    return turn


@asynccontextmanager
async def exact_rig(folder: Path, reply: Replies = thinks, **settings: Any) -> AsyncIterator[Rig]:
    async with rig(folder, scripted(reply), **({"prompts": "exact"} | settings)) as made:
        yield made


def back(message: Message) -> Message:
    """A message of the assistant as a harness sends it back: no reasoning, arguments written anew, keys in another order."""
    calls = [
        {
            "function": {"arguments": json.dumps(json.loads(call["function"]["arguments"])), "name": "weather"},
            "id": call["id"],
            "type": "function",
        }
        for call in message.get("tool_calls") or ()
    ]
    return {"content": message["content"], "role": "assistant", **({"tool_calls": calls} if calls else {})}


@dataclass
class Talk:
    """One conversation of a session."""

    rig: Rig
    session: str = "s1"
    messages: list[Message] = field(default_factory=lambda: [{"role": "user", "content": "Weather in Paris?"}])
    extra: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    async def turn(self, **extra: Any) -> Message:
        """One request; what the client is told goes into the conversation, and what comes next too."""
        body = {"model": "fake", "messages": self.messages, "tools": [TOOL], **self.extra, **extra}
        answer = await self.rig.ask(body, f"/s/{self.session}", self.headers)
        assert answer.status == 200, answer.body
        said: Message = answer.json["choices"][0]["message"]
        self.messages.append(back(said))
        calls = said.get("tool_calls") or ()
        self.messages += [{"role": "tool", "tool_call_id": call["id"], "content": "18 degrees"} for call in calls]
        if not calls:
            self.messages.append({"role": "user", "content": f"And now, after {len(self.messages)}?"})
        return said

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await self.turn()

    def calls(self) -> list[CapturedCall]:
        return self.rig.calls(self.session)

    def promptings(self) -> list[Prompting]:
        """What became of each prompt."""
        found = [captured.call.prompting for captured in self.calls()]
        assert None not in found
        return [prompting for prompting in found if prompting is not None]

    def outcomes(self) -> list[str]:
        """Outcome of each call, with its reason where there is one."""
        return [
            prompting.outcome if prompting.reason is None else f"{prompting.outcome}: {prompting.reason}"
            for prompting in self.promptings()
        ]

    async def trajectory(self) -> Trajectory:
        """Once every call is known to be delivered."""
        await until(lambda: all(captured.delivered for captured in self.calls()))
        return build_trajectory(self.session, self.calls())

    def assert_exact(self, start: int = 0) -> None:
        """Each prompt from the second on goes on from the call before, with what the template puts there and no more."""
        calls = [captured.call for captured in self.calls()][start:]
        for before, call in pairwise(calls):
            prompt, kept = call.prompt_token_ids, context(before)
            assert prompt is not None
            assert call.prompting is not None
            assert call.prompting.outcome is PromptOutcome.EXACT, call.prompting
            assert call.prompting.continued is not None
            assert (call.prompting.continued.call_id, call.prompting.continued.length) == (before.call_id, len(kept))
            assert prompt.startswith(kept)
            assert list(prompt)[len(kept) :] in (tail("tool", "18 degrees"), tail("user", said_last(call.request_body)))


def context(call: Any, choice: int = 0) -> TokenIds:
    """P and C of a call."""
    assert call.prompt_token_ids is not None
    sampled: TokenIds = call.completions[choice].token_ids
    whole: TokenIds = call.prompt_token_ids + sampled
    return whole


def said_last(body: bytes) -> str:
    return str(json.loads(body)["messages"][-1]["content"])


def tail(role: str, text: str) -> list[int]:
    """What the toy template puts after a turn that ended, before the next."""
    pieces = ("\n", f"<|im_start|>{role}\n", text, "<|im_end|>", "\n", "<|im_start|>assistant\n")
    return [token for piece in pieces for token in encode(piece)]


def forced(rig: Rig) -> list[list[int]]:
    """The prompts that the engine was given, but for the one by which it was tried out."""
    bodies = [request.json for request in rig.received]
    return [
        body["kv_transfer_params"]["prompt_token_ids"]
        for body in bodies
        if "prompt_token_ids" in body.get("kv_transfer_params", {}) and body["messages"][-1]["content"] != PROBE_PROMPT
    ]


def renders(rig: Rig) -> list[Any]:
    """The bodies that the engine was asked to render."""
    return [request.json for request in rig.engine.requests if request.path == "/v1/chat/completions/render"]
