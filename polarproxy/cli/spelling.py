"""Tokens as text, for people: spelled as the engine spelled them when it sampled them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from polarproxy.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polarproxy.model import Call
    from polarproxy.store.repository import Repository

TRAINED = "bold green"
CONTEXT = "dim"


Tokenizer = Annotated[
    str | None,
    typer.Option(help="Folder or name of a Hugging Face tokenizer, to spell tokens that were never sampled."),
]


def spellings(repository: Repository, calls: Iterable[Call], tokenizer: str | None) -> dict[int, bytes]:
    """The spellings of these calls' token ids: those that the engine gave, and the rest by `tokenizer`, if there is one."""
    calls = list(calls)
    texts = {} if tokenizer is None else _by_tokenizer(tokenizer, calls)
    for model in {call.served_model for call in calls if call.served_model is not None}:
        texts |= repository.token_texts(model)
    return texts


def _by_tokenizer(name: str, calls: list[Call]) -> dict[int, bytes]:
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise BadSettings("transformers is missing; install it with: pip install 'polarproxy[tokenizers]'") from error
    try:
        decode = AutoTokenizer.from_pretrained(name).decode
    except (OSError, ValueError) as error:
        raise BadSettings(f"{name} is not a tokenizer: {error}") from error
    sequences = [call.prompt_token_ids for call in calls if call.prompt_token_ids is not None]
    return {token: decode([token]).encode() for sequence in sequences for token in set(sequence)}


def spell(ids: Iterable[int], texts: Mapping[int, bytes]) -> str:
    """The ids as text; one whose spelling is not known is shown as ⟨id⟩."""
    parts = [texts.get(token, f"⟨{token}⟩".encode()) for token in ids]
    return b"".join(parts).decode("utf-8", "replace")


def marked(text: str, *, trained: bool) -> Text:
    """Trained text between « and », so that it also shows where there are no colours."""
    return Text(f"«{text}»" if trained else text, style=TRAINED if trained else CONTEXT)
