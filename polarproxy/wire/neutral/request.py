"""What a client asks of a model, in no provider's words.

Canonical form, which every decoder makes and every encoder expects: the results of tool calls stand in messages of the
role `tool`, all consecutive ones in one message; a system prompt is a message of the role `system`, wherever it stands.
JSON that a client wrote (schemas, unknown members) is carried as its bytes, so that spelling and order of keys survive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from polarproxy.model import Loss

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of the model."""

    text: str
    seal: str | None = None
    """The opaque token that came with it (signature, encrypted content), when it is not one of ours. None: ours, or none."""


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound, a film or a document."""

    mime: str
    """`image/png`; `image/*` where the dialect does not say which."""
    url: str
    """A `data:` URL with the bytes, or the address that the client gave."""
    name: str | None = None
    detail: str | None = None
    """OpenAI's `detail` of an image."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool by the model."""

    id: str
    """Empty where the dialect has none (Gemini)."""
    name: str
    """The name that the engine knows the tool by (`Tool.name`)."""
    arguments: str
    """JSON as text, exactly as it came: the sampled bytes, or what a harness sent back."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered."""

    id: str
    content: tuple[Text | Media, ...]
    is_error: bool = False
    name: str | None = None
    """The tool's name, where the dialect repeats it (Gemini)."""


Part: TypeAlias = Text | Thinking | Media | ToolUse | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `tool` holds `ToolResult`s only; `assistant` may hold `Thinking`, `Text`, `ToolUse` in any order."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    name: str
    """Unique in a request, `[A-Za-z0-9_-]+`: what the engine is told. For a tool in a namespace, `namespace__name`."""
    description: str | None = None
    parameters: bytes | None = None
    """JSON schema. None: no parameters were declared."""
    strict: bool | None = None
    kind: str = "function"
    """`function`, or the type of the client's dialect that was flattened into one (`custom`, `local_shell`)."""
    namespace: str | None = None
    """OpenAI Responses: the namespace it was declared in. None: none."""
    own_name: str | None = None
    """The name inside the namespace. None: `name`."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """How freely the model may choose a tool."""

    mode: Literal["auto", "none", "required", "named"]
    name: str | None = None
    """The tool of mode `named`."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """Structured output."""

    schema: bytes | None
    """JSON schema. None: any JSON object."""
    name: str = "output"
    description: str | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How the model is to think. None everywhere: as the model does by itself."""

    enabled: bool | None = None
    effort: Effort | None = None
    budget: int | None = None
    """At most so many tokens."""
    shown: bool | None = None
    """Whether the client wants to see it. None: it did not say."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of any dialect. None: the client did not say."""

    model: str | None
    messages: tuple[Message, ...]
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    n: int | None = None
    stop: tuple[str, ...] = ()
    output: OutputFormat | None = None
    reasoning: Reasoning | None = None
    stream_usage: bool = False
    """OpenAI Chat: whether the stream is to end with a chunk of usage. Other dialects always tell."""
    user: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    extra: dict[str, bytes] = field(default_factory=dict)
    """Members that have no place here, each as its JSON. They survive within a dialect; the ones that vLLM itself knows
    (`min_p`, `repetition_penalty`, `chat_template_kwargs`, …) are also sent to the engine, the others are a `Loss`."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A request as it was read, and what could not be carried."""

    request: Request
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A body as it is to be sent, and what could not be carried."""

    body: bytes
    losses: tuple[Loss, ...] = ()
