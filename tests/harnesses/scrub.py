"""Replaces what others wrote in recorded requests, and what tells this machine, while their shapes stay.

Keys, words of the APIs (`kept`), names of tools and our own texts stay. Everything else is replaced: free text by text of
ours, ids by made-up ones of the same shape. One original has one replacement in all requests of a `Scrubber`, so what
repeats still repeats, and what names something still names it.
"""

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from polarproxy.wire.neutral.seal import unseal
from tests.harnesses.kept import HEADERS, KEPT

WORDS = (
    "a", "the", "this", "each", "one", "some", "any", "and", "or", "but", "when", "then", "with", "for", "from", "into",
    "agent", "file", "folder", "command", "answer", "question", "tool", "result", "name", "value", "list", "step", "note",
    "reads", "writes", "gives", "takes", "finds", "shows", "keeps", "ends", "is", "may", "must",
    "short", "long", "new", "old", "plain", "same", "other", "first", "last",
)  # fmt: skip
LONGEST = 240
"""Characters of a replacement; shorter originals are replaced by about as much as they were."""

PATTERN, GRAMMAR = "^[a-z]+$", "start: LINE\nLINE: /.+/"
"""In place of regular expressions and grammars of others."""
_SYNTAX = {"pattern": PATTERN, "definition": GRAMMAR}
_NAMES = frozenset({"required", "propertyOrdering"})
"""Members that list names of other members."""

_TOKEN = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?<![0-9a-f])(?P<time>1[0-9]{12})(?![0-9a-f])"
    r"|(?P<call>c[0-9a-f]{27})"
    r"|(?P<hex>(?<![0-9a-zA-Z])[0-9a-f]{12,})"
    r"|(?P<word>(?<=\bses_)[0-9A-Za-z]{20,})"
)
_ID = re.compile(r"[\w.:-]*")
_IDENTIFIER = re.compile(r"[A-Za-z][\w.-]{0,63}")
_KEY = re.compile(r"[A-Za-z_$][\w.$-]{0,63}")
_PATH = re.compile(r"/[\w./-]*")
_BILLING = re.compile(r"x-anthropic-billing-header:(?: [a-z_]+=[\w.-]+;)+")
_SYSTEM = re.compile(r"\([^();]*; x86_64\)")
_STYLES: tuple[dict[str, Any], ...] = (
    {"separators": (",", ":")},
    {},
    {"indent": 2},
)


def tokens(text: str) -> Iterator[str]:
    """The ids and times inside a text."""
    return (found[0] for found in _TOKEN.finditer(text))


def is_id(text: str) -> bool:
    """Whether it is nothing but an id, maybe with a prefix and a suffix."""
    return _ID.fullmatch(text) is not None and _TOKEN.search(text) is not None


def is_key(text: str) -> bool:
    """Whether a member's name is one that a program gave it."""
    return _KEY.fullmatch(text) is not None and not is_id(text)


def is_machine_text(text: str) -> bool:
    """Whether it is text for programs, which says nothing of its own."""
    return not text.strip() or text in (PATTERN, GRAMMAR) or _BILLING.fullmatch(text) is not None


