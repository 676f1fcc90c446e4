"""Compare streams of `/v1/completions` by what they add up to, as `tests.fakes.shapes` does for chat."""

import json
from typing import Any

from tests.fakes.transcript import chunks, stable

_ONCE = ("finish_reason", "stop_reason")
_LISTS = ("text_offset", "token_logprobs", "tokens", "top_logprobs")


def folded_text(stream: bytes) -> list[str]:
    """Everything a stream says, choice by choice, however its tokens were cut into events; lines, to see what differs."""
    choices: dict[int, dict[str, Any]] = {}
    rest = list[dict[str, Any]]()
    text = stable(stream)
    for chunk in chunks(text.encode()):
        if not chunk.get("choices"):
            rest.append(chunk)
        for data in chunk.get("choices", ()):
            _fold(choices.setdefault(data["index"], _begun(chunk, data)), chunk, data)
    for choice in choices.values():
        choice["keys"] = sorted(choice["keys"])
    return json.dumps([sorted(choices.items()), rest, text.rpartition("data: ")[2]], indent=1).splitlines()


def _begun(chunk: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    head = {key: value for key, value in chunk.items() if key not in ("choices", "usage", "system_fingerprint")}
    return {"head": head, "prompt": data["prompt_token_ids"], "keys": set(), "text": "", "ids": [], "logprobs": {}}


def _fold(choice: dict[str, Any], chunk: dict[str, Any], data: dict[str, Any]) -> None:
    choice["text"] += data["text"]
    choice["ids"] = None if data["token_ids"] is None else choice["ids"] + data["token_ids"]
    if data["logprobs"] is None:
        choice["logprobs"] = None
    else:
        known = choice["logprobs"]
        choice["logprobs"] = {part: known.get(part, []) + data["logprobs"][part] for part in _LISTS}
    last = data["finish_reason"] is not None
    if last:
        choice |= {part: data[part] for part in _ONCE} | {"usage": chunk.get("usage")}
    choice["keys"].add(" ".join(("last:" if last else "", *chunk, *data)))
