"""`dpo`: pairs of answers to one prompt, of which one is to be preferred.

Of a group: a session with a higher reward and one with a lower. Of one session: an answer that its harness went on from, and
one to the same prompt that it had and did not. Either way the prompt is the same, token for token, of the same model.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.credit.rollouts import trained_turns, turn_key
from polarproxy.export.records import write_lines
from polarproxy.export.texts.chat import write_messages, write_tools
from polarproxy.export.texts.choosing import cached, counted_lines, groups, reward_of
from polarproxy.export.texts.dialogues import Dialogues, Line
from polarproxy.export.texts.runs import Run, run_of
from polarproxy.trajectory.eligibility import TRAINED_KINDS
from polarproxy.trajectory.lineage import identity
from polarproxy.trajectory.repeats import used

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from polarproxy.export.format import Context, Reading, Taken
    from polarproxy.export.texts.options import TextOptions
    from polarproxy.trajectory.forest import Forest, Node

BOTH, SESSIONS, FORKS = "all", "sessions", "forks"
FORMS = (BOTH, SESSIONS, FORKS)


class Side(msgspec.Struct):
    """Where one side of a pair comes from. `reward` None: it is preferred, or not, for what its harness did."""

    session_id: str
    call_ids: list[str]
    reward: float | None


class Metadata(msgspec.Struct):
    """Where a pair comes from."""

    kind: str
    """`sessions` or `forks`."""
    task_id: str | None
    group_id: str | None
    model: str | None
    margin: float | None
    """By how much the reward of what is chosen is higher. None: of a fork."""
    prompt_tokens: int
    """Length of the prompt that both have."""
    chosen: Side
    rejected: Side


class Pair(msgspec.Struct):
    """One line: TRL's conversational preferences with an explicit prompt. Messages of assistants have their `weight`."""

    prompt: list[dict[str, Any]]
    chosen: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    metadata: Metadata


