"""A model family's tokenizer and chat template, used as vLLM 0.32 uses them.

Source: vLLM 0.32, `renderers/chat_utils.py` (content of parts joined with line breaks, null content as empty text, arguments
parsed), `renderers/hf.py`, transformers' `render_jinja_template`, and for gpt-oss `parser/harmony_utils.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import jinja2
import jinja2.ext
import jinja2.sandbox
import msgspec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from polarproxy.engine.exact.conversation import rendered_ids
from polarproxy.engine.exact.probe import probe, read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from polarproxy.engine.exact.conversation import Settings
    from polarproxy.engine.exact.template import Refused as RefusedTemplate
    from polarproxy.engine.exact.template import TemplateFacts
    from polarproxy.model import TokenIds

Json = dict[str, Any]


class Refused(Exception):
    """The engine would answer with a 400."""


class Renderer(Protocol):
    """What a model family does with conversations."""

    name: str

    def ids(self, body: Json) -> list[int]:
        """The prompt of a chat request; raises `Refused`."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text, markers of turns included."""
        ...

    def plain(self, text: str) -> list[int]:
        """The ids of the content of a message, in which engines may or may not take the text of markers for markers."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, markers of turns included."""
        ...


def render(renderer: Renderer, body: bytes) -> TokenIds:
    """What the engine's render route answers to a body."""
    return rendered_ids(msgspec.json.encode({"token_ids": renderer.ids(json.loads(body))}))


def probed(renderer: Renderer, settings: Settings) -> TemplateFacts | RefusedTemplate:
    """What the probe finds out about a template, where the engine refuses what the template refuses."""
    asked = probe(settings)
    answers: list[TokenIds | None] = []
    for body in asked.bodies:
        try:
            answers.append(render(renderer, body))
        except Refused:
            answers.append(None)
    return read(asked, answers)


def _content(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part if isinstance(part, str) else str(part["text"]) for part in content)


def _arguments(text: Any) -> Any:
    if not isinstance(text, str):
        return text or {}
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def conversation(messages: Sequence[Json]) -> list[Json]:
    """The messages as vLLM hands them to a template whose content is a string."""
    parsed: list[Json] = []
    for message in messages:
        said: Json = {"role": message["role"], "content": _content(message.get("content"))}
        if message["role"] == "assistant":
            calls = [
                call | {"function": call["function"] | {"arguments": _arguments(call["function"].get("arguments"))}}
                for call in message.get("tool_calls") or ()
            ]
            said |= {"tool_calls": calls} if calls else {}
            if message.get("reasoning") is not None:
                said |= {"reasoning": message["reasoning"], "reasoning_content": message["reasoning"]}
        if "tool_call_id" in message:
            said["tool_call_id"] = message["tool_call_id"]
        if isinstance(message.get("name"), str):
            said["name"] = message["name"]
        parsed.append(said)
    return parsed


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


class Templated:
    """A `tokenizer.json` and a Jinja template, as in a model's repository."""

    def __init__(self, name: str, tokenizer: Tokenizer, config: Json) -> None:
        self.name = name
        self._tokenizer = tokenizer
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        self._template = environment.from_string(config["chat_template"])
        tokens = {name: config.get(name) for name in ("bos_token", "eos_token", "pad_token")}
        self._tokens = {
            name: token["content"] if isinstance(token, dict) else token
            for name, token in tokens.items()
            if token is not None
        }

    @classmethod
    def load(cls, folder: Path) -> Templated:
        """From a model's repository."""
        config = json.loads((folder / "tokenizer_config.json").read_text())
        return cls(folder.name, Tokenizer.from_file(str(folder / "tokenizer.json")), config)

    def ids(self, body: Json) -> list[int]:
        try:
            text = self._template.render(
                messages=conversation(body["messages"]),
                tools=body.get("tools") or None,
                documents=body.get("documents"),
                **({"add_generation_prompt": body.get("add_generation_prompt", True)} | self._tokens),
                **(body.get("chat_template_kwargs") or {}),
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise Refused(str(error)) from error
        return self.encode(text)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def plain(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))


def toy(template: str, marks: Sequence[str]) -> Templated:
    """A template over a tokenizer of single bytes and the given marks of turns; needs nothing from anywhere."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: id for id, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(marks))
    return Templated("toy", tokenizer, {"chat_template": template})
