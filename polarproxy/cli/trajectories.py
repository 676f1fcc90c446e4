"""`polarproxy trajectories`: the branches of a session, and what is trained of them."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from polarproxy.cli.drifts import drift_json, drift_lines
from polarproxy.cli.opening import Db, Json, Merge, open_repository
from polarproxy.cli.output import console, print_json, print_table
from polarproxy.cli.recipes import rebuilt
from polarproxy.cli.spelling import Tokenizer, marked, spell, spellings
from polarproxy.cli.tree import tree
from polarproxy.errors import NotFound
from polarproxy.trajectory.differences import common
from polarproxy.trajectory.drift import compare
from polarproxy.trajectory.prompting import count_prompts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.branches import Branch, Trajectory
    from polarproxy.trajectory.forest import Forest, Node
    from polarproxy.trajectory.prompting import PromptCount
    from polarproxy.trajectory.rebuilt import Rebuilt

app = typer.Typer(no_args_is_help=True, help="Branches rebuilt from calls.")


@app.command("show")
def show_trajectory(
    session_id: str,
    text: Annotated[bool, typer.Option("--text", help="Spell out every branch, trained text between « and ».")] = False,
    as_tree: Annotated[
        bool, typer.Option("--tree", help="Draw every call under the one that it continues: kind, span, drift.")
    ] = False,
    merge: Merge = "prefix_merging",
    tokenizer: Tokenizer = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show the branches of a session, what is trained in each, what drifted, and what is left out and why.

    Example: polarproxy trajectories show SESSION --tree
    """
    with open_repository(db) as repository:
        session = repository.session(session_id)
        calls = repository.calls(session_id)
        texts = spellings(repository, [captured.call for captured in calls], tokenizer)
    whole = rebuilt(session, calls, merge=merge)
    trajectory, drifts = whole.trajectory, whole.drifts(texts)
    if as_json:
        told: dict[str, object] = {"merge": merge, "drifts": [drift_json(drift, texts) for drift in drifts]}
        told |= {"repeats": [asdict(repeat) for repeat in whole.repeats()]}
        told |= {"agents": [asdict(agent) for agent in whole.agents()]}
        told |= {"exact_prompts": count_prompts(calls).told()}
        print_json(_as_json(trajectory) | told)
        return
    if as_tree:
        console.print(tree(whole.forest, trajectory, drifts))
    else:
        _print_tables(whole)
    for line in (line for drift in drifts for line in drift_lines(drift, texts)):
        console.print(line)
    if (count := count_prompts(calls)).calls:
        console.print(_prompts(count), markup=False)
    if text:
        for branch in trajectory.branches:
            console.print(_spelled(branch, texts))


@app.command("diff")
def diff_trajectories(
    first: Annotated[str, typer.Argument(metavar="A", help="A call, or a session: then the end of its first branch.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    tokenizer: Tokenizer = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show where the tokens of two calls, prompt and reply, part: whether B goes on from A exactly, and if not, why.

    Of calls with several choices those are compared that have most in common. Exit code 1 when it does not.

    Example: polarproxy trajectories diff CALL LATER_CALL
    """
    with open_repository(db) as repository:
        forest, ones = _ends(repository, first)
        _, others = _ends(repository, second)
        earlier, later = max(product(ones, others), key=lambda pair: common(pair[0].context, pair[1].context))
        texts = spellings(repository, [earlier.captured.call, later.captured.call], tokenizer)
    drift = compare(forest, earlier, later, texts)
    if as_json:
        print_json(None if drift is None else drift_json(drift, texts))
    elif drift is None:
        short, long = sorted((earlier, later), key=lambda node: node.stop)
        more = "are the same" if short.stop == long.stop else f"begin the {long.stop:,} of {_name(long)}"
        console.print(f"the {short.stop:,} tokens of {_name(short)} {more}")
    else:
        for line in drift_lines(drift, texts):
            console.print(line)
    if drift is not None:
        raise typer.Exit(1)


def _name(node: Node) -> str:
    choice = f" choice {node.completion.index}" if len(node.captured.call.completions) > 1 else ""
    return node.captured.call.call_id + choice


def _ends(repository: Repository, name: str) -> tuple[Forest, list[Node]]:
    """The choices of a call, or the last turn of the first branch of a session; and the forest that they stand in."""
    try:
        session_id = repository.call(name).call.session_id
    except NotFound:
        session_id = name
    try:
        whole = rebuilt(repository.session(session_id), repository.calls(session_id))
    except NotFound as error:
        raise NotFound(
            f"there is no call and no session {name!r}; `polarproxy calls list` and `sessions list` show all"
        ) from error
    if session_id == name and whole.trajectory.branches:
        return whole.forest, [whole.trajectory.branches[0].turns[-1].node]
    found = [node for node in whole.forest.nodes if node.captured.call.call_id == name]
    if not found:
        raise NotFound(f"{name} has no tokens to compare: its prompt ids are not known, or nothing was sampled")
    return whole.forest, found


def _print_tables(whole: Rebuilt) -> None:
    trajectory, repeats, agents = whole.trajectory, whole.repeats(), whole.agents()
    columns = ["branch", "turns", "tokens", "trained", "parent branch", "shared prefix", "calls"]
    rows = [_row(branch) for branch in trajectory.branches]
    if not all(branch.faithful for branch in trajectory.branches):
        columns.insert(4, "off context")
        off = (branch.off_context_tokens for branch in trajectory.branches)
        rows = [(*row[:4], tokens, *row[4:]) for row, tokens in zip(rows, off, strict=True)]
    print_table(f"session {trajectory.session_id}", columns, rows, spare=("shared prefix", "parent branch"))
    if trajectory.left_out:
        left_out = [
            (entry.call_id, entry.choice, whole.judged.verdicts[entry.call_id].kind, entry.reason, entry.tokens)
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


def _prompts(count: PromptCount) -> str:
    said = [f"prompts: {count.exact} exact", f"{count.first} with nothing to go on from"]
    said += [f"{number} rendered by the engine ({reason})" for reason, number in sorted(count.fallbacks.items())]
    said += [f"{count.faults} that the engine did not use"] if count.faults else []
    return f"{', '.join(said)}; {count.saved_tokens} sampled tokens kept as they were"


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
                "faithful": branch.faithful,
                "off_context_tokens": branch.off_context_tokens,
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
