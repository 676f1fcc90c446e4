"""`polarproxy reward`: what a session was worth."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from polarproxy.cli.facts import components_of, turns_of
from polarproxy.cli.opening import Db, Json, narrowed, open_repository
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.cli.reward_import import import_rewards
from polarproxy.cli.reward_recompute import recompute
from polarproxy.cli.reward_turns import check_calls, unmatched
from polarproxy.errors import BadReward, InvalidValue
from polarproxy.model import ComponentKind, Reward, RewardComponent, TurnReward
from polarproxy.model.plurals import counted

if TYPE_CHECKING:
    from polarproxy.store.rewards import SetReward

app = typer.Typer(no_args_is_help=True, help="Rewards of sessions: appended, never changed; the latest one counts.")
app.command("import")(import_rewards)
app.command("recompute")(recompute)


def _number(text: str, what: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    if not name.strip():
        raise BadReward(f"{text!r} is not {what}; write NAME=NUMBER")
    try:
        return name, float(value)
    except ValueError as error:
        raise BadReward(f"{text!r} is not {what}; write NAME=NUMBER") from error


def _turn(text: str) -> TurnReward:
    name, value = _number(text, "the reward of a turn")
    # Bounded: Python reads no integers of thousands of digits.
    number = re.fullmatch(r"-?[0-9]{1,100}", name)
    return TurnReward(value, call_id=name) if number is None else TurnReward(value, turn=int(name))


@app.command("set", context_settings={"ignore_unknown_options": True})
def set_reward(
    session_id: str,
    value: float,
    component: Annotated[list[str] | None, typer.Option(help="NAME=NUMBER, a part of the total; repeatable.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="NAME=NUMBER that is only watched; repeatable.")] = None,
    turn: Annotated[
        list[str] | None,
        typer.Option(help="TURN=NUMBER or CALL_ID=NUMBER, what one turn was worth; turns count from 0; repeatable."),
    ] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Set the reward of a session. An earlier one stays as history; the latest counts.

    Example: polarproxy reward set s1m8… 1.0 --component tests=1 --component style=0.5 --turn 0=0.1
    """
    parts = [RewardComponent(*_number(text, "a component")) for text in component or ()]
    parts += [RewardComponent(*_number(text, "a metric"), ComponentKind.METRIC) for text in metric or ()]
    try:
        reward = Reward(value, tuple(parts), tuple(_turn(text) for text in turn or ())).require_trainable()
    except InvalidValue as error:
        raise BadReward(f"session {session_id}: {error}") from error
    with open_repository(db) as repository:
        check_calls(repository, session_id, reward)
        warning = unmatched(repository, session_id, reward)
        repository.add_reward(session_id, reward)
    if as_json:
        print_json({"session_id": session_id, "reward": value, "warnings": [] if warning is None else [warning]})
        return
    console.print(f"session {session_id} has reward {value:g}", markup=False)
    if warning is not None:
        errors.print(warning, style="yellow", markup=False)


@app.command("list")
def list_rewards(
    session_id: Annotated[str | None, typer.Argument(help="Its whole history. Default: what counts, of all.")] = None,
    group: Annotated[str | None, typer.Option(help="Only sessions of this group.")] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """List rewards: the one that counts of every session, or all that one session was ever given.

    Example: polarproxy reward list s1m8…
    """
    with open_repository(db) as repository, narrowed(as_json):
        repository.require_group(group)
        found = (
            repository.latest_rewards(group_id=group) if session_id is None else repository.reward_history(session_id)
        )
    if as_json:
        print_json([asdict(given) for given in found])
        return
    columns = ("session", "created (UTC)", "reward", "counts", "components", "turns", "spec")
    rows = [_row(given, counts=session_id is None or given is found[-1]) for given in found]
    print_table(f"{counted(len(rows), 'reward')}", columns, rows, spare=("spec", "turns"))


def _row(given: SetReward, *, counts: bool) -> tuple[object, ...]:
    reward = given.reward
    return (
        given.session_id,
        f"{given.recorded_at:%Y-%m-%d %H:%M:%S}",
        reward.value,
        "yes" if counts else "no",
        components_of(reward),
        turns_of(reward),
        reward.spec,
    )
