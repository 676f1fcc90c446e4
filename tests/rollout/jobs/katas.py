"""Twenty small programming tasks with tests, and a scripted model that solves some of its attempts at each."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from polarproxy.model.harness import Turn

if TYPE_CHECKING:
    from polarproxy.rollout.scripted.engine import Asked


@dataclass(frozen=True)
class Kata:
    """A function to write; `wrong` looks right and is not."""

    name: str
    says: str
    right: str
    wrong: str
    cases: tuple[tuple[str, str], ...]
    """Arguments and what the function must return, as expressions."""

    @property
    def tests(self) -> str:
        lines = "\n".join(f"        self.assertEqual({self.name}({given}), {wanted})" for given, wanted in self.cases)
        return (
            f"import unittest\nfrom {self.name} import {self.name}\n\n\nclass T(unittest.TestCase):\n"
            f"    def test_cases(self):\n{lines}\n\n"
            f"    def test_callable(self):\n        self.assertTrue(callable({self.name}))\n"
        )

    @property
    def instruction(self) -> str:
        return f"Kata {self.name}: write {self.name}.py with a function {self.name} that {self.says}."

    def source(self, right: bool) -> str:
        return f"def {self.name}(x, *rest):\n    {self.right if right else self.wrong}\n"

    def expected(self, attempt: int) -> bool:
        """Whether that attempt of the scripted model, from 0, is right: two to four of four, by the kata."""
        return attempt % 4 < 2 + KATAS.index(self) % 3


KATAS = tuple(
    Kata(**one | {"cases": tuple(map(tuple, one["cases"]))})
    for one in json.loads(Path(__file__).with_name("katas.json").read_text())
)
_TOOLS = {"bash": "command", "Bash": "command", "exec_command": "cmd"}


def write_tasks(path: Path, katas: tuple[Kata, ...] = KATAS) -> None:
    """As JSON lines, for a job."""
    lines = [
        {
            "id": one.name,
            "instruction": one.instruction,
            "tests": {f"test_{one.name}.py": one.tests},
            "files": {"README": one.says},
        }
        for one in katas
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@dataclass
class Model:
    """Writes the file in its first turn, looks at it in the second, is done in the third; counts attempts at each kata."""

    attempts: Counter[str] = field(default_factory=Counter)

    def __call__(self, asked: Asked) -> Turn:
        said = json.dumps(asked.messages)
        one = next((kata for kata in KATAS if kata.instruction in said), None)
        tool = next((name for name in _TOOLS if name in asked.offered), None)
        if one is None or tool is None:
            return Turn(text="A title.")
        if asked.turn == 0:
            attempt, self.attempts[one.name] = self.attempts[one.name], self.attempts[one.name] + 1
            command = f"cat > {one.name}.py <<'END'\n{one.source(one.expected(attempt))}END"
            return Turn(text=f"Attempt {attempt}.", tool=tool, arguments={_TOOLS[tool]: command})
        if asked.turn == 1:
            return Turn(text="I look at it.", tool=tool, arguments={_TOOLS[tool]: f"cat {one.name}.py"})
        if tool == "bash":
            return Turn(tool=tool, arguments={"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})
        return Turn(text="Done.")


def is_right(requests: list[bytes]) -> bool:
    """Whether the solution that a session's requests show is the right one."""
    said = b"\n".join(requests).decode()
    one = next(kata for kata in KATAS if kata.instruction in said)
    shown = [json.dumps(json.dumps(one.source(right))[1:-1])[1:-1] for right in (True, False)]
    plain = [json.dumps(one.source(right))[1:-1] for right in (True, False)]
    right, wrong = (a in said or b in said for a, b in zip(shown, plain, strict=True))
    assert right != wrong, one.name
    return right
