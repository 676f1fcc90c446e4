"""Writes docs/guides/what-is-trained.md from the recorded session of `tests.harnesses.example`:

    python -m tests.harnesses.walk

A test compares the page with what this makes.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill

from polarproxy.cli.recipes import known_recipes
from polarproxy.model import CapturedCall
from polarproxy.store.archiving import import_sessions
from polarproxy.store.database import open_database
from polarproxy.store.migrate import upgrade
from polarproxy.store.repository import Repository
from polarproxy.trajectory.branches import Branch
from polarproxy.trajectory.drift import find_drifts
from polarproxy.trajectory.eligibility import Reason
from polarproxy.trajectory.integrity import Severity
from polarproxy.trajectory.rebuilt import Rebuilt, rebuild
from tests.fakes.toy_tokenizer import decode, token_bytes
from tests.harnesses.example import ARCHIVE
from tests.harnesses.stage import SESSION

WIDTH = 128
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "what-is-trained.md"

WHY = {
    Reason.REJECTED: "the engine refused the prompt as too long, and sampled nothing",
    Reason.FAILED: "the engine failed before it sampled anything; the harness asked again",
    Reason.SIDE_CALL: "the harness asks for a summary of its own history; it is not the work",
}


def recorded() -> list[CapturedCall]:
    """The calls of the session, as a store gives them."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_database(f"sqlite:///{folder}/polar.db", create=True)
        upgrade(engine)
        assert list(import_sessions(engine, ARCHIVE, frozenset({SESSION}))) == [SESSION]
        calls = Repository(engine).calls(SESSION)
        engine.dispose()
    return calls


@dataclass(frozen=True)
class Walk:
    """The session, and what is said of it."""

    rebuilt: Rebuilt
    ordinals: dict[str, int] = field(default_factory=dict)

    def number(self, call_id: str) -> str:
        return f"#{self.ordinals[call_id]}"

    def outcome(self, call_id: str) -> str:
        for entry in self.rebuilt.trajectory.left_out:
            if entry.call_id == call_id:
                return f"left out: `{entry.reason}`"
        rows = [
            b.index
            for b in self.rebuilt.trajectory.branches
            for t in b.turns
            if t.node.captured.call.call_id == call_id
        ]
        return f"trained in row {rows[0]}"


