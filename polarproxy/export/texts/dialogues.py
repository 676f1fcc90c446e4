"""Branches as dialogues: the messages that were said along one token sequence, and which of them the model sampled there.

A dialogue is what the branch's last request repeats, and the reply to it. Each of the branch's turns is the assistant's
message behind the messages of its own request: since the later prompt holds its tokens, the message there is what was
sampled. Any other message of an assistant was written by the client, or sampled in another context.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from polarproxy.export.texts.replies import merged, same_meaning, spelled
from polarproxy.wire.neutral.meaning import Meanings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polarproxy.export.format import Reading
    from polarproxy.export.texts.replies import Spelled
    from polarproxy.model import Call
    from polarproxy.trajectory.branches import Branch, Turn
    from polarproxy.trajectory.forest import Forest, Node
    from polarproxy.wire.neutral.request import Message, Request, Tool


class Unread(StrEnum):
    """Why a branch is no dialogue."""

    REQUEST = "request_not_readable"
    """Its last request was not kept, or cannot be read."""
    REPLY = "reply_not_readable"
    """Its last reply is in a markup that is not understood, or in tokens without a spelling, and no request repeats it."""
    PREFILL = "prefilled_reply"
    """The client wrote the beginning of the last reply."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message."""

    message: Message
    turn: Turn | None = None
    """The turn of the branch that sampled it. None: the client said it."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A branch as messages."""

    branch: Branch
    lines: tuple[Line, ...]
    """The last one is the reply of the last turn that can be read."""
    tools: tuple[Tool, ...]
    """What the model could call in that turn."""

    @property
    def trained(self) -> int:
        """How many of its lines are turns that are trained."""
        return sum(line.turn is not None and line.turn.trained for line in self.lines)

    @property
    def opening(self) -> tuple[Message, ...]:
        """What was said before the first turn of the branch."""
        first = next(place for place, line in enumerate(self.lines) if line.turn is not None)
        return tuple(line.message for line in self.lines[:first])


class Dialogues:
    """Reads the dialogues of one session; requests and replies are read once each."""

    def __init__(self, forest: Forest, reading: Reading) -> None:
        self._forest, self._reading = forest, reading
        self._requests: dict[str, Request | None] = {}
        self._spellings: dict[str, Mapping[int, bytes]] = {}
        self._heads: dict[str, list[bytes]] = {}
        self._told: dict[bytes, list[tuple[int, Message]]] | None = None

    def of(self, branch: Branch) -> Dialogue | Unread:
        """A branch as a dialogue as far as it can be read, or why not even its first turn can be."""
        why = Unread.REQUEST
        for last in reversed(branch.turns):
            request = self.request(last.node.captured.call)
            reply = None if request is None else self.reply(last.node)
            if request is None:
                why = Unread.REQUEST
            elif request.messages and request.messages[-1].role == "assistant":
                why = Unread.PREFILL
            elif reply is None:
                why = Unread.REPLY
            else:
                return self._dialogue(branch, last, request, reply)
        return why

    def _dialogue(self, branch: Branch, last: Turn, request: Request, reply: Message) -> Dialogue:
        heads = self._prefixes(last.node.captured.call)
        earlier = branch.turns[: branch.turns.index(last)]
        turns = {place: turn for turn in earlier if (place := self._place(turn, request, heads)) is not None}
        lines = [self._line(message, turns.get(place)) for place, message in enumerate(request.messages)]
        return Dialogue(branch, (*lines, Line(reply, last)), request.tools)

    def reply(self, node: Node) -> Message | None:
        """What the model said in a completion. None: nothing tells."""
        call = node.captured.call
        request = self.request(call)
        own = spelled(node, request, self._of_model(call.served_model))
        if own is None:
            return None
        told = self._told_of(node, own) if request is not None else None
        if told is not None:
            return merged(told, own)
        return own.reply() if own.understood else None

    def begins_with(self, dialogue: Dialogue, call: Call) -> bool:
        """Whether a dialogue goes on from what a call asked: its first messages mean the same."""
        last = next(line.turn for line in reversed(dialogue.lines) if line.turn is not None)
        asked, said = self._prefixes(call), self._prefixes(last.node.captured.call)
        return len(asked) <= len(said) and said[len(asked) - 1] == asked[-1]

    def _line(self, message: Message, turn: Turn | None) -> Line:
        if turn is None:
            return Line(message)
        call = turn.node.captured.call
        return Line(merged(message, spelled(turn.node, self.request(call), self._of_model(call.served_model))), turn)

    def _place(self, turn: Turn, last: Request, heads: Sequence[bytes]) -> int | None:
        """Where the last request repeats the reply of a turn. None: nowhere that can be proved."""
        call = turn.node.captured.call
        own = self.request(call)
        if own is None or (own.messages and own.messages[-1].role == "assistant"):
            return None
        place = len(own.messages)
        if place >= len(last.messages) or last.messages[place].role != "assistant":
            return None
        if self._prefixes(call)[place] == heads[place]:
            return place
        # The engine was told the same tokens, so the client's own words differ where the engine does not look.
        said = spelled(turn.node, own, self._of_model(call.served_model))
        return place if said is not None and said.says(last.messages[place]) else None

    def _told_of(self, node: Node, own: Spelled) -> Message | None:
        """The reply as a later request repeats it behind the same messages, if the tokens bear it out."""
        call = node.captured.call
        repeats = self._repeats().get(self._prefixes(call)[-1], ())
        after = [message for ordinal, message in repeats if ordinal > call.ordinal]
        if own.understood:
            return next((message for message in after if same_meaning(message, own)), None)
        return next((message for message in after if own.says(message)), None)

    def _repeats(self) -> Mapping[bytes, Sequence[tuple[int, Message]]]:
        """The assistant's messages of all requests, by the digest of what stands before them."""
        if self._told is None:
            self._told = {}
            for call in _calls(self._forest.nodes):
                request = self.request(call)
                if request is None:
                    continue
                for place, message in enumerate(request.messages):
                    if message.role == "assistant":
                        head = self._prefixes(call)[place]
                        self._told.setdefault(head, []).append((call.ordinal, message))
        return self._told

    def _prefixes(self, call: Call) -> list[bytes]:
        """Digests of what the first 0, 1, … all messages of a readable request mean."""
        if call.call_id not in self._heads:
            request = self.request(call)
            chain, meanings = hashlib.blake2b(digest_size=16), Meanings()
            found = [chain.digest()]
            for message in () if request is None else request.messages:
                chain.update(meanings.message(message))
                found.append(chain.digest())
            self._heads[call.call_id] = found
        return self._heads[call.call_id]

    def request(self, call: Call) -> Request | None:
        """What a call asked. None: it was not kept, or cannot be read."""
        if call.call_id not in self._requests:
            self._requests[call.call_id] = self._reading.request(call)
        return self._requests[call.call_id]

    def _of_model(self, model: str | None) -> Mapping[int, bytes]:
        name = model or ""
        if name not in self._spellings:
            self._spellings[name] = self._reading.spellings(name)
        return self._spellings[name]


def _calls(nodes: Iterable[Node]) -> list[Call]:
    """The calls of the forest by arrival, each once."""
    return list({node.captured.call.call_id: node.captured.call for node in nodes}.values())