def write_dpo(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """The pairs of each group, then those of each of its sessions."""
    lines = counted_lines(_pairs(sessions, context), lambda pair: [pair.prompt, pair.chosen, pair.rejected], context)
    write_lines(path, lines)


def _pairs(sessions: Iterable[Taken], context: Context) -> Iterator[Pair]:
    told, reading, form = context.account.texts, cached(context.reading), context.form or BOTH
    for group in groups(sessions):
        found: list[Pair] = []
        if form != FORKS:
            found += _of_group(group, context, reading)
        if form != SESSIONS:
            for taken in group:
                found += _of_session(taken, reading)
        for pair in found:
            if _said(pair.chosen) == _said(pair.rejected):
                told["pairs of one and the same answer"] += 1
            else:
                yield pair


def _said(messages: Any) -> bytes:
    return msgspec.json.encode(messages)


def _of_group(group: Sequence[Taken], context: Context, reading: Reading) -> Iterator[Pair]:
    """Sessions whose rewards differ, among those that began with the same tokens."""
    told = context.account.texts
    by_prompt: dict[tuple[bytes, str | None], list[tuple[float, Run]]] = {}
    for taken in group:
        reward = reward_of(taken)
        if reward is None:
            told["sessions without a reward"] += 1
            continue
        run = run_of(taken, reading)
        if isinstance(run, Run):
            by_prompt.setdefault((run.prompt.raw, run.model), []).append((reward, run))
        else:
            told[f"sessions without a text: {run.value}"] += 1
    for runs in by_prompt.values():
        if len(runs) == 1:
            told["sessions whose prompt no other of their group has"] += 1
        for (high, chosen), (low, rejected) in _chosen(runs, context.texts):
            yield _session_pair(chosen, rejected, high, low)


def _chosen(
    runs: Sequence[tuple[float, Run]], options: TextOptions
) -> Iterator[tuple[tuple[float, Run], tuple[float, Run]]]:
    """Pairs of runs, the better one first. Of equal ones the first counts."""
    ordered = sorted(enumerate(runs), key=lambda one: (-one[1][0], one[0]))
    ranked = [run for _, run in ordered]
    wanted = combinations(ranked, 2) if options.pairs == "all" else [(ranked[0], ranked[-1])]
    for better, worse in wanted:
        difference = better[0] - worse[0]
        if difference > 0 and difference >= (options.margin or 0.0):
            yield better, worse


def _session_pair(chosen: Run, rejected: Run, high: float, low: float) -> Pair:
    session = chosen.taken.session
    return Pair(
        prompt=chosen.opening,
        chosen=chosen.rest,
        rejected=rejected.rest,
        tools=chosen.tools,
        metadata=Metadata(
            kind=SESSIONS,
            task_id=session.task_id,
            group_id=session.group_id,
            model=chosen.model,
            margin=high - low,
            prompt_tokens=len(chosen.prompt),
            chosen=Side(session.session_id, chosen.call_ids, high),
            rejected=Side(rejected.taken.session.session_id, rejected.call_ids, low),
        ),
    )


def _of_session(taken: Taken, reading: Reading) -> Iterator[Pair]:
    """Answers to one prompt that the client had, of which it went on from one."""
    forest = taken.rebuilt.forest
    trained = set() if taken.trajectory is None else {turn_key(turn) for turn in trained_turns(taken.trajectory)}
    reader = Dialogues(forest, reading)
    for places in forest.same_prompt.values():
        accepted = [place for place in places if _is_answer(forest.nodes[place]) and used(forest, place)]
        if len(accepted) != 1 or _key(forest.nodes[accepted[0]]) not in trained:
            continue
        chosen = forest.nodes[accepted[0]]
        for place in places:
            rejected = forest.nodes[place]
            if place != accepted[0] and _was_rejected(forest, place, chosen):
                pair = _fork_pair(taken, chosen, rejected, reader)
                if pair is not None:
                    yield pair


def _key(node: Node) -> tuple[str, int]:
    return node.captured.call.call_id, node.completion.index


def _is_answer(node: Node) -> bool:
    return bool(len(node.completion.token_ids)) and node.captured.kind in TRAINED_KINDS


def _was_rejected(forest: Forest, place: int, chosen: Node) -> bool:
    """Whether the harness had this answer and did not go on from it; one that broke off on the way was no choice of its."""
    node = forest.nodes[place]
    call = node.captured.call
    same = identity(call).agent == identity(chosen.captured.call).agent
    same_model = call.served_model == chosen.captured.call.served_model
    ended = node.completion.finish_reason is not None and node.completion.finish_reason.value != "abort"
    return _is_answer(node) and same and same_model and ended and node.captured.delivered and not forest.children[place]


def _fork_pair(taken: Taken, chosen: Node, rejected: Node, reader: Dialogues) -> Pair | None:
    """None: the request, or one of the answers, cannot be read."""
    call = chosen.captured.call
    request, good, bad = reader.request(call), reader.reply(chosen), reader.reply(rejected)
    if request is None or good is None or bad is None:
        return None
    if request.messages and request.messages[-1].role == "assistant":
        # The answers are but the rest of what the client began.
        return None
    before = [Line(message) for message in request.messages]
    prompt, session = write_messages(before).messages, taken.session
    sides = [write_messages([*before, Line(reply)], weights=False).messages[len(prompt) :] for reply in (good, bad)]
    for (message,) in sides:
        message["weight"] = 1
    return Pair(
        prompt=prompt,
        chosen=sides[0],
        rejected=sides[1],
        tools=write_tools(request.tools),
        metadata=Metadata(
            kind=FORKS,
            task_id=session.task_id,
            group_id=session.group_id,
            model=call.served_model,
            margin=None,
            prompt_tokens=len(chosen.prompt),
            chosen=Side(session.session_id, [call.call_id], None),
            rejected=Side(session.session_id, [rejected.captured.call.call_id], None),
        ),
    )
