"""A deterministic toy tokenizer and chat template, so that prompt ids follow from messages as they do in an engine.

Ordinary text is cut into words and each word into pairs of UTF-8 bytes, so ids look real, every text has one encoding,
some token sequences are not what their text encodes to, and characters may span tokens. Specials have their own ids.

A prompt that repeats the earlier messages, reasoning and raw tool arguments included, extends the earlier prompt and
its sampled tokens exactly; anything left out or re-serialised breaks the prefix, as with a real template.
"""

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SPECIALS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
PAIRS = 256
SPECIAL_BASE = PAIRS + 256 * 256
SPECIAL_IDS = {text: SPECIAL_BASE + number for number, text in enumerate(SPECIALS)}
END_OF_TURN = SPECIAL_IDS["<|im_end|>"]

_SPECIAL = re.compile("(" + "|".join(re.escape(text) for text in SPECIALS) + ")")
_WORD = re.compile(r"\s*\S+|\s+")


def encode(text: str) -> list[int]:
    ids: list[int] = []
    for part in _SPECIAL.split(text):
        if part in SPECIAL_IDS:
            ids.append(SPECIAL_IDS[part])
            continue
        for word in _WORD.findall(part):
            data = word.encode()
            ids.extend(_pair(data[at : at + 2]) for at in range(0, len(data), 2))
    return ids


def _pair(data: bytes) -> int:
    return data[0] if len(data) == 1 else PAIRS + data[0] * 256 + data[1]


def token_bytes(token_id: int) -> bytes:
    if token_id >= SPECIAL_BASE:
        return SPECIALS[token_id - SPECIAL_BASE].encode()
    if token_id >= PAIRS:
        return bytes(divmod(token_id - PAIRS, 256))
    return bytes([token_id])


def token_texts(token_ids: Iterable[int]) -> list[str]:
    """The text that each token adds: empty where it only starts a character."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(token_bytes(token_id)) for token_id in token_ids]


def decode(token_ids: Iterable[int]) -> str:
    return b"".join(map(token_bytes, token_ids)).decode(errors="replace")


def assistant_pieces(
    reasoning: str | None, content: str | None, calls: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """(part, text) pieces of an assistant turn, encoded one by one; `calls` are (name, raw arguments).

    Parts: `mark`, `reasoning`, `content`, `name`, `arguments`, `close`.
    """
    pieces: list[tuple[str, str]] = []
    if reasoning:
        pieces += [("mark", "<think>"), ("reasoning", reasoning), ("mark", "</think>")]
    if content:
        pieces.append(("content", content))
    for name, arguments in calls:
        head = '\n{"name": ' + json.dumps(name) + ', "arguments": '
        pieces += [("mark", "<tool_call>"), ("name", head), ("arguments", arguments), ("close", "}\n")]
        pieces.append(("mark", "</tool_call>"))
    return [*pieces, ("mark", "<|im_end|>")]


def prompt_ids(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, *, begun: bool = True
) -> list[int]:
    """Token ids of a chat prompt that ends where the assistant's turn starts, or, unless it is `begun`, just before."""
    ids: list[int] = []
    if tools:
        ids += encode("<|im_start|>tools\n" + json.dumps(tools, ensure_ascii=False) + "<|im_end|>\n")
    for message in messages:
        ids += encode(f"<|im_start|>{message['role']}\n")
        if message["role"] == "assistant":
            for _, text in _assistant(message):
                ids += encode(text)
        else:
            ids += encode(_text(message.get("content")))
            ids.append(END_OF_TURN)
        ids += encode("\n")
    return ids + encode("<|im_start|>assistant\n") if begun else ids


def _assistant(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [(function["name"], function["arguments"]) for function in functions]
    return assistant_pieces(message.get("reasoning"), _text(message.get("content")), calls)


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)
