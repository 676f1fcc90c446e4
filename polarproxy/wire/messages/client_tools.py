"""Tools that Anthropic defines and the client runs (`bash_20250124`, …), as functions that any engine can be told of.

What the client does with a call is fixed by the type; so are the parameters. Descriptions are our own.
Source: Anthropic documentation of the bash tool, the text editor tool and the memory tool.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from polarproxy.wire.neutral.request import Tool

_TYPE = re.compile(r"(bash|text_editor|memory)_(\d{8})")


@dataclass(frozen=True, slots=True)
class _Property:
    name: str
    type: str
    description: str


_BASH = (
    _Property("command", "string", "The command line to run."),
    _Property("restart", "boolean", "True starts the shell anew instead of running a command."),
)
_PATH = _Property("path", "string", "Path of the file or directory.")
_OLD = _Property("old_str", "string", "str_replace: the text to replace; it must occur exactly once.")
_NEW = _Property("new_str", "string", "str_replace: the text to put in its place.")
_NEW_OR_INSERTED = _Property("new_str", "string", "str_replace: the new text. insert: the text to insert.")
_WHOLE = _Property("file_text", "string", "create: the whole text of the file.")
_LINE = _Property("insert_line", "integer", "insert: the line after which to insert; 0 is the beginning.")
_INSERTED = _Property("insert_text", "string", "insert: the text to insert.")
_OLD_PATH = _Property("old_path", "string", "rename: the path to move from.")
_NEW_PATH = _Property("new_path", "string", "rename: the path to move to.")
_RANGE = _Property("view_range", "array", "view: first and last line to show, counted from 1; -1 is the end.")
_EDITOR_HAS_INSERT_TEXT = "20250728"
_EDITOR_LAST_WITH_UNDO = "20250124"


def client_tool(kind: str, name: str) -> Tool | None:
    """The function that a tool of such a type is for the engine; None for a type that is not one of these."""
    match = _TYPE.fullmatch(kind)
    if match is None:
        return None
    family, version = match.groups()
    if family == "bash":
        return _tool(kind, name, "Runs commands in a shell that lives on between calls.", _schema((), _BASH, ()))
    if family == "memory":
        commands: tuple[str, ...] = ("view", "create", "str_replace", "insert", "delete", "rename")
        properties = (_PATH, _RANGE, _WHOLE, _OLD, _NEW, _LINE, _INSERTED, _OLD_PATH, _NEW_PATH)
        return _tool(kind, name, "Keeps notes as files below /memories.", _schema(commands, properties, ("command",)))
    commands = ("view", "create", "str_replace", "insert")
    if version <= _EDITOR_LAST_WITH_UNDO:
        commands = (*commands, "undo_edit")
    new = (_NEW, _LINE, _INSERTED) if version >= _EDITOR_HAS_INSERT_TEXT else (_NEW_OR_INSERTED, _LINE)
    schema = _schema(commands, (_PATH, _RANGE, _WHOLE, _OLD, *new), ("command", "path"))
    return _tool(kind, name, "Views, creates and edits text files.", schema)


def _tool(kind: str, name: str, description: str, schema: bytes) -> Tool:
    return Tool(name, description, schema, kind=kind)


def _schema(commands: tuple[str, ...], properties: tuple[_Property, ...], required: tuple[str, ...]) -> bytes:
    described: dict[str, dict[str, object]] = {}
    if commands:
        described["command"] = {"type": "string", "enum": commands, "description": "What to do."}
    for each in properties:
        described[each.name] = {"type": each.type, "description": each.description}
        if each.type == "array":
            described[each.name]["items"] = {"type": "integer"}
    return msgspec.json.encode({"type": "object", "properties": described, "required": required})
