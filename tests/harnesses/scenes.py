"""What a recording is made of: scenes, the turns that are played in them, and every text in them that is ours."""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.fakes import Tool, Turn, compose
from tests.harnesses.scripted import Answer, Rule, anything, says, uses
from tests.harnesses.stage import Harness

PROMPT, SECOND = "create out.txt containing hello", "did you?"
ASK_SUB, TASK, SUB = "ask a sub-agent", "Please reply with the word pong.", "sub task"
LOOK, SEARCH, QUERY, TELL, ON = "look at picture.png", "search the web", "polar proxies", "tell a story", "and now?"
SENTENCE, THOUGHT, COMMAND, SHOW = "I will run a command.", "A file is wanted.", "echo hello > out.txt", "cat out.txt"
FINISH = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat out.txt"
PURPOSE, PICTURE = "Makes a file", "picture.png"
SAID = ("Done: out.txt contains hello.", "Yes, I did.", "pong", "I wait.", "It said pong.", "It is grey.")
NOTHING, MADE, TITLE, SUMMARY = "Nothing was found.", "I made it.", "A small file", "Out.txt was made."
SNAPSHOT, WRAPPED = f"<state_snapshot>{SUMMARY}</state_snapshot>", f"<summary>{SUMMARY}</summary>"
VERDICT = json.dumps({"complexity_reasoning": "one file", "complexity_score": 1})
STORY = " ".join(f"Line {number} of a story." for number in range(1500))

DONE, LATER, PONG, WAIT, HEARD, SEEN = (says(text) for text in SAID)


@dataclass(frozen=True)
class Scene:
    """One or two prompts to an agent, and how the model answers what it sends."""

    name: str
    harness: Harness
    rules: Callable[[], tuple[Rule, ...]]
    prompts: tuple[str, ...] = (PROMPT,)
    """The second one resumes the conversation of the first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    keep: int = 1_000
    """How many requests are kept, where an agent sends many of one shape."""


@dataclass(frozen=True)
class Program:
    """A coding agent at the version that .ci/setup-harnesses installs."""

    name: str
    version: str
    scenes: tuple[Scene, ...]


def act(tool: str, **arguments: object) -> Turn:
    """A thought, a sentence and a call."""
    return uses(tool, text=SENTENCE, reasoning=THOUGHT, **arguments)


def both(tool: str, *arguments: Mapping[str, object]) -> Turn:
    """Several calls in one reply."""
    return Turn((compose(tools=tuple(Tool(tool, json.dumps(each)) for each in arguments)),))


def main(*turns: Answer) -> Rule:
    """The agent's main loop: whatever no rule before this one answers."""
    return Rule("main", anything, turns)


def block(command: str) -> str:
    """A command as an agent without tools reads it."""
    return f"{SENTENCE}\n\n```mswea_bash_command\n{command}\n```"


def picture() -> bytes:
    """A PNG of one grey pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")


def _own() -> frozenset[str]:
    prompts = {PROMPT, SECOND, ASK_SUB, TASK, SUB, LOOK, SEARCH, QUERY, TELL, ON}
    replies = {*SAID, SENTENCE, THOUGHT, NOTHING, MADE, TITLE, SUMMARY, SNAPSHOT, WRAPPED, VERDICT, block(COMMAND)}
    arguments = {COMMAND, SHOW, FINISH, PURPOSE, PICTURE, "hello", "hello\n"}
    pixels = b64encode(picture()).decode()
    quoted = {f'"{prompt}"' for prompt in prompts}
    return frozenset(prompts | replies | arguments | quoted | {pixels, f"data:image/png;base64,{pixels}"})


OWN = _own()
"""Texts that a recording may hold because we wrote them; some agents put quotes around what they are asked."""
