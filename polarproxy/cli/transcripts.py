"""What was said in a session, from the requests that repeat it and, where none does, from the spelling of the tokens."""

from __future__ import annotations

from collections import ChainMap
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from polarproxy.cli.conversation import read_request
from polarproxy.cli.recipes import known_recipes
from polarproxy.cli.spelling import spell
from polarproxy.credit.rollouts import trained_turns, turn_key
from polarproxy.credit.transcript import SaidTurn, ToolCall, Transcript
from polarproxy.model import CallKind, FinishReason
from polarproxy.trajectory.branches import build_trajectory
from polarproxy.trajectory.kinds import judge
from polarproxy.wire.neutral.request import Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.written import read_written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polarproxy.model import Session
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.branches import Trajectory, Turn
    from polarproxy.trajectory.recipes import Recipe
    from polarproxy.wire.neutral.request import Message, Part, Request


def transcribe(trajectory: Trajectory, texts: Mapping[int, bytes]) -> Transcript:
    """The transcript of a session; `texts` spells the tokens of its models."""
    requests: dict[str, Request | None] = {}
    replies: dict[tuple[str, int], list[Message]] = {}
    for branch in trajectory.branches:
        for before, after in pairwise(branch.turns):
            first, second = (_request(turn, requests) for turn in (before, after))
            if first is not None and second is not None:
                replies.setdefault(turn_key(before), list(second.messages[len(first.messages) :]))
    trained = trained_turns(trajectory)
    first_request = next((found for turn in trained if (found := _request(turn, requests)) is not None), None)
    return Transcript(
        instruction="" if first_request is None else _instruction(first_request.messages),
        turns=tuple(_said(turn, replies.get(turn_key(turn), []), texts) for turn in trained),
    )


class Transcriber:
    """Reads what was said in sessions of a store; safe to use from several threads."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._texts: dict[str, dict[int, bytes]] = {}

    @cached_property
    def _recipes(self) -> tuple[Recipe, ...]:
        """Read when a session is: who has a trajectory already needs none."""
        return known_recipes()

    def read(self, session: Session) -> Transcript:
        """The transcript of a session."""
        judged = judge(self._repository.calls(session.session_id), self._recipes, session.harness)
        return self.transcribe(build_trajectory(session.session_id, judged.calls))

    def transcribe(self, trajectory: Trajectory) -> Transcript:
        """The transcript of what is trained in a trajectory."""
        models = {turn.node.captured.call.served_model for turn in trained_turns(trajectory)}
        return transcribe(trajectory, ChainMap(*(self._of(model) for model in models if model is not None)))

    def _of(self, model: str) -> dict[int, bytes]:
        if model not in self._texts:
            self._texts[model] = self._repository.token_texts(model)
        return self._texts[model]


def _request(turn: Turn, known: dict[str, Request | None]) -> Request | None:
    call = turn.node.captured.call
    if call.call_id not in known:
        known[call.call_id] = read_request(call)
    return known[call.call_id]


def _instruction(messages: Iterable[Message]) -> str:
    return next((_text(message.parts) for message in messages if message.role == "user"), "")


def _text(parts: Iterable[Part]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _said(turn: Turn, told: list[Message], texts: Mapping[int, bytes]) -> SaidTurn:
    completion = turn.node.completion
    size, cut = len(completion.token_ids), completion.finish_reason is FinishReason.LENGTH
    subagent = turn.node.captured.kind is CallKind.SUBAGENT
    if not told or told[0].role != "assistant":
        written = read_written(spell(completion.token_ids, texts))
        tools = tuple(ToolCall(tool.name, tool.arguments) for tool in written.tools)
        return SaidTurn(turn_key(turn), written.text.strip(), written.thinking, tools, size, cut, subagent)
    results = {
        part.id: _text(part.content) for message in told[1:] for part in message.parts if isinstance(part, ToolResult)
    }
    parts = told[0].parts
    return SaidTurn(
        turn_key(turn),
        _text(parts),
        "\n".join(part.text for part in parts if isinstance(part, Thinking)),
        tuple(ToolCall(part.name, part.arguments, results.get(part.id)) for part in parts if isinstance(part, ToolUse)),
        size,
        cut,
        subagent,
    )
