"""Calls of tools as items: the three forms in which a client knows what the engine knows as a function.

`function_call` carries the sampled arguments as they are; `custom_tool_call` carries the one string inside them (see
`freeform`); `local_shell_call` carries them as an object, `action`.
"""

from __future__ import annotations

import msgspec

from polarproxy.errors import UNREADABLE
from polarproxy.wire.neutral.arguments import WRAPPER
from polarproxy.wire.responses.reading import Members, members

SHELL_PARAMETERS = (
    b'{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"Program and '
    b'arguments."},"working_directory":{"type":"string"},"timeout_ms":{"type":"integer"},"env":{"type":"object",'
    b'"additionalProperties":{"type":"string"}}},"required":["command"]}'
)
"""JSON schema of the function that `local_shell` becomes."""

# The order tells ours apart: a model that says `env` itself says it after `type`.
_TYPED = b'{"type":"exec",'
_TYPED_WITHOUT_ENV = b'{"env":{},"type":"exec",'
EMPTY_ACTION = msgspec.Raw(b'{"type":"exec","command":[],"env":{}}')
"""The action of a call that has only begun."""


class _Action(msgspec.Struct):
    command: list[str]
    env: dict[str, str] = {}


_action = msgspec.json.Decoder(_Action)
_text = msgspec.json.Decoder(str)


def action_of(arguments: str) -> tuple[msgspec.Raw, str | None]:
    """The action that these arguments say, and what is wrong with them. None: nothing; each byte of the object is kept."""
    raw = arguments.encode()
    try:
        _action.decode(raw)
        said = members.decode(raw)
    except UNREADABLE:
        said = Members()
    if not said or "type" in said:
        wrapped = {"type": "exec", "command": [], "env": {}, WRAPPER: arguments}
        return msgspec.Raw(msgspec.json.encode(wrapped)), f"the arguments are no shell command; they are in {WRAPPER}"
    head = _TYPED if "env" in said else _TYPED_WITHOUT_ENV
    return msgspec.Raw(head + raw.strip()[1:]), None


def arguments_of_action(action: bytes) -> str:
    """The arguments that were made into this action; raises `msgspec.DecodeError` when it is no JSON object."""
    said = members.decode(action)
    if WRAPPER in said:
        return _text.decode(said[WRAPPER])
    for head in (_TYPED, _TYPED_WITHOUT_ENV):
        if action.startswith(head):
            return "{" + action[len(head) :].decode()
    return msgspec.json.encode({name: value for name, value in said.items() if name != "type"}).decode()
