"""How a rollout is to be judged, as it is written in a task or a job."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from polarproxy.errors import BadReward


class _Evaluator(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="kind"):
    name: str = ""
    """What its components begin with where a task has several evaluators. Empty: its kind."""
    weight: float = 1.0
    """Of its reward, where a task has several."""

    @property
    def title(self) -> str:
        """What it is called in components and complaints."""
        return self.name or str(self.__struct_config__.tag)

    def check(self) -> None:
        """Raises `BadReward` when it cannot be used."""
        if not np.isfinite(self.weight):
            raise BadReward(f"evaluator {self.title}: the weight is {self.weight}")


class _InRuntime(_Evaluator, frozen=True, kw_only=True):
    fresh: bool = True
    """Whether it looks at the agent's changes alone, in a runtime of their own; otherwise where the agent worked."""
    files: dict[str, str] = {}
    """Written into the working copy before, by path: tests that the agent never saw, or must not have changed."""
    timeout_s: float = 300.0

    def check(self) -> None:
        super().check()
        if not (np.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise BadReward(f"evaluator {self.title}: timeout_s must be greater than 0, not {self.timeout_s}")
        for path in self.files:
            # Found only later, it would look as if the harness had put something in the way.
            if not is_inside(path):
                raise BadReward(f"evaluator {self.title}: files are paths inside the working copy, not {path!r}")


class Tests(_InRuntime, frozen=True, kw_only=True, tag="tests"):
    """Worth 1 when every test passes; with `share`, the share that does. Give `runner` or `command`."""

    runner: Literal["unittest", "pytest"] | None = None
    """Runs the tests so that the code under test cannot say how they went."""
    arguments: tuple[str, ...] = ()
    """Of the runner: names of tests for unittest, pytest's own for pytest."""
    python: str = "python3"
    command: tuple[str, ...] = ()
    """Any other test program: its exit code counts, or with `share` the summary that it prints."""
    share: bool = False
    least: int = 1
    """Tests that must have run; fewer are a failure, since code under test can end the run."""

    def check(self) -> None:
        super().check()
        if (self.runner is None) == (not self.command):
            raise BadReward(f"evaluator {self.title}: give one of runner and command")


class TestMap(_InRuntime, frozen=True, kw_only=True, tag="test_map"):
    """Worth 1 when every test that is named goes as expected; a test that does not run has not passed."""

    expected: dict[str, Literal["pass", "fail"]]
    """By the test's id: `module.Class.method` for unittest, `file.py::test` for pytest."""
    runner: Literal["unittest", "pytest"] = "unittest"
    arguments: tuple[str, ...] = ()
    python: str = "python3"
    share: bool = False
    """Whether it is worth the share of tests that went as expected."""

    def check(self) -> None:
        super().check()
        if not self.expected:
            raise BadReward(f"evaluator {self.title}: expected names no test")


class Program(_InRuntime, frozen=True, kw_only=True, tag="command"):
    """A program that writes a reward into a file; see docs/reference/evaluators.md for what it is told and must write."""

    command: tuple[str, ...]
    options: dict[str, Any] = {}

    def check(self) -> None:
        super().check()
        if not self.command:
            raise BadReward(f"evaluator {self.title}: the command is empty")


class Function(_Evaluator, frozen=True, kw_only=True, tag="function"):
    """`module:function` of this process, called as the `python` of a reward specification is."""

    function: str
    options: dict[str, Any] = {}


class SessionCompleted(_Evaluator, frozen=True, kw_only=True, tag="session_completed"):
    """Worth 1 when the harness ended by itself and without an error, else 0."""


Asked = Tests | TestMap | Program | Function | SessionCompleted


def is_inside(path: str) -> bool:
    """Whether the path of a file leads nowhere but into the folder that it starts from."""
    return bool(path) and not path.startswith("/") and ".." not in path.split("/") and "\x00" not in path


def check_all(asked: tuple[Asked, ...]) -> None:
    """Raises `BadReward` when one of them cannot be used, or two have one name."""
    titles = [one.title for one in asked]
    if len(set(titles)) != len(titles):
        raise BadReward(f"two evaluators have one name: {', '.join(titles)}; give each a `name`")
    for one in asked:
        one.check()


def needs_fresh(asked: tuple[Asked, ...]) -> bool:
    """Whether a runtime of its own is to be made ready for one of them."""
    return any(isinstance(one, _InRuntime) and one.fresh for one in asked)
