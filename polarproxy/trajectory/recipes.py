"""A harness's recipe (`harnesses/<name>.toml`): how it is installed and run, and how its calls are told apart. Data, read
strictly.

    format = 1
    name = "qwen-code"
    version = "0.24.4"
    dialect = "chat"

    [start]
    command = ["qwen", "-p", "{instruction}"]
    environment = { OPENAI_BASE_URL = "{base_url}/v1", OPENAI_API_KEY = "{api_key}", OPENAI_MODEL = "{model}" }

    [[recognised_by]]
    header = "user-agent"
    starts = "QwenCode/"

    [[kinds]]
    kind = "compaction"
    what = "a summary that takes the place of the history"
    last = "You are the component that"

All conditions of a rule must hold, and the first rule that holds decides. Texts are told by their first five words, of
which a digest is stored with each call, so that rules work where no request bodies are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.errors import BadSettings
from polarproxy.model import OPENING_WORDS, CallKind, Dialect, opening
from polarproxy.model.explaining import explained
from polarproxy.model.harness import Check, End, Install, Start

if TYPE_CHECKING:
    from polarproxy.model import Call


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What must be true of a call. None, or empty: anything."""

    header: str | None = None
    """Name of a header that it has, in lower case."""
    starts: str | None = None
    """With what the header begins."""
    contains: str | None = None
    """What the header contains."""
    tools: bool | None = None
    """Whether it offers any tool."""
    offers: tuple[str, ...] = ()
    """Tools that it offers, beside others."""
    only: str | None = None
    """The one tool that it offers."""
    json: bool | None = None
    """Whether it wants JSON."""
    streamed: bool | None = None
    system: str | None = None
    """The first five words of its system prompt."""
    last: str | None = None
    """The first five words of the last text of its last message."""

    def __post_init__(self) -> None:
        for name, text in (("system", self.system), ("last", self.last)):
            if text is not None and len(text.split()) != OPENING_WORDS:
                raise ValueError(f"`{name}` takes the first {OPENING_WORDS} words of a text, not {text!r}")
        if self.header is None and (self.starts is not None or self.contains is not None):
            raise ValueError("`starts` and `contains` speak of a `header`")

    @property
    def says_nothing(self) -> bool:
        """Whether it would hold for every call."""
        asked = (self.header, self.tools, self.only, self.json, self.streamed, self.system, self.last)
        return not self.offers and all(value is None for value in asked)

    @property
    def is_general(self) -> bool:
        """Whether it would hold for other programs' calls too: it names no header, no tool and no words."""
        return not self.offers and all(value is None for value in (self.header, self.only, self.system, self.last))

    def holds(self, call: Call) -> bool:
        """Whether it is true of this call. What is not known of a call is not true of it."""
        return self._header(call) and self._shape(call) and self.streamed in (None, call.streamed)

    def _header(self, call: Call) -> bool:
        if self.header is None:
            return True
        value = dict(call.headers).get(self.header)
        return value is not None and value.startswith(self.starts or "") and (self.contains or "") in value

    def _shape(self, call: Call) -> bool:
        asked = (self.tools, self.only, self.json, self.system, self.last)
        if not self.offers and all(value is None for value in asked):
            return True
        shape = call.shape
        return (
            shape is not None
            and self.tools in (None, bool(shape.tools))
            and set(self.offers) <= set(shape.tools)
            and self.only in (None, *(shape.tools if len(shape.tools) == 1 else ()))
            and self.json in (None, shape.wants_json)
            and (self.system is None or opening(self.system) == shape.system_opening)
            and (self.last is None or opening(self.last) == shape.last_opening)
        )


class Rule(Condition, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a call is for when the conditions hold."""

    kind: CallKind
    what: str
    """What such a call does, for people: `a commit message`."""

    def __post_init__(self) -> None:
        Condition.__post_init__(self)
        if self.says_nothing:
            raise ValueError(f"the rule for {self.what!r} has no condition")


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One harness."""

    format: Literal[1]
    name: str
    version: str
    """The version of the harness that this was read off and tried with."""
    about: str = ""
    """What it is, in one sentence."""
    dialect: Dialect | None = None
    """What it speaks to the model. None: it may be anything."""
    install: Install | None = None
    """None: nothing, it is there."""
    start: Start | None = None
    """None: the recipe only tells calls apart."""
    end: End = End()
    check: Check | None = None
    """None: it is not tried out."""
    quirks: tuple[str, ...] = ()
    """What a user should know, each in one sentence."""
    recognised_by: tuple[Condition, ...] = ()
    """Any of these shows that a session is of this harness, where nobody says which it is."""
    kinds: tuple[Rule, ...] = ()
    """How its calls are told apart."""

    def __post_init__(self) -> None:
        if any(condition.says_nothing for condition in self.recognised_by):
            raise ValueError("a harness cannot be recognised by nothing")

    def signed(self, call: Call) -> bool:
        """Whether this call carries a header by which the harness is recognised: then the harness made it."""
        return any(condition.header is not None and condition.holds(call) for condition in self.recognised_by)

    def recognises(self, call: Call) -> bool:
        """Whether this call shows that the session is of this harness."""
        return any(condition.holds(call) for condition in self.recognised_by)


def read_recipe(text: bytes, where: str) -> Recipe:
    """The recipe of a file's bytes; raises `BadSettings` naming `where` and what is wrong."""
    try:
        return msgspec.toml.decode(text, type=Recipe)
    except RecursionError as error:
        raise BadSettings(f"{where} is not a recipe: it is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{where} is not a recipe: {explained(error, Recipe)}") from error
