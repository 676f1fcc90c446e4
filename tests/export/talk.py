"""Sessions as an engine would record them, in any dialect: a token a byte, and a chat template that shows all that is said."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Engine

from polarproxy.model import Call, CallKind, CallStatus, CapturedCall, Dialect, FinishReason, Reward, Session
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from polarproxy.wire.bedrock.write_request import encode_request as write_bedrock
from polarproxy.wire.chat.request import encode_request as write_chat
from polarproxy.wire.gemini.write_request import encode_request as write_gemini
from polarproxy.wire.messages.request import encode_request as write_messages
from polarproxy.wire.neutral.request import (
    Encoded,
    Message,
    Part,
    Request,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from polarproxy.wire.responses.request import encode_request as write_responses
from tests.trajectory.build import WHEN, Said, call

SECONDS = 30.0

END = 256
TEXTS: Mapping[int, bytes] = {**{byte: bytes([byte]) for byte in range(256)}, END: b"<|im_end|>"}
TOOL = Tool("bash", "Runs it.", b'{"type": "object",\r\n  "properties": {"c": {"type": "string"}}}')


def _spoken(request: Request) -> bytes:
    return json.dumps({"model": request.model, "prompt": _plain(request.messages[-1].parts)}).encode()


WRITERS: Mapping[Dialect, tuple[str, Callable[[Request], Encoded | bytes]]] = {
    Dialect.CHAT: ("/v1/chat/completions", write_chat),
    Dialect.RESPONSES: ("/v1/responses", write_responses),
    Dialect.MESSAGES: ("/v1/messages", write_messages),
    Dialect.GEMINI: ("/v1beta/models/tiny:generateContent", write_gemini),
    Dialect.BEDROCK: ("/model/tiny/converse", write_bedrock),
    Dialect.COMPLETIONS: ("/v1/completions", _spoken),
}


def _plain(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def assistant(parts: Sequence[Part]) -> str:
    """A reply as the model writes it."""
    said = ""
    for part in parts:
        match part:
            case Thinking():
                said += f"<think>\n{part.text}\n</think>\n\n"
            case Text():
                said += part.text
            case ToolUse():
                said += (
                    f'\n<tool_call>\n{{"name": {json.dumps(part.name)}, "arguments": {part.arguments}}}\n</tool_call>'
                )
            case _:
                raise AssertionError(part)
    return said


def _shown(message: Message) -> list[int]:
    if message.role == "assistant":
        return [*f"<|im_start|>assistant\n{assistant(message.parts)}".encode(), END, 10]
    results = [_plain(part.content) for part in message.parts if isinstance(part, ToolResult)]
    said = "\n".join(results) if results else _plain(message.parts)
    return [*f"<|im_start|>{message.role}\n{said}".encode(), END, 10]


def prompt(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
    """The tokens that the engine makes of a conversation."""
    head = "".join(tool.name for tool in tools).encode()
    return [*head, *(token for message in messages for token in _shown(message)), *b"<|im_start|>assistant\n"]


@dataclass
class Talk:
    """One session of a harness that repeats everything, in one dialect."""

    dialect: Dialect = Dialect.CHAT
    tools: tuple[Tool, ...] = (TOOL,)
    session_id: str = "s"
    messages: list[Message] = field(default_factory=list)
    calls: list[CapturedCall] = field(default_factory=list)

    def say(self, role: str, *parts: Part | str) -> None:
        """Something that the client adds."""
        said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        self.messages.append(Message(role, said))  # type: ignore[arg-type]

    def ask(self, *parts: Part, delivered: bool = True, kind: CallKind = CallKind.MAIN, keep: bool = True) -> Call:
        """The model answers. `keep`: whether the harness takes the answer into its history."""
        request = Request("tiny", tuple(self.messages), tools=self.tools, max_tokens=100)
        path, write = WRITERS[self.dialect]
        written = write(request)
        body = written if isinstance(written, bytes) else written.body
        finish = FinishReason.TOOL_CALLS if any(isinstance(part, ToolUse) for part in parts) else FinishReason.STOP
        if self.dialect is Dialect.COMPLETIONS:
            ids, sampled = [*_plain(self.messages[-1].parts).encode()], [*_plain(parts).encode(), END]
        else:
            ids, sampled = prompt(self.messages, self.tools), [*assistant(parts).encode(), END]
        made = replace(
            call(len(self.calls), ids, Said(sampled, finish=finish), session_id=self.session_id),
            dialect=self.dialect,
            path=f"/s/{self.session_id}{path}",
            request_body=body,
            status=CallStatus.COMPLETED,
        )
        self.calls.append(CapturedCall(made, delivered, kind))
        if keep:
            self.messages.append(Message("assistant", parts))
        return made


def record(engine: Engine, talk: Talk, session: Session, reward: Reward | None = None) -> None:
    """Stores a session as a proxy does."""
    repository, writer = Repository(engine), Writer(engine)
    repository.add_session(session)
    for captured in talk.calls:
        own = replace(captured.call, session_id=session.session_id)
        writer.submit(NewCall(own, session, TEXTS)).result(SECONDS)
        if captured.delivered:
            writer.submit(Fact(own.call_id, WHEN, DELIVERED, "yes")).result(SECONDS)
    writer.close()
    if reward is not None:
        repository.add_reward(session.session_id, reward)


def answered(session_id: str, *answers: str, dialect: Dialect = Dialect.CHAT, question: str = "How many?") -> Talk:
    """A question, a tool call whose arguments are spelled in an odd way, its result, and an answer, again and again."""
    talk = Talk(dialect, session_id=session_id)
    talk.say("system", "Be good.")
    talk.say("user", question)
    for number, answer in enumerate(answers):
        talk.ask(Text("I look."), ToolUse(f"t{number}", "bash", '{"c":  "ls \\u00e9"}'))
        name = "bash" if dialect is Dialect.GEMINI else None
        talk.say("tool", ToolResult(f"t{number}", (Text("3 files"),), name=name))
        talk.ask(Text(answer))
        talk.say("user", "Sure?")
    return talk


def asked_again(
    session_id: str = "s", delivered: bool = True, goes_on: bool = True, finish: FinishReason = FinishReason.STOP
) -> Talk:
    """A question whose first answer the harness had, and did not go on from."""
    talk = Talk(tools=(), session_id=session_id)
    talk.say("user", "1+1?")
    talk.ask(Text("3"), keep=False, delivered=delivered)
    first = talk.calls[0].call
    ended = replace(first.completions[0], finish_reason=finish)
    talk.calls[0] = replace(talk.calls[0], call=replace(first, completions=(ended,)))
    talk.ask(Text("2"))
    if goes_on:
        talk.say("user", "Good.")
        talk.ask(Text("Thanks."))
    return talk
