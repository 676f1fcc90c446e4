"""`atif`: a session as one ATIF trajectory, sub-agents embedded, with the exact tokens of every call in its step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.export.records import write_lines
from polarproxy.export.texts.atif_steps import Steps
from polarproxy.export.texts.atif_types import (
    SCHEMA_VERSION,
    Agent,
    FinalMetrics,
    Observation,
    Result,
    SubagentRef,
    Trajectory,
)
from polarproxy.export.texts.chat import write_tools
from polarproxy.export.texts.choosing import LINES, cached
from polarproxy.export.texts.dialogues import Dialogues, Unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from polarproxy.export.format import Context, Reading, Taken
    from polarproxy.model import Call
    from polarproxy.trajectory.agents import Agent as Acting
    from polarproxy.trajectory.branches import Turn

WITH_TOKENS, TEXT_ONLY = "tokens", "text"
FORMS = (WITH_TOKENS, TEXT_ONLY)
_CLIENT = re.compile(r"([\w.-]+)/(\d[\w.+-]*)")
"""A program and its version, at the beginning of a User-Agent."""


def write_atif(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """A trajectory a line; each is what Harbor calls a `trajectory.json`."""
    write_lines(path, _trajectories(sessions, context))


def _trajectories(sessions: Iterable[Taken], context: Context) -> Iterator[Trajectory]:
    reading = cached(context.reading)
    for taken in sessions:
        made = trajectory(taken, context, reading)
        if made is not None:
            context.account.texts[LINES] += 1
            yield made


def trajectory(taken: Taken, context: Context, reading: Reading) -> Trajectory | None:
    """A session. None: nothing of it is trained, or none of it can be read."""
    if taken.trajectory is None:
        return None
    turns: dict[str, list[Turn]] = {}
    for branch in taken.trajectory.branches:
        for turn in branch.turns:
            turns.setdefault(turn.node.captured.call.call_id, []).append(turn)
    reader, agents = Dialogues(taken.rebuilt.forest, reading), taken.rebuilt.agents()
    acted = {agent.name: _steps(agent, turns, reader, context) for agent in agents}
    made = {agent.name: _made(agent, acted[agent.name], taken, reading) for agent in agents if acted[agent.name].steps}
    _refer(agents, acted, made, taken.session.session_id)
    mains = [made[agent.name] for agent in agents if agent.name in made and not agent.is_subagent]
    others = [made[agent.name] for agent in agents if agent.name in made]
    if not others:
        return None
    whole = mains[0] if mains else others[0]
    whole.subagent_trajectories = [one for one in others if one is not whole] or None
    whole.trajectory_id, whole.extra = taken.session.session_id, _about(taken)
    return whole


def _steps(agent: Acting, turns: Mapping[str, Sequence[Turn]], reader: Dialogues, context: Context) -> Steps:
    """Of the calls of an agent that are in a row. A turn that several rows hold counts where it is trained."""
    steps = Steps(tokens=context.form != TEXT_ONLY)
    for call_id in agent.calls:
        by_choice: dict[int, Turn] = {}
        for turn in turns.get(call_id, ()):
            known = by_choice.get(turn.node.completion.index)
            if known is None or (turn.trained and not known.trained):
                by_choice[turn.node.completion.index] = turn
        for _, turn in sorted(by_choice.items()):
            request = reader.request(turn.node.captured.call)
            reply = None if request is None else reader.reply(turn.node)
            if request is None or reply is None:
                why = Unread.REQUEST if request is None else Unread.REPLY
                context.account.texts[f"turns without a text: {why.value}"] += turn.trained
            else:
                steps.add(turn, request, reply)
    if steps.shown_otherwise:
        context.account.texts["media shown as text"] += steps.shown_otherwise
    return steps


def _made(agent: Acting, acted: Steps, taken: Taken, reading: Reading) -> Trajectory:
    ids = set(agent.calls)
    calls = [captured.call for captured in taken.rebuilt.judged.calls if captured.call.call_id in ids]
    first = next(call for call in calls if call.call_id in acted.of_call)
    request = reading.request(first)
    name, version = _client(calls)
    sampled = [step.metrics for step in acted.steps if step.metrics is not None]
    cached_tokens = [one.cached_tokens for one in sampled if one.cached_tokens is not None]
    tools = [] if request is None else write_tools(request.tools)
    return Trajectory(
        schema_version=SCHEMA_VERSION,
        session_id=taken.session.session_id,
        trajectory_id=f"{taken.session.session_id}/{agent.name}",
        agent=Agent(taken.session.harness or name, version, first.served_model, tools or None),
        steps=acted.steps,
        final_metrics=FinalMetrics(
            total_prompt_tokens=sum(one.prompt_tokens for one in sampled),
            total_completion_tokens=sum(one.completion_tokens for one in sampled),
            total_cached_tokens=sum(cached_tokens) if cached_tokens else None,
            total_steps=len(acted.steps),
        ),
        extra={"agent": agent.name, "evidence": agent.evidence} if agent.is_subagent else None,
    )


def _client(calls: Sequence[Call]) -> tuple[str, str]:
    """The program that asked, as it named itself."""
    for call in calls:
        found = _CLIENT.match(dict(call.headers).get("user-agent", ""))
        if found is not None:
            return found[1], found[2]
    return "unknown", "unknown"


def _refer(
    agents: Sequence[Acting], acted: Mapping[str, Steps], made: Mapping[str, Trajectory], session_id: str
) -> None:
    """Each sub-agent is named by the step that made it, where the record shows that."""
    places = {call_id: steps for steps in acted.values() for call_id in steps.of_call}
    for agent in agents:
        if agent.name not in made or agent.spawned_by is None or agent.spawned_by not in places:
            continue
        step = places[agent.spawned_by].of_call[agent.spawned_by]
        ref = SubagentRef(made[agent.name].trajectory_id, session_id)
        if step.observation is None:
            step.observation = Observation([])
        results = step.observation.results
        told = [one for one in results if agent.name in _text(one)]
        result = told[0] if len(told) == 1 else results[0] if len(results) == 1 else None
        if result is None:
            results.append(Result(subagent_trajectory_ref=[ref]))
        else:
            result.subagent_trajectory_ref = [*(result.subagent_trajectory_ref or ()), ref]


def _text(result: Result) -> str:
    return result.content if isinstance(result.content, str) else ""


def _about(taken: Taken) -> dict[str, Any]:
    """What is known of the session as a whole."""
    session = taken.session
    reward = None if session.reward is None else msgspec.to_builtins(session.reward)
    return {
        "status": session.status.value,
        "task_id": session.task_id,
        "group_id": session.group_id,
        "reward": reward,
        "metadata": dict(session.metadata),
    }
