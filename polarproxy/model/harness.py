"""The data of a harness's recipe that says how it is installed, started and tried out; see `docs/guides/add-a-harness.md`.

Texts may hold placeholders, `{instruction}` for one, which `polarproxy.rollout.filling` fills in.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

_NPM = re.compile(r"(@[\w.{}-]+/)?[\w.{}-]+@\d[\w.{}+-]*")
_PIP = re.compile(r"[\w.-]+(\[[\w,.-]+\])?==\d[\w.+!-]*")


class Install(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Packages, each at an exact version. `{arch}` in them is this machine's name, by `arch`."""

    npm: tuple[str, ...] = ()
    """`package@1.2.3`, installed without scripts and without optional dependencies."""
    node: str | None = None
    """The version of Node.js that the npm packages run with, from npm too. None: they bring their own."""
    pip: tuple[str, ...] = ()
    """`package==1.2.3`, installed with what they depend on into an environment of their own."""
    requirements: str | None = None
    """A file beside the recipe with every package, installed as it stands, without dependencies. None: there is none."""
    python: str | None = None
    """The least version of Python, `3.12`. None: any that polarproxy runs with."""
    programs: dict[str, str] = {}
    """Names of commands, and where each lies in the folder of the packages."""
    arch: dict[str, str] = msgspec.field(default_factory=lambda: {"x86_64": "x64", "aarch64": "arm64"})
    """What packages call the machines that they are for; on others the harness cannot be installed."""

    def __post_init__(self) -> None:
        for package in self.npm:
            if not _NPM.fullmatch(package):
                raise ValueError(f"`npm` takes packages at exact versions, `name@1.2.3`, not {package!r}")
        for package in self.pip:
            if not _PIP.fullmatch(package):
                raise ValueError(f"`pip` takes packages at exact versions, `name==1.2.3`, not {package!r}")
        if self.node is not None and not re.fullmatch(r"\d+\.\d+\.\d+", self.node):
            raise ValueError(f"`node` is an exact version, `22.23.5`, not {self.node!r}")
        if self.python is not None and not re.fullmatch(r"3\.\d+", self.python):
            raise ValueError(f"`python` is a version like `3.12`, not {self.python!r}")
        if any(
            path.startswith("/") or ".." in path.split("/")
            for path in (self.requirements or "", *self.programs.values())
        ):
            raise ValueError("`programs` and `requirements` are paths inside the harness's own folder")
        for name in self.programs:
            if "/" in name or name in ("", ".", ".."):
                raise ValueError(f"`programs` names commands, and {name!r} is none")


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one task is given to the harness, and how it learns where the model is."""

    command: tuple[str, ...]
    resume: tuple[str, ...] = ()
    """The command that goes on with the latest conversation. Empty: it cannot."""
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    """Files in its home, written before it starts, by path."""
    stdin: str = ""

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise ValueError("`command` is empty")
        for path in self.files:
            if not path or path.startswith("/") or {".", ".."} & {*path.split("/")} or "\0" in path:
                raise ValueError(f"`files` are paths inside the harness's home, not {path!r}")
        for name, text in self.environment.items():
            if not name or "=" in name or "\0" in name + text:
                raise ValueError(f"`environment` has {name!r}, which no environment can hold")
        if any("\0" in part for part in (*self.command, *self.resume)):
            raise ValueError("`command` has a NUL character, which no command line can hold")


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What its end says of the task."""

    exit_codes: tuple[int, ...] = (0,)
    """Those with which it did what it could; every other one is an error of the harness."""
    failures: tuple[str, ...] = ()
    """Texts in its output that show an error all the same."""
    answer: Literal["stdout", "last_line", "none"] = "stdout"
    """Where its last words stand."""


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the scripted model of `harness check` answers: a call of a tool, or a text."""

    text: str = ""
    tool: str | None = None
    """None: no call."""
    arguments: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.text and self.tool is None:
            raise ValueError("a turn of `check` has a `text` or a `tool`")


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A small task with which `harness check` shows that the harness runs and is recorded."""

    turns: tuple[Turn, ...]
    """The model's turns in the main conversation; other requests are answered with the last text."""
    instruction: str = "Create the file out.txt with the word hello in it."
    file: str = "out.txt"
    """What must be in the working copy afterwards, with the word `hello` in it. Empty: nothing."""
    answer: str = ""
    """What it must print."""

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("`check` has no `turns`")
