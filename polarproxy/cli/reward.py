"""`polarproxy reward`: what a session was worth."""

from __future__ import annotations

from typing import Annotated

import typer

from polarproxy.cli.opening import Db, open_repository
from polarproxy.cli.output import console
from polarproxy.errors import BadReward, InvalidValue
from polarproxy.model import Reward, RewardComponent

app = typer.Typer(no_args_is_help=True, help="Rewards of sessions.")


def _component(text: str) -> RewardComponent:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError as error:
        raise BadReward(f"{text!r} is not a component; write NAME=NUMBER") from error
    return RewardComponent(name, number)


@app.command("set", context_settings={"ignore_unknown_options": True})
def set_reward(
    session_id: str,
    value: float,
    component: Annotated[list[str] | None, typer.Option(help="NAME=NUMBER; may be given several times.")] = None,
    db: Db = None,
) -> None:
    """Set the reward of a session. An earlier one stays as history; the latest counts.

    Example: polarproxy reward set s1m8… 1.0 --component tests=1 --component style=0.5
    """
    try:
        reward = Reward(value, tuple(_component(text) for text in component or ()))
    except InvalidValue as error:
        raise BadReward(str(error)) from error
    with open_repository(db) as repository:
        repository.add_reward(session_id, reward)
    console.print(f"session {session_id} has reward {value:g}")
