"""Placeholders in recipes: `{instruction}` is filled in, `{{instruction}}` stands for the word in braces itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from polarproxy.errors import BadSettings, InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polarproxy.trajectory.recipes import Recipe

_PLACE = re.compile(r"\{\{(\w+)\}\}|\{([a-z_]+)\}")
_PLAIN = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a run fills in, each by its name."""

    instruction: str
    base_url: str
    """The proxy's, without `/v1` and without a slash at the end."""
    api_key: str
    """The session's key."""
    model: str
    session_id: str
    context: int
    """Tokens of the engine's context."""
    compact_at: int
    """Tokens of a conversation after which it should be compacted: four fifths of the context."""
    output: int
    """Most tokens of one answer."""
    python: str
    """A Python interpreter with what polarproxy itself has."""
    folder: str
    """Where the files lie that come with the recipe."""
    home: str
    work: str

    def __post_init__(self) -> None:
        # They stand in strings of JSON and TOML, and nothing in there escapes them.
        for name in ("base_url", "api_key", "model", "session_id"):
            text = getattr(self, name)
            if not _PLAIN.fullmatch(text) or "\\" in text or '"' in text:
                raise InvalidValue(f"{name} has a character that no configuration file can hold: {text!r}")

    def fill(self, text: str) -> str:
        """The text with every placeholder filled in."""
        return _PLACE.sub(lambda found: f"{{{found[1]}}}" if found[1] else str(getattr(self, found[2])), text)


PLACEHOLDERS = tuple(field.name for field in fields(Values))


def check_recipe(recipe: Recipe, where: str) -> None:
    """Raises `BadSettings` for a placeholder that nobody fills in, and for a command that never sees its task."""
    if recipe.start is None:
        return
    texts = dict(_texts(recipe))
    for place, text in texts.items():
        for found in _PLACE.finditer(text):
            if found[2] and found[2] not in PLACEHOLDERS:
                raise BadSettings(
                    f"{where}: {place} has {{{found[2]}}}, which nothing fills in; write {{{{{found[2]}}}}} for the word in"
                    f" braces, or one of {', '.join(PLACEHOLDERS)}"
                )
    if not any("{instruction}" in text for text in texts.values()):
        raise BadSettings(f"{where}: nothing in [start] has {{instruction}}, so the harness would never see its task")


def uses(recipe: Recipe, placeholder: str) -> bool:
    """Whether anything in it is filled in with that."""
    found = (found for _, text in _texts(recipe) for found in _PLACE.finditer(text))
    return any(each[2] == placeholder for each in found)


def _texts(recipe: Recipe) -> Iterator[tuple[str, str]]:
    start = recipe.start
    if start is None:
        return
    for name, parts in (("command", start.command), ("resume", start.resume)):
        yield from ((f"{name}[{number}]", part) for number, part in enumerate(parts))
    yield "stdin", start.stdin
    for name, table in (("environment", start.environment), ("files", start.files)):
        yield from ((f"{name}.{key}", text) for key, text in table.items())
