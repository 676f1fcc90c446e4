"""One event of a chat stream of vLLM that holds nothing but sampled text, as nearly all do, known by its bytes alone.

To decode an event and to encode it again costs more than all else that is done with it. One whose every byte is where vLLM
writes it needs neither: what is to be kept and what is to be cut out stands between known bytes. Any other is decoded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPE = rb'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
"""Without halves of characters: whether they are pairs is for the decoder to see."""
_TEXT = rb'"[^"\\\x00-\x1f]*+(?:%b[^"\\\x00-\x1f]*+)*+"' % _ESCAPE
_NUMBER = rb"-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_ENTRY = rb'\{"token":%b,"logprob":(?:%b|null),"bytes":(?:\[[0-9,]*+\]|null),"top_logprobs":\[\]\}' % (_TEXT, _NUMBER)
_ARGUMENTS = rb'\[\{"index":[0-9]++,"function":\{"arguments":%b\}\}\]' % _TEXT
_MEMBER = rb'"[a-z_]++":(?:%b|null|%b)' % (_TEXT, _ARGUMENTS)
_EVENT = re.compile(
    rb'(\{"id":%b,"object":%b,"created":[0-9]++,"model":%b,"choices":\[\{"index":([0-9]),"delta":\{(%b(?:,%b)*+)?+\},"logprobs":)'
    rb'(\{"content":\[%b(?:,%b)*+\]\}),"finish_reason":null,"token_ids":(\[[0-9]++(?:,[0-9]++)*+\])\}\]\}'
    % (_TEXT, _TEXT, _TEXT, _MEMBER, _MEMBER, _ENTRY, _ENTRY)
)
_REST = b'null,"finish_reason":null,"token_ids":null}]}'


class Sampled(NamedTuple):
    """What stands in such an event."""

    choice: int
    """Its index."""
    token_ids: bytes
    """A JSON array, not empty."""
    logprobs: bytes
    """A JSON object with an entry for each of some tokens."""
    view: bytes | None
    """The event for a client that asked for neither. None: there is nothing else in it, and it would not have been sent."""


def read_sampled(data: bytes) -> Sampled | None:
    """None: it holds something else, or is written in another way."""
    found = _EVENT.fullmatch(data)
    if found is None:
        return None
    head, index, said, logprobs, token_ids = found.groups()
    return Sampled(int(index), token_ids, logprobs, None if said is None else head + _REST)
