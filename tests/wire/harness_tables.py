"""What real coding agents do that is no fault of ours: what is lost of their requests, and where they break their prompts.

Both are exact: what is not written down here, and what is written down and does not occur, fails the tests.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Expected:
    """A loss that is in order."""

    by: Literal["decode", "encode"]
    """Whether it is reported on reading the agent's dialect, or on writing chat for the engine."""
    where: str
    """A regular expression for the place."""
    why: str
    """What the reason says somewhere."""
    because: str
    """Why it may be lost."""


_PICTURE = (
    "chat templates take pictures from users only, so it follows the results in a user's message: nothing is lost"
)
_CODEX = (
    Expected("decode", r"(input\[\d+\]\.)?tools\[\d+\]", "description of a namespace", "chat has no groups of tools"),
    Expected("decode", r"tools\[\d+\]", "'web_search' that the provider runs", "no engine searches the web"),
    Expected("decode", r"reasoning\.summary", "reasoning is given in full", "the client gets more than it asked for"),
    Expected("decode", r"reasoning\.context", "chat template's choice", "said for one model of its catalogue only"),
    Expected("decode", r"text\.verbosity", "no such setting", "said for one model of its catalogue only"),
    Expected("encode", "tool_choice", "no such tool is left", "it says auto also where it offers no tool"),
    Expected("encode", r"messages\[\d+\]\.content\[\d+\]\.content\[\d+\]", "behind the results", _PICTURE),
)

LOSSES: dict[str, tuple[Expected, ...]] = {
    "claude-code": (
        Expected(
            "decode", r"system\[0\]", "billing line", "it differs between conversations and is kept in the record"
        ),
        Expected("decode", r"tools\[\d+\]", "DeferredToolPlaceholder is deferred", "it stands for tools to be found"),
        Expected("decode", r"tools\[0\]", "web_search_20250305 is run by the provider", "no engine searches the web"),
        Expected(
            "decode",
            r"messages\[\d+\]\.content\[\d+\]\.content\[\d+\]",
            "reference to the tool WebSearch",
            "the tool itself is among the tools from then on",
        ),
        Expected("encode", r"messages\[\d+\]\.content\[\d+\]\.content\[\d+\]", "behind the results", _PICTURE),
    ),
    "codex": _CODEX,
    "codex-socket": _CODEX,
    "qwen-code": (),
    "gemini-cli": (
        Expected("decode", r"tools\[0\]\.googleSearch", "only Google's own service", "no engine searches the web"),
        Expected(
            "decode",
            r"contents\[0\]\.parts\[0\]\.functionResponse",
            "answers no call",
            "it has the tokens of one result counted, without the conversation",
        ),
        Expected(
            "decode",
            r"contents\[\d+\]\.parts\[\d+\]\.functionResponse",
            "the same result once more",
            "when it resumes it sends each result twice; the model is told once",
        ),
    ),
    "opencode": (),
    "mini-swe-agent": (
        Expected(
            "decode",
            r"messages\[\d+\]\.provider_specific_fields",
            "not a member that can be carried",
            "litellm sends back what it did not know in a reply; as chat goes to the engine untouched, nothing is lost",
        ),
    ),
}

START = "its first prompt"
TITLE = "asks for a title"
SEARCH = "searches the web, with a conversation of its own"
SUB = "a sub-agent begins"
AGAIN = "the same once more, after a cut"
SUM_UP = "asks for a summary, with a conversation of its own"
SUMMED_UP = "goes on from a summary"
CHANGED = "resumed: the beginning tells anew which files there are"
JUDGE = "has the summary judged, without the question that led to it"

Line = int | str
"""Which earlier request of the scenario is continued (counted from 0), or what begins."""

LINEAGES: dict[str, dict[str, tuple[Line, ...]]] = {
    "claude-code": {
        "tool": (START, 0, 1, 2),
        "sub-agent": (START, 0, SUB, 1),
        "compaction": (START, 0, SUMMED_UP),
        "tool-search": (START, 0, SEARCH, 1),
        "picture": (START, 0),
        "structured": (START, 0),
        "cut": (START, 0, 1),
        "plain": (START, 0),
        "models": (START,),
    },
    "codex": {
        "tool": (START, 0, 1, 2),
        "sub-agent": (START, 0, SUB, 1),
        "compaction": (START, 0, SUMMED_UP),
        "picture": (START, 0),
        "catalogued": (START,),
    },
    "codex-socket": {
        "tool": (START, 0, 1, 2),
        "sub-agent": (START, 0, SUB, 1),
        "compaction": (START, 0, SUMMED_UP),
        "picture": (START, 0),
        "catalogued": (START,),
    },
    "qwen-code": {
        "tool": (START, 0, 1, CHANGED),
        "sub-agent": (START, 0, SUB, 1),
        "compaction": (START, 0, SUMMED_UP),
        # What it kept of the reply that was cut, and its demand to go on, are gone once it has a whole reply.
        "cut": (START, 0, 0),
        "messages": (START, 0),
    },
    "gemini-cli": {
        "tool": (START, 0, 1, CHANGED),
        "router": ("asks which model to use", START),
        "sub-agent": (START, SUB, 0),
        "compaction": (START, SUM_UP, JUDGE, SUMMED_UP),
        "web-search": (START, SEARCH, 0),
        "picture": (START, 0),
    },
    "opencode": {
        "tool": (TITLE, START, 1, 2, 3),
        "sub-agent": (TITLE, START, SUB, 1),
        "compaction": (TITLE, START, SUM_UP, SUMMED_UP),
        "cut": (TITLE, START, AGAIN, 2),
        "picture": (TITLE, START),
        "responses": (TITLE, START, 1),
        "messages": (TITLE, START, 1),
        "gemini": (TITLE, START, 1),
    },
    "mini-swe-agent": {
        "tool": (START, 0),
        "responses": (START, 0),
        "text": (START, 0),
    },
}

OTHER_TOOLS = {
    "claude-code/tool-search/1": "a tool that it searched for is loaded",
    "codex/compaction/1": "no tools where a summary is asked for",
    "codex-socket/compaction/4": "no tools where a summary is asked for",
}
"""Requests that go on with other tools than before: their prompts begin anew all the same."""
