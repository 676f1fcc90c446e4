"""Tokenizers to play harnesses with: a toy one, and real byte-level BPEs where they lie at hand."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.fakes import toy_tokenizer

FOLDER = "POLARPROXY_TEST_TOKENIZERS"
"""Folder with the tokenizers of real models; `.ci/setup-tokenizers` makes it."""
MARKS = {
    "qwen3": {},
    "llama3_1": {"<|im_start|>": "<|start_header_id|>", "<|im_end|>": "<|eot_id|>"},
}
"""By tokenizer, its own special tokens for those that texts are written with. Llama's has none for `<think>`."""


@dataclass(frozen=True)
class Tongue:
    """A tokenizer in two functions."""

    name: str
    encode: Callable[[str], list[int]]
    """The canonical ids of a text, special tokens included."""
    token_bytes: Callable[[int], bytes]

    def pieces(self, *texts: str) -> list[int]:
        """The ids of texts that were sampled one after the other, which need not be those of the whole."""
        return [token for text in texts for token in self.encode(text)]

    def texts(self, *sequences: Iterable[int]) -> dict[int, bytes]:
        """The bytes of every token in these sequences."""
        return {token: self.token_bytes(token) for ids in sequences for token in set(ids)}

    def odd(self, text: str) -> list[int]:
        """Ids that spell a text, but are not its canonical ones."""
        return self.pieces(text[:1], text[1:2], text[2:])


def _encode_by_lines(text: str) -> list[int]:
    """A line break is a token of its own, as in real vocabularies, so a reply's first word is the same in any prompt."""
    return [token for part in re.split(r"(\n+)", text) for token in toy_tokenizer.encode(part)]


TOY = Tongue("toy", _encode_by_lines, toy_tokenizer.token_bytes)


@cache
def real(name: str) -> Tongue:
    """A tokenizer that a real model has; skips the test where there is none."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        pytest.skip(f"{FOLDER} is not set; .ci/setup-tokenizers prints it")
    tokenizer = Tokenizer.from_file(str(Path(folder) / name / "tokenizer.json"))
    added = {token: entry.content.encode() for token, entry in tokenizer.get_added_tokens_decoder().items()}
    alphabet = _byte_alphabet()

    def token_bytes(token: int) -> bytes:
        return added.get(token) or bytes(alphabet[letter] for letter in tokenizer.id_to_token(token) or "")

    def encode(text: str) -> list[int]:
        for written, own in MARKS[name].items():
            text = text.replace(written, own)
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return Tongue(name, encode, token_bytes)


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as a letter: printable ones as they are, the others as those from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


def tongue(name: str) -> Tongue:
    """By name: `toy`, or a real one."""
    return TOY if name == "toy" else real(name)


NAMES: Sequence[str] = ("toy", *MARKS)
