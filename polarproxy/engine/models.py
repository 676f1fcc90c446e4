"""Lists of models (`GET /v1/models`) of several engines, as of one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadReply

if TYPE_CHECKING:
    from collections.abc import Iterable

_list = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entries = msgspec.json.Decoder(list[msgspec.Raw])


class _Entry(msgspec.Struct):
    id: str


_entry = msgspec.json.Decoder(_Entry)


def merged(lists: Iterable[bytes]) -> bytes:
    """The first list with the models of the others after its own, each model once; raises `BadReply` when one is none."""
    whole: dict[str, msgspec.Raw] = {}
    entries: dict[str, msgspec.Raw] = {}
    try:
        for body in lists:
            members = _list.decode(body)
            whole = whole or members
            for entry in _entries.decode(members.get("data", msgspec.Raw(b"[]"))):
                entries.setdefault(_entry.decode(entry).id, entry)
    except UNREADABLE as error:
        raise BadReply(f"an engine's list of models cannot be read: {error}") from error
    return msgspec.json.encode(whole | {"data": list(entries.values())})
