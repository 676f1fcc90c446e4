"""`polarproxy trajectories`: the branches of a session, and what is trained of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from polarproxy.cli.opening import Db, Json, open_repository
from polarproxy.cli.output import console, print_json, print_table
from polarproxy.cli.recipes import rebuilt
from polarproxy.cli.spelling import Tokenizer, marked, spell, spellings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.trajectory.branches import Branch, Trajectory

app = typer.Typer(no_args_is_help=True, help="Branches rebuilt from calls.")


@app.command("show")
def show_trajectory(
    session_id: str,
    text: Annotated[bool, typer.Option("--text", help="Spell out every branch, trained text between « and ».")] = False,
    tokenizer: Tokenizer = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show the branches of a session, what is trained in each, and what is left out and why."""
    with open_repository(db) as repository:
        session = repository.session(session_id)
        calls = repository.calls(session_id)
        texts = spellings(repository, [captured.call for captured in calls], tokenizer)
    whole = rebuilt(session, calls)
    judged, trajectory, repeats, agents = whole.judged, whole.trajectory, whole.repeats(), whole.agents()
    if as_json:
        told = {"repeats": [asdict(repeat) for repeat in repeats], "agents": [asdict(agent) for agent in agents]}
        print_json(_as_json(trajectory) | told)
        return
    columns = ("branch", "turns", "tokens", "trained", "parent branch", "shared prefix", "calls")
    rows = [_row(branch) for branch in trajectory.branches]
    print_table(f"session {session_id}", columns, rows, spare=("shared prefix", "parent branch"))
    if trajectory.left_out:
        left_out = [
            (entry.call_id, entry.choice, judged.verdicts[entry.call_id].kind, entry.reason, entry.tokens)
            for entry in trajectory.left_out
        ]
        print_table("left out", ("call", "choice", "kind", "reason", "sampled tokens"), left_out)
    if repeats:
        again = [(repeat.call_id, repeat.of, repeat.kind, repeat.evidence) for repeat in repeats]
        print_table("asked again", ("call", "first asked by", "what", "evidence"), again)
    if any(agent.is_subagent for agent in agents):
        made = [
            (agent.name, len(agent.calls), agent.parent, agent.spawned_by, agent.evidence or None) for agent in agents
        ]
        print_table("agents", ("agent", "calls", "made by", "in call", "evidence"), made)
    coverage = "nothing was sampled" if trajectory.coverage is None else f"{trajectory.coverage:.1%}"
    console.print(
        f"coverage {coverage}: {trajectory.trained_tokens} of {trajectory.captured_tokens} sampled tokens trained"
    )
    if text:
        for branch in trajectory.branches:
            console.print(_spelled(branch, texts))


def _row(branch: Branch) -> tuple[object, ...]:
    calls = " ".join(turn.node.captured.call.call_id for turn in branch.turns)
    size, trained = len(branch.token_ids), branch.trained_tokens
    return (branch.index, len(branch.turns), size, trained, branch.parent_branch, branch.shared_prefix, calls)


def _spelled(branch: Branch, texts: Mapping[int, bytes]) -> Text:
    whole, out, at = branch.token_ids, Text(f"branch {branch.index}\n", style="bold"), 0
    for turn in branch.turns:
        out += marked(spell(whole.cut(at, turn.start), texts), trained=False)
        out += marked(spell(turn.node.completion.token_ids, texts), trained=turn.trained)
        at = turn.stop
    return out


def _as_json(trajectory: Trajectory) -> dict[str, object]:
    return {
        "session_id": trajectory.session_id,
        "coverage": trajectory.coverage,
        "captured_tokens": trajectory.captured_tokens,
        "trained_tokens": trajectory.trained_tokens,
        "branches": [
            {
                "index": branch.index,
                "parent_branch": branch.parent_branch,
                "shared_prefix": branch.shared_prefix,
                "token_ids": list(branch.token_ids),
                "turns": [
                    {
                        "call_id": turn.node.captured.call.call_id,
                        "choice": turn.node.completion.index,
                        "start": turn.start,
                        "stop": turn.stop,
                        "trained": turn.trained,
                    }
                    for turn in branch.turns
                ],
            }
            for branch in trajectory.branches
        ],
        "left_out": [asdict(entry) for entry in trajectory.left_out],
    }
