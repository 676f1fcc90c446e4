"""Compare replies by less than their text: the form of a value, and what a stream adds up to."""

import json
from typing import Any

from tests.fakes.transcript import chunks, stable


def shape(value: Any) -> str:
    """Keys in order with the kinds of their values; a list is the set of its elements' shapes."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{shape(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "|".join(sorted({shape(inner) for inner in value})) + "]"
    return "null" if value is None else type(value).__name__


def folded(stream: bytes) -> list[str]:
    """Everything a stream says, choice by choice, however its tokens were cut into events; lines, to see what differs.

    Besides the texts, ids and logprobs: which keys events have, at the end of a choice and before it. Only whether an
    event had an empty delta is left out where ids or logprobs are shown, for there it depends on the cutting.
    """
    choices: dict[int, dict[str, Any]] = {}
    rest = list[dict[str, Any]]()
    for chunk in chunks(stable(stream).encode()):
        if not chunk["choices"]:
            rest.append(chunk)
        for data in chunk["choices"]:
            choice = choices.setdefault(data["index"], {})
            if choice:
                _fold(choice, chunk, data)
            else:
                choice |= {"head": chunk, "keys": set(), "tools": {}}
    for choice in choices.values():
        choice["keys"] = sorted(choice["keys"])
    end = stable(stream).rpartition("data: ")[2]
    return json.dumps([sorted(choices.items()), rest, end], ensure_ascii=False, indent=1).splitlines()


def _fold(choice: dict[str, Any], chunk: dict[str, Any], data: dict[str, Any]) -> None:
    delta = data["delta"]
    for part in ("content", "reasoning"):
        choice[part] = choice.get(part, "") + (delta.get(part) or "")
    for call in delta.get("tool_calls", ()):
        tool = choice["tools"].setdefault(call["index"], {"head": call, "arguments": ""})
        tool["arguments"] += call["function"].pop("arguments", "")
    for part, values in (("token_ids", data["token_ids"]), ("logprobs", (data["logprobs"] or {}).get("content"))):
        choice[part] = None if values is None else choice.get(part, []) + values
    last = data["finish_reason"] is not None
    if last:
        choice |= {part: data[part] for part in ("finish_reason", "stop_reason")}
    hidden = data["token_ids"] is None and data["logprobs"] is None
    empty = ("empty",) if hidden and not last and not delta else ()
    nulls = tuple(key for key in ("reasoning",) if key in delta and delta[key] is None)
    choice["keys"].add(" ".join(("last:" if last else "", *chunk, *data, *nulls, *empty)))
