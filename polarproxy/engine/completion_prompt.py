"""The prompt of a request to `/v1/completions`, which may be a text, a list of token ids, or a list of several of either."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine.choice import is_null
from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from polarproxy.engine.capture import Fields

_list = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)
_LIST_OF_PROMPTS = re.compile(rb'\[\s*["\[]')


def only_prompt(fields: Fields) -> msgspec.Raw | None:
    """The one prompt of a request: a JSON string, or an array that should be one of ids.

    None: there are several prompts or none, it is embedded, or it is the engine's to refuse.
    """
    prompt = fields.get("prompt")
    if prompt is None or not is_null(fields.get("prompt_embeds")):
        return None
    if _LIST_OF_PROMPTS.match(prompt):
        prompts = _items(prompt)
        if len(prompts) != 1:
            return None
        prompt = prompts[0]
    return prompt if is_text(prompt) or memoryview(prompt)[0] == ord("[") else None


def is_text(prompt: msgspec.Raw) -> bool:
    """Whether a prompt is a text and not a list of ids."""
    return memoryview(prompt)[0] == ord('"')


def text_of(prompt: msgspec.Raw) -> str | None:
    """The text of a prompt; None when it is a list of ids or no valid text."""
    try:
        return _text.decode(prompt)
    except UNREADABLE:
        return None


def _items(prompt: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return _list.decode(prompt)
    except UNREADABLE:
        return []
