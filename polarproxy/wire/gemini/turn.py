"""What a model said in one turn, from its parts; requests and replies hold the same ones.

Streams are often handed back in the pieces in which they came, so neighbouring texts are one, and so are neighbouring
thoughts. Reasoning that only a signature tells is put back before the part that carries the signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polarproxy.wire.gemini.signature import read_signature
from polarproxy.wire.neutral.arguments import from_object
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.wire.gemini.findings import Findings
    from polarproxy.wire.gemini.members import Members


class Turn:
    """One turn of the model. `name_call` gives a call its id and the name that the engine knows it by."""

    def __init__(self, findings: Findings, name_call: Callable[[str, str], tuple[str, str]]) -> None:
        self._parts: list[Thinking | Text | ToolUse] = []
        self._more: list[str] = []
        """Text that the last part goes on with."""
        self._findings = findings
        self._name_call = name_call

    @property
    def parts(self) -> list[Thinking | Text | ToolUse]:
        """The parts so far."""
        if self._more:
            last = self._parts[-1]
            assert isinstance(last, (Thinking, Text))
            self._parts[-1] = replace(last, text="".join((last.text, *self._more)))
            self._more.clear()
        return self._parts

    def add(self, part: Members) -> None:
        """The next part of the turn; raises `BadRequest` for a member of the wrong type."""
        text, thought = part.text("text"), part.flag("thought") or False
        signature = part.text("thoughtSignature")
        call = part.message("functionCall")
        if thought and text:
            self._think(text)
        if signature is not None:
            self._sign(signature)
        if text and not thought:
            self._say(text)
        if call is not None:
            self._call(call)
        if text is None and signature is None and call is None:
            self._leave_out(part)
        self._findings.lose_rest(part)

    def _think(self, text: str) -> None:
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Thinking) and last.seal is None:
            self._more.append(text)
        else:
            self.parts.append(Thinking(text))

    def _say(self, text: str) -> None:
        if self._parts and isinstance(self._parts[-1], Text):
            self._more.append(text)
        else:
            self.parts.append(Text(text))

    def _sign(self, signature: str) -> None:
        """A signature of ours is the whole reasoning, whatever became of the thought before it."""
        said = read_signature(signature)
        last = self.parts[-1] if self.parts else None
        if said.text is not None:
            sealed = Thinking(said.text)
        elif said.foreign is not None:
            open_thought = isinstance(last, Thinking) and last.seal is None
            sealed = Thinking(last.text if open_thought and isinstance(last, Thinking) else "", said.foreign)
        else:
            return
        if isinstance(last, Thinking) and (last.seal is None or sealed.seal is None):
            self.parts[-1] = sealed
        else:
            self.parts.append(sealed)

    def _call(self, call: Members) -> None:
        name = call.text("name")
        if name is None:
            self._findings.lose(call.where, "a call without a name was left out")
            return
        args = call.object("args")
        call_id, known_as = self._name_call(call.text("id") or "", name)
        self.parts.append(ToolUse(call_id, known_as, from_object(args or b"{}")))
        self._findings.lose_rest(call)

    def _leave_out(self, part: Members) -> None:
        if not any(True for _ in part.rest()):
            self._findings.lose(part.where, "an empty part was left out")