def calls(walk: Walk) -> list[str]:
    lines = ["| call | status | kind | why that kind | prompt | sampled | outcome |", "|---|---|---|---|---|---|---|"]
    for captured in walk.rebuilt.judged.calls:
        call, verdict = captured.call, walk.rebuilt.judged.verdicts[captured.call.call_id]
        sampled = sum(len(completion.token_ids) for completion in call.completions)
        prompt = "" if call.prompt_token_ids is None else len(call.prompt_token_ids)
        cells = [
            walk.number(call.call_id),
            call.status,
            f"`{verdict.kind}`",
            f"{verdict.sentence} ({verdict.source})",
            prompt,
            sampled or "",
            walk.outcome(call.call_id),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def tree(walk: Walk) -> list[str]:
    """Every agent under the call that made it, its calls in order; under each, the call whose tokens it repeats."""
    forest = walk.rebuilt.forest
    parents = {node.captured.call.call_id: node.parent for node in forest.nodes}
    lines = ["```text", f"session {SESSION}"]

    def hang(agent_name: str, indent: str) -> None:
        agent = next(each for each in walk.rebuilt.agents() if each.name == agent_name)
        lines.append(f"{indent}└─ {'sub-agent' if agent.is_subagent else 'main agent'} {agent.name}")
        for call_id in agent.calls:
            place = parents.get(call_id)
            kind = walk.rebuilt.judged.verdicts[call_id].kind
            goes_on = (
                "" if place is None else f", goes on from {walk.number(forest.nodes[place].captured.call.call_id)}"
            )
            lines.append(
                f"{indent}   ├─ {walk.number(call_id)} {kind}{goes_on}: {walk.outcome(call_id).replace('`', '')}"
            )
            for other in walk.rebuilt.agents():
                if other.spawned_by == call_id:
                    hang(other.name, f"{indent}   │  ")

    for agent in walk.rebuilt.agents():
        if agent.spawned_by is None:
            hang(agent.name, "")
    return [*lines, "```"]


def row(walk: Walk, branch: Branch) -> list[str]:
    turns = ", ".join(walk.number(turn.node.captured.call.call_id) for turn in branch.turns)
    head = f"**Row {branch.index}**: calls {turns}; {len(branch.token_ids)} tokens, {branch.trained_tokens} of them trained."
    lines = [head, "", "```text"]
    for turn in branch.turns:
        spelled = decode(turn.node.completion.token_ids).replace("\n", "\\n")
        lines.append(
            f"[{turn.start}, {turn.stop})  {'«' if turn.trained else ' '}{spelled}{'»' if turn.trained else ' '}"
        )
    return [*lines, "```", ""]


def drifts(walk: Walk) -> list[str]:
    texts = {token: token_bytes(token) for node in walk.rebuilt.forest.nodes for token in node.context}
    lines = ["| call | repeats | from token | class | there | here |", "|---|---|---|---|---|---|"]
    for drift in find_drifts(walk.rebuilt.forest, texts):
        there, here = (
            decode(window.before) + "⟦" + decode(window.changed) + "⟧" for window in (drift.there, drift.here)
        )
        cells = [
            walk.number(drift.call_id),
            walk.number(drift.earlier_call_id),
            drift.position,
            f"`{drift.drift_class}`",
            _code(there),
            _code(here),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _code(text: str) -> str:
    return "`" + text.replace("\n", "\\n").replace("|", "¦").replace("`", "'")[:60] + "`"


def left_out(walk: Walk) -> list[str]:
    reasons = sorted({entry.reason for entry in walk.rebuilt.trajectory.left_out})
    return [f"- `{reason}`: {WHY[reason]}." for reason in reasons]


def agents(walk: Walk) -> list[str]:
    found = [agent for agent in walk.rebuilt.agents() if agent.is_subagent]
    return [
        f"The sub-agent `{agent.name}` was made by call {walk.number(agent.spawned_by)}: "
        f"{_numbered(walk, agent.evidence)}."
        for agent in found
        if agent.spawned_by is not None
    ]


def _numbered(walk: Walk, text: str) -> str:
    for call_id in sorted(walk.ordinals, key=len, reverse=True):
        text = text.replace(call_id, walk.number(call_id))
    return text


def integrity(walk: Walk) -> list[str]:
    found = walk.rebuilt.integrity()
    warnings = ", ".join(f"`{code}` ({count})" for code, count in found.counts(Severity.WARNING).items())
    errors = found.counts(Severity.ERROR)
    coverage = "" if found.coverage is None else f" ({found.coverage:.1%})"
    return [
        f"Of {found.captured_tokens} sampled tokens {found.trained_tokens} are trained{coverage}. "
        f"Errors: {errors or 'none'}. Warnings: {warnings or 'none'}."
    ]


PARTS: tuple[tuple[str, str, Callable[[Walk], Sequence[str]]], ...] = (
    (
        "The calls",
        "Everything that Claude Code asked of the model, in order of arrival. Its own headers tell the sub-agent; the recipe "
        "`harnesses/claude-code.toml` tells the compaction; of the rest nothing says that it is anything but the work "
        "([kinds](../reference/kinds.md)).",
        calls,
    ),
    (
        "The tree",
        "Agents hang under the call that made them. A call *goes on from* an earlier one when its prompt begins with "
        "exactly that call's prompt and sampled tokens ([repeats and agents](../reference/repeats.md)).",
        tree,
    ),
    ("Who made the sub-agent", "", agents),
    (
        "The rows",
        "A row is a path through that tree. The spans are what the policy sampled, and nothing else has `loss_mask` 1; "
        "everything between them (system prompt, tools, tool results, the user) is context. Trained text stands between « "
        "and ».",
        lambda walk: [line for branch in walk.rebuilt.trajectory.branches for line in row(walk, branch)],
    ),
    (
        "Why it is not one row",
        "Where a prompt tells an earlier reply again in other tokens, a new row begins with the prompt that the engine "
        "really had: each trained token keeps the context in which it was sampled. The place where they part, and what "
        "stands there:",
        drifts,
    ),
    ("What is left out", "", left_out),
    ("Whether it can be trusted", "", integrity),
)
INTRO = (
    "A real run of Claude Code 2.1.332 against a scripted engine, recorded by the proxy, with Claude Code's own prose "
    "replaced. The user asked for a sub-agent; on the way the engine failed once, a command was run, and the prompt grew "
    "over the engine's limit, so that Claude Code compacted its history. This page is made by "
    "`python -m tests.harnesses.walk` from the recording, and a test keeps it so. Of your own sessions "
    "`polarproxy trajectories show SESSION --text`, `sessions show` and `verify` tell the same."
)


def page() -> str:
    """The guide."""
    rebuilt = rebuild(SESSION, recorded(), known_recipes())
    walk = Walk(rebuilt, {captured.call.call_id: captured.call.ordinal for captured in rebuilt.judged.calls})
    lines = ["# What is trained: one session of Claude Code, from calls to rows", "", fill(INTRO, WIDTH), ""]
    for title, said, part in PARTS:
        lines += [f"## {title}", "", *([fill(said, WIDTH), ""] if said else []), *part(walk), ""]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