def parsed(text: str) -> Any:
    """The object or array that a text spells. None: it spells none."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def sealed(text: str) -> str | None:
    """The reasoning in a token of ours, in either of the two forms that it travels in. None: it is not one."""
    try:
        inner = b64decode(text, validate=True).decode()
    except (Base64Error, ValueError):
        inner = text
    return unseal(inner)


_PROSE = re.compile(r"Text [0-9]+[.:](?:[ \n](?P<said>[^\[]*?))?(?: \[(?P<ids>[^\]]*)\])?")
_MADE = re.compile(r"(?:/home/user/)?name_[0-9]+")


def is_ours(text: str) -> bool:
    """Whether it is a replacement of a text, of a name or of a path."""
    if _MADE.fullmatch(text):
        return True
    prose = _PROSE.fullmatch(text)
    if prose is None or not all(map(is_id, (prose["ids"] or "").split())):
        return False
    return set(re.findall(r"[^\s.]+", (prose["said"] or "").lower())) <= set(WORDS)


def _prose(number: int, original: str) -> str:
    if len(original) < 20:
        return f"Text {number}."
    chosen, state, sentences, length = iter(_choices(number)), number, list[str](), 0
    while length < min(len(original), LONGEST) - 20:
        state = state * 5 + 3
        sentences.append(" ".join(islice(chosen, 6 + state % 5)).capitalize() + ".")
        length += len(sentences[-1]) + 1
    return f"Text {number}: " + ("\n" if "\n" in original else " ").join(sentences)


def _choices(state: int) -> Iterable[str]:
    while True:
        state = (state * 1_103_515_245 + 12_345) % 2**31
        yield WORDS[(state >> 8) % len(WORDS)]


class Scrubber:
    """For all requests of one agent. `learn` must have seen everything before anything is replaced."""

    def __init__(self, own: frozenset[str]) -> None:
        self._kept = KEPT | own
        self._own = own
        self._ids: set[str] = set()
        self._replaced: dict[str, str] = {}
        self._numbers: dict[str, int] = {}

    def learn(self, value: Any) -> None:
        """Remembers the ids, which may also stand in the middle of texts."""
        if isinstance(value, dict):
            for name, each in value.items():
                self.learn(name)
                self.learn(each)
        elif isinstance(value, list):
            for each in value:
                self.learn(each)
        elif isinstance(value, str):
            inner = parsed(value)
            if inner is not None:
                self.learn(inner)
            elif is_id(value):
                self._ids.update(tokens(value))

    def value(self, value: Any, member: str = "") -> Any:
        """Any JSON. `member`: the name that it is a value of."""
        if isinstance(value, dict):
            return {name if is_key(name) else self.text(name): self.value(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, member) for each in value]
        if isinstance(value, str):
            return self.text(value, member)
        if isinstance(value, int) and re.fullmatch(r"1[0-9]{12}", str(value)):
            return int(self._token(str(value)))
        return value

    def header(self, name: str, value: str) -> str:
        """A header's value."""
        return _SYSTEM.sub("(Linux 1.0; x86_64)", value) if name.lower() in HEADERS else self.text(value)

    def text(self, text: str, member: str = "") -> str:
        """A text. `member`: the name that it is a value of."""
        if text in self._kept or is_machine_text(text) or (member in _NAMES and is_key(text)):
            return text
        if sealed(text) in self._own:
            return text
        inner = parsed(text)
        if inner is not None:
            for style in _STYLES:
                if json.dumps(inner, ensure_ascii=False, **style) == text:
                    return json.dumps(self.value(inner, member), ensure_ascii=False, **style)
        if is_id(text):
            return _TOKEN.sub(lambda found: self._token(found[0]), text)
        if member in _SYNTAX:
            return _SYNTAX[member]
        if text not in self._replaced:
            self._replaced[text] = self._made(text)
        return self._replaced[text]

    def _made(self, text: str) -> str:
        number = len(self._replaced) + 1
        if _PATH.fullmatch(text):
            return f"/home/user/name_{number}"
        if _IDENTIFIER.fullmatch(text):
            return f"name_{number}"
        named = dict.fromkeys(self._token(token) for token in tokens(text) if token in self._ids)
        return _prose(number, text) + (f" [{' '.join(named)}]" if named else "")

    def _token(self, token: str) -> str:
        """A made-up id of the same shape, by which of its kind it is."""
        found = _TOKEN.fullmatch(token)
        kind = "word" if found is None else str(found.lastgroup)
        number = self._numbers.setdefault(token, len(self._numbers) + 1)
        if kind == "uuid":
            return f"{number:08x}-0000-{token[14]}000-8000-{number:012x}"
        if kind == "time":
            return str(1_700_000_000_000 + number)
        return token[0] + f"{number:x}".zfill(len(token) - 1)
