"""What a session was made with, as far as each of its calls has to heed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, StoreDamaged
from polarproxy.store.text import decode_pairs

if TYPE_CHECKING:
    from polarproxy.model import PromptMode

SAMPLING = "polarproxy.sampling"
"""Under this name a session's metadata holds the parameters that are forced upon it, as a JSON object."""
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Terms:
    """Without arguments: of a session that only its calls made."""

    prompts: PromptMode | None = None
    """Where its prompts come from. None: as the proxy is set."""
    sampling: dict[str, msgspec.Raw] = field(default_factory=dict)
    """Parameters that each of its requests is sent with, by name. Empty: its clients choose."""


def terms_of(session_id: str, prompts: PromptMode | None, metadata: str | None) -> Terms:
    """From a session's row; `metadata` as it is stored, None where it forces nothing. Raises `StoreDamaged`."""
    if metadata is None or SAMPLING not in metadata:
        return Terms(prompts)
    try:
        forced = dict(decode_pairs(metadata)).get(SAMPLING)
        return Terms(prompts, {} if forced is None else read_sampling(forced))
    except UNREADABLE as error:
        raise StoreDamaged(f"session {session_id}: the sampling it was made with cannot be read: {error}") from error


def read_sampling(said: str) -> dict[str, msgspec.Raw]:
    """What the metadata says under `SAMPLING`; raises `msgspec.DecodeError`."""
    return {name: msgspec.Raw(bytes(value)) for name, value in _fields.decode(said).items()}
