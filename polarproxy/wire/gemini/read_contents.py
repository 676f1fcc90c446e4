"""From `contents` and `systemInstruction` to messages.

Contents of the model that follow each other are one message, as the API reads them; those of the user stay apart. Results of
calls stand before whatever else came in the same content, since chat templates want them right after the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.errors import BadRequest
from polarproxy.wire.gemini.calls import Calls
from polarproxy.wire.gemini.read_tools import engine_name
from polarproxy.wire.gemini.results import result_text
from polarproxy.wire.gemini.signature import standard_base64
from polarproxy.wire.gemini.turn import Turn
from polarproxy.wire.neutral.joining import joined
from polarproxy.wire.neutral.request import Media, Message, Text, ToolResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.wire.gemini.findings import Findings
    from polarproxy.wire.gemini.members import Members

_MODEL_ROLES = ("model", "assistant")
_USER_ROLES = ("user", "function", "tool")
_ANY_MIME = "application/octet-stream"


def read_system(request: Members, findings: Findings) -> list[Message]:
    """`systemInstruction`: a content, whatever its role, or a string; no message when there is none."""
    if request.holds_text("systemInstruction"):
        return [Message("system", (Text(request.text("systemInstruction") or ""),))]
    content = request.message("systemInstruction")
    if content is None:
        return []
    content.text("role")
    parts = _texts(content, findings)
    findings.lose_rest(content)
    return [Message("system", tuple(parts))] if parts else []


def _texts(content: Members, findings: Findings) -> list[Text]:
    texts = []
    for part in content.messages("parts") or ():
        text = part.text("text")
        if text is not None:
            texts.append(Text(text))
        findings.lose_rest(part)
    return texts


class Conversation:
    """The messages so far. `known_as`: the engine's name of each declared tool, by the client's."""

    def __init__(self, known_as: Mapping[str, str], findings: Findings) -> None:
        self._messages: list[Message] = []
        self._known_as = known_as
        self._findings = findings
        self._calls = Calls()
        self._turn: Turn | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that were read."""
        return joined(self._messages, ("tool",))

    def add(self, content: Members) -> None:
        """The next content; raises `BadRequest` for a member of the wrong type."""
        role = content.text("role") or "user"
        if role in _MODEL_ROLES:
            self._model(content)
        elif role == "system":
            self.end_turn()
            self._messages.append(Message("system", tuple(_texts(content, self._findings))))
        else:
            if role not in _USER_ROLES:
                self._findings.lose(content.at("role"), f"the role {role!r} is not of this API; taken for the user's")
            self.end_turn()
            self._user(content)
        self._findings.lose_rest(content)

    def end_turn(self) -> None:
        """Nothing more of the model comes before something else does."""
        if self._turn is not None and self._turn.parts:
            self._messages.append(Message("assistant", tuple(self._turn.parts)))
        self._turn = None

    def _model(self, content: Members) -> None:
        if self._turn is None:
            self._calls.new_turn()
            self._turn = Turn(self._findings, self._name_call)
        for part in content.messages("parts") or ():
            self._turn.add(part)

    def _name_call(self, given: str, name: str) -> tuple[str, str]:
        return self._calls.call(given, name), self._name(name)

    def _name(self, name: str) -> str:
        return self._known_as.get(name) or engine_name(name)

    def _user(self, content: Members) -> None:
        results: dict[ToolResult, None] = {}
        said: list[Text | Media] = []
        for part in content.messages("parts") or ():
            answer = part.message("functionResponse")
            if answer is not None:
                result = self._result(answer)
                # Gemini CLI sends each result twice when it resumes; the model is told once.
                if result in results:
                    self._findings.lose(answer.where, "the same result once more; left out")
                else:
                    results[result] = None
            else:
                said.extend(self._said(part))
            self._findings.lose_rest(part)
        if results:
            self._messages.append(Message("tool", tuple(results)))
        if said:
            self._messages.append(Message("user", tuple(said)))

    def _result(self, answer: Members) -> ToolResult:
        name = answer.text("name")
        call_id, answers = self._calls.result(answer.text("id") or "", name)
        if not answers:
            self._findings.lose(answer.where, "it answers no call of the model; sent to the engine all the same")
        text, is_error = result_text(answer.object("response"))
        content: list[Text | Media] = [] if text is None else [Text(text)]
        for part in answer.messages("parts") or ():
            media = read_media(part)
            content.extend([media] if media else [])
            self._findings.lose_rest(part)
        self._findings.lose_rest(answer)
        return ToolResult(call_id, tuple(content), is_error, None if name is None else self._name(name))

    def _said(self, part: Members) -> list[Text | Media]:
        text, media = part.text("text"), read_media(part)
        said: list[Text | Media] = [] if text is None else [Text(text)]
        return [*said, media] if media else said


def read_media(part: Members) -> Media | None:
    """The bytes or the address of a medium. None: the part has none."""
    blob = part.message("inlineData")
    if blob is not None:
        mime = blob.text("mimeType") or _ANY_MIME
        url = f"data:{mime};base64,{standard_base64(blob.text('data') or '')}"
        return Media(mime, url, blob.text("displayName"))
    file = part.message("fileData")
    if file is None:
        return None
    uri = file.text("fileUri")
    if uri is None:
        raise BadRequest(f"{file.at('fileUri')} is missing")
    return Media(file.text("mimeType") or _ANY_MIME, uri, file.text("displayName"))
