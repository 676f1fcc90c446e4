"""Writes gpt-oss's vocabulary in the form that openai-harmony reads; standard library only.

    python -m tests.models.harmony_vocabulary TOKENIZER_JSON FOLDER

openai-harmony refuses a file whose digest is not that of OpenAI's own, so what comes out is known to be right.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

NAME = "o200k_base.tiktoken"


def byte_of() -> dict[str, int]:
    """The bytes that the characters of a byte-level vocabulary stand for: printable ones for themselves."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


def write(tokenizer: Path, folder: Path) -> None:
    """Each token's bytes and its id, a line each, by id."""
    vocabulary: dict[str, int] = json.loads(tokenizer.read_text())["model"]["vocab"]
    bytes_of = byte_of()
    with (folder / NAME).open("wb") as out:
        for token, id in sorted(vocabulary.items(), key=lambda entry: entry[1]):
            out.write(base64.b64encode(bytes(bytes_of[char] for char in token)) + f" {id}\n".encode())


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
