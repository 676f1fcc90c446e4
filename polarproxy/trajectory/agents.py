"""The agents of a session: which calls are whose, and under which turn each sub-agent hangs.

Headers say who asked and who made whom; the turn is found where the parent's next request tells the sub-agent's id, as
the result of the tool call that made it. Where the record does not show the turn, the agent hangs under the session, and
`evidence` says so. What headers and tokens say differently is reported, and nobody is believed silently.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.model import CallKind
from polarproxy.trajectory.eligibility import TRAINED_KINDS
from polarproxy.trajectory.integrity import Code, Finding
from polarproxy.trajectory.lineage import Identity, identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from polarproxy.model import Call
    from polarproxy.trajectory.forest import Forest
    from polarproxy.trajectory.kinds import Judged


_NEAR = 4
"""How many requests of an agent are looked at before and after another one began."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent of a session."""

    name: str
    """The harness's id of it; `conversation of CALL` where it has none; `main` where nobody says anything."""
    calls: tuple[str, ...]
    """In order of arrival."""
    is_subagent: bool
    parent: str | None = None
    """Name of the agent that made it. None: not known, or nobody made it."""
    spawned_by: str | None = None
    """The call whose reply made it. None: the record does not show it, and it hangs under the session."""
    evidence: str = ""
    """Why it hangs where it does."""


def find_agents(judged: Judged, forest: Forest) -> tuple[Agent, ...]:
    """The agents of a session, by their first call."""
    calls = {captured.call.call_id: captured.call for captured in judged.calls}
    names = _names(judged, forest)
    grouped: dict[str, list[Call]] = {}
    for call in sorted(calls.values(), key=lambda call: call.ordinal):
        grouped.setdefault(names[call.call_id], []).append(call)
    subagents = {names[c.call.call_id] for c in judged.calls if c.kind is CallKind.SUBAGENT}
    # A title or a summary makes no agent.
    work = {captured.call.call_id for captured in judged.calls if captured.kind in TRAINED_KINDS}
    makers = {name: [call for call in group if call.call_id in work] for name, group in grouped.items()}
    return tuple(_agent(name, group, makers, is_subagent=name in subagents) for name, group in grouped.items())


def _names(judged: Judged, forest: Forest) -> Mapping[str, str]:
    """Whose each call is: by its headers, else by the conversation that it stands in."""
    roots = {node.captured.call.call_id: _root(forest, place) for place, node in enumerate(forest.nodes)}
    names = {}
    for captured in judged.calls:
        call, said = captured.call, identity(captured.call)
        own = captured.kind is CallKind.SUBAGENT
        names[call.call_id] = said.agent or (
            f"conversation of {roots.get(call.call_id, call.call_id)}" if own else "main"
        )
    return names


def _root(forest: Forest, place: int) -> str:
    return forest.nodes[forest.ancestors(place)[-1]].captured.call.call_id


def _agent(name: str, calls: Sequence[Call], makers: Mapping[str, Sequence[Call]], *, is_subagent: bool) -> Agent:
    ids = tuple(call.call_id for call in calls)
    if not is_subagent:
        return Agent(name, ids, is_subagent=False)
    said = identity(calls[0])
    parent = said.parent
    told = _told(name, calls[0], makers.items() if parent is None else [(parent, makers.get(parent, ()))])
    if told is not None:
        parent = told.by
    if parent is None or parent not in makers:
        why = f"its parent {parent} made no call here" if parent is not None else "nothing shows who made it"
        return Agent(name, ids, True, parent, None, f"{why}; it hangs under the session")
    spawned_by, evidence = _spawn(told, said, calls[0], makers[parent])
    return Agent(name, ids, True, parent, spawned_by, evidence)


@dataclass(frozen=True, slots=True)
class _Told:
    """The first request that tells an agent's id."""

    by: str
    request: Call
    before: Call | None
    """The call of the same agent before that request, whose reply made the agent. None: there is none."""


def _told(name: str, first: Call, makers: Iterable[tuple[str, Sequence[Call]]]) -> _Told | None:
    """Who told the id of an agent first. None: nobody, of those who asked something about when it began."""
    found = [
        told for maker, calls in makers if maker != name and (told := _told_by(maker, name, first, calls)) is not None
    ]
    return min(found, key=lambda told: told.request.ordinal, default=None)


def _told_by(maker: str, name: str, first: Call, calls: Sequence[Call]) -> _Told | None:
    needle = name.encode("utf-8", "replace")
    at = bisect_left(calls, first.ordinal, key=lambda call: call.ordinal)
    # Bodies are long and hold the whole history; the id is news in the one that answers the call that made the agent.
    for index in range(max(0, at - _NEAR), min(len(calls), at + _NEAR)):
        if needle in calls[index].request_body:
            while index and needle in calls[index - 1].request_body:
                index -= 1
            return _Told(maker, calls[index], calls[index - 1] if index else None)
    return None


def _spawn(told: _Told | None, said: Identity, first: Call, parents: Sequence[Call]) -> tuple[str | None, str]:
    """The parent's call that made an agent, and how that is known."""
    if told is not None and told.before is not None:
        return told.before.call_id, f"the parent's next request, {told.request.call_id}, tells its id"
    before = [call for call in parents if call.ordinal < first.ordinal]
    in_turn = [call for call in before if said.parent_turn is not None and identity(call).turn == said.parent_turn]
    if len(in_turn) == 1:
        return in_turn[0].call_id, "its headers name the parent's turn, in which one call came before it"
    return None, "no request of its parent tells its id; it hangs under the session"


def check_agents(agents: Iterable[Agent], forest: Forest) -> Iterator[Finding]:
    """Where headers and tokens tell different stories of who goes on from whom."""
    owners = {call_id: agent for agent in agents for call_id in agent.calls}
    for node in forest.nodes:
        if node.parent is None or node.completion.index:
            continue
        call_id = node.captured.call.call_id
        earlier = forest.nodes[node.parent].captured.call.call_id
        own, other = owners[call_id], owners[earlier]
        # An agent may begin with what its parent knew; after that it goes on from itself.
        begins = own.calls[0] == call_id and own.parent in (None, other.name)
        if own is not other and not begins:
            said = f"its headers name the agent {own.name}, its tokens go on from {earlier} of {other.name}"
            yield Finding(Code.LINEAGE_DISAGREES, call_id, said)
    known = {agent.name: agent for agent in owners.values()}
    for agent in known.values():
        if agent.parent is not None and agent.parent not in known:
            said = f"its headers say that {agent.parent} made it, of which no call is recorded here"
            yield Finding(Code.LINEAGE_DISAGREES, agent.calls[0], said)
    yield from _circles(known)


def _circles(known: Mapping[str, Agent]) -> Iterator[Finding]:
    """Agents that made each other, so that none of them can have been the first."""
    settled: set[str] = set()
    for agent in known.values():
        path: dict[str, Agent] = {}
        above: Agent | None = agent
        while above is not None and above.name not in path and above.name not in settled:
            path[above.name] = above
            above = None if above.parent is None else known.get(above.parent)
        settled.update(path)
        if above is not None and above.name in path:
            names = list(path)[list(path).index(above.name) :]
            said = f"headers say that each was made by the next: {', '.join([*names, above.name])}"
            yield Finding(Code.LINEAGE_DISAGREES, above.calls[0], said)
