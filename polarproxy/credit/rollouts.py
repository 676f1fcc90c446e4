"""A session as credit sees it: its reward and what is known of its trained turns, and nothing of its tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from polarproxy.model import CallKind, ComponentKind, FinishReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.credit.transcript import SaidTurn, Transcript
    from polarproxy.model import RewardComponent, Session, TurnReward
    from polarproxy.trajectory.branches import Trajectory, Turn

    TurnKey = tuple[str, int]
    """Call id and choice index: a completion has one place in a session, whichever branches repeat it."""


_ALONE, _NAMED = "session:", "group:"


def group_of(session: Session) -> str:
    """The group that a session counts in; one without a group is a group of its own."""
    return group_name(session.group_id, session.session_id)


def group_name(group_id: str | None, session_id: str) -> str:
    """A name that only sessions of one group share: no group has that of a session without one, whatever it is called."""
    if group_id is None:
        return f"{_ALONE}{session_id}"
    return f"{_NAMED}{group_id}" if group_id.startswith((_ALONE, _NAMED)) else group_id


@dataclass(frozen=True, slots=True)
class RolloutTurn:
    """A trained completion."""

    key: TurnKey
    tokens: int
    policy_version: int
    """The oldest weights that sampled it."""
    reward: float | None = None
    """What somebody said that it was worth. None: nobody did."""
    subagent: bool = False
    well_formed: bool = True
    """False: it broke the format (cut off, or a tool call that cannot be read)."""
    code: str = ""
    """The arguments of its tool calls, one after the other."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One session. It counts once in a baseline, however many rows and turns it has."""

    session_id: str
    group_id: str
    reward: float | None
    """None: nothing has set one; the session is out of the loss and of the baseline."""
    components: tuple[RewardComponent, ...] = ()
    turns: tuple[RolloutTurn, ...] = ()
    """Trained turns by arrival. Empty also when an estimator needs none, and nobody looked."""
    cut: bool = False
    """Whether the last turn of the main agent (of any, where only sub-agents have one) ended at the length limit."""
    unmatched: tuple[str, ...] = ()
    """Turn rewards that speak of no trained turn."""
    ambiguous: tuple[str, ...] = ()
    """Turn rewards of a call of which several choices were gone on from: they count for none of them."""

    @property
    def sampled_tokens(self) -> int:
        """Trained tokens of all turns."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def reward_components(self) -> dict[str, float]:
        """The components that are parts of the total, by name; a penalty counts negatively."""
        signs = {ComponentKind.REWARD: 1.0, ComponentKind.PENALTY: -1.0}
        return {part.name: signs[part.kind] * part.value for part in self.components if part.kind in signs}

    @property
    def oldest_version(self) -> int | None:
        """None: there are no turns."""
        return min((turn.policy_version for turn in self.turns), default=None)

    def main_part(self) -> Rollout:
        """The rollout without the turns of its sub-agents."""
        return replace(self, turns=tuple(turn for turn in self.turns if not turn.subagent))

    def subagent_part(self) -> Rollout:
        """The sub-agents' turns as a rollout of their own, worth what those turns were worth. Nothing said: no reward."""
        turns = tuple(turn for turn in self.turns if turn.subagent)
        given = [turn.reward for turn in turns if turn.reward is not None]
        return replace(self, turns=turns, reward=sum(given) if given else None, components=())


def of_session(session: Session) -> Rollout:
    """What can be known without looking at its calls."""
    reward = session.reward
    return Rollout(
        session.session_id,
        group_of(session),
        None if reward is None else reward.value,
        () if reward is None else reward.components,
    )


def of_trajectory(session: Session, trajectory: Trajectory, said: Transcript | None = None) -> Rollout:
    """With its trained turns. `said` tells which are well formed and which code they wrote.

    None: nobody looked; then a turn is well formed unless it was cut off, and wrote no code.
    """
    trained = trained_turns(trajectory)
    texts = {} if said is None else {turn.key: turn for turn in said.turns}
    mains = [turn for turn in trained if turn.node.captured.kind is not CallKind.SUBAGENT]
    last = next(reversed(mains or trained), None)
    given: dict[int, float] = {}
    unmatched, ambiguous = [], []
    for reward in () if session.reward is None else session.reward.turns:
        match _meant(reward, trained):
            case []:
                unmatched.append(reward.where)
            case [place]:
                given[place] = given.get(place, 0.0) + reward.value
            case _:
                ambiguous.append(reward.where)
    return replace(
        of_session(session),
        turns=tuple(_turn(turn, given.get(place), texts.get(turn_key(turn))) for place, turn in enumerate(trained)),
        cut=last is not None and last.node.completion.finish_reason is FinishReason.LENGTH,
        unmatched=tuple(unmatched),
        ambiguous=tuple(ambiguous),
    )


def trained_turns(trajectory: Trajectory) -> list[Turn]:
    """The trained turns of all branches, each once, by arrival."""
    turns = [turn for branch in trajectory.branches for turn in branch.turns if turn.trained]
    return sorted(turns, key=lambda turn: (turn.node.captured.call.ordinal, turn.node.completion.index))


def turn_key(turn: Turn) -> TurnKey:
    """Which completion a turn is."""
    return turn.node.captured.call.call_id, turn.node.completion.index


def _meant(reward: TurnReward, trained: Sequence[Turn]) -> list[int]:
    """The trained turns that a reward may speak of. Of a call with several choices, those that were gone on from."""
    called = list(dict.fromkeys(turn.node.captured.call.call_id for turn in trained))
    call_id = reward.call_id
    if reward.turn is not None:
        call_id = called[reward.turn] if reward.turn < len(called) else None
    places = [place for place, turn in enumerate(trained) if turn.node.captured.call.call_id == call_id]
    if len(places) < 2:
        return places
    prompts = [turn.node.prompt for turn in trained]
    return [
        place for place in places if any(prompt.startswith(trained[place].node.context) for prompt in prompts)
    ] or places


def _turn(turn: Turn, reward: float | None, said: SaidTurn | None) -> RolloutTurn:
    completion, captured = turn.node.completion, turn.node.captured
    whole = completion.finish_reason in (FinishReason.STOP, FinishReason.TOOL_CALLS)
    return RolloutTurn(
        key=turn_key(turn),
        tokens=len(completion.token_ids),
        policy_version=captured.call.policy_version_min,
        reward=reward,
        subagent=captured.kind is CallKind.SUBAGENT,
        well_formed=whole and (said is None or said.well_formed),
        code="" if said is None else said.code,
    )
