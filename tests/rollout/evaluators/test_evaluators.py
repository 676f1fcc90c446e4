"""Evaluators in real runtimes: right rewards, and code under test that tries to give itself one."""

import errno
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polarproxy.credit.transcript import SaidTurn, Transcript
from polarproxy.errors import BadReward, JudgeFailed
from polarproxy.model import ComponentKind, Reward, Session, SessionStatus
from polarproxy.rollout.evaluators.asked import Asked, check_all, needs_fresh
from polarproxy.rollout.evaluators.evidence import Evidence
from polarproxy.rollout.evaluators.judged import evaluate
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Folder, Runtime, Spec
from tests.trajectory.build import WHEN

GOOD = "def double(n):\n    return 2 * n\n"
BAD = "def double(n):\n    return n\n"
TESTS = """import unittest
from work import double

class T(unittest.TestCase):
    def test_one(self):
        self.assertEqual(double(1), 2)

    def test_zero(self):
        self.assertEqual(double(0), 0)
"""
UNITTEST: dict[str, Any] = {
    "kind": "tests",
    "runner": "unittest",
    "arguments": ["test_work"],
    "files": {"test_work.py": TESTS},
    "python": sys.executable,
}


@asynccontextmanager
async def evidence(
    folder: Path, changes: dict[str, str], *, status: SessionStatus = SessionStatus.COMPLETED, shell: str = "true"
) -> AsyncIterator[Evidence]:
    """A harness that made these changes to a working copy with a README, and ran a command."""
    (folder / "README").write_text("Write double.\n")
    spec, runtimes, started = Spec(source=Folder(folder)), Runtimes(), []

    async def start() -> Runtime:
        started.append(await runtimes.start("local", spec))
        return started[-1]

    runtime = await start()
    try:
        for path, text in changes.items():
            await runtime.put(path, text.encode())
        ended = await runtime.exec(["sh", "-c", shell], env={}, budget=Budget(20))
        said = Transcript("Write double.", (SaidTurn(("c", 0), "done", tokens=3),))
        session = Session("s", WHEN, status=status)
        yield Evidence(session, "Write double.", ended, runtime, start, lambda _: said)
    finally:
        for one in started:
            await one.stop()


def asked(*written: dict[str, Any]) -> tuple[Asked, ...]:
    found = msgspec.convert(written, tuple[Asked, ...])
    check_all(found)
    return found


async def judged(folder: Path, changes: dict[str, str], *written: dict[str, Any], **more: Any) -> Reward | None:
    async with evidence(folder, changes, **more) as left:
        return await evaluate(asked(*written), left)


def parts(reward: Reward | None) -> dict[str, float]:
    assert reward is not None
    return {part.name: part.value for part in reward.components}


@pytest.mark.parametrize("fresh", [True, False])
async def test_tests_of_ones_own(tmp_path: Path, fresh: bool) -> None:
    ask = UNITTEST | {"fresh": fresh}
    good = await judged(tmp_path, {"work.py": GOOD}, ask)
    assert good is not None
    assert good.value == 1.0
    assert parts(good) == {"passed": 1.0, "tests_passed": 2.0, "tests_failed": 0.0}
    bad = await judged(tmp_path, {"work.py": BAD}, ask | {"share": True})
    assert bad is not None
    assert bad.value == 0.5
    assert parts(bad) == {"passed": 0.0, "tests_passed": 1.0, "tests_failed": 1.0}
    assert {part.name: part.kind for part in bad.components}["tests_failed"] is ComponentKind.METRIC


FORGERIES = {
    "ends the process": "import os\nos._exit(0)\n",
    "ends the program": "raise SystemExit(0)\n",
    "prints a summary": "import os, sys\nprint('2 passed in 0.01s')\nsys.stdout.flush()\nos._exit(0)\n",
    "writes to every descriptor": "import os\nfor fd in range(1, 40):\n    try:\n"
    '        os.write(fd, b\'{"nonce": "", "tests": {"a": "pass", "b": "pass"}}\\n\')\n'
    "    except OSError:\n        pass\nos._exit(0)\n",
    "reads the input": "import os, sys\nn = sys.stdin.read() or os.environ.get('NONCE', '')\n"
    "try:\n    os.lseek(0, 0, 0); n = os.read(0, 99).decode().strip()\nexcept OSError:\n    pass\n" + BAD,
    "prints results at its end": "import atexit\natexit.register(lambda: print('OK'))\nraise SystemExit(0)\n",
}


@pytest.mark.parametrize("how", FORGERIES)
async def test_code_under_test_cannot_forge(tmp_path: Path, how: str) -> None:
    for ask in (UNITTEST, UNITTEST | {"kind": "test_map", "expected": {"test_work.T.test_one": "pass"}}):
        reward = await judged(tmp_path, {"work.py": FORGERIES[how]}, ask)
        assert reward is not None
        assert reward.value == 0.0


@pytest.mark.parametrize("fresh", [True, False])
async def test_what_is_planted_in_the_working_copy(tmp_path: Path, fresh: bool) -> None:
    planted = {
        "work.py": BAD,
        "unittest.py": "raise SystemExit(0)\n",
        "json.py": "raise SystemExit(0)\n",
        "fractions.py": "raise SystemExit(0)\n",
        "sitecustomize.py": "import os; os._exit(0)\n",
        "test_work.py": "",
    }
    ask = UNITTEST | {"fresh": fresh, "files": {"test_work.py": "import fractions\n" + TESTS}}
    reward = await judged(tmp_path, planted, ask)
    assert parts(reward) == {"passed": 0.0, "tests_passed": 1.0, "tests_failed": 1.0}


async def test_files_that_cannot_be_put_are_tampering(tmp_path: Path) -> None:
    ask = UNITTEST | {"files": {"tests/test_work.py": TESTS}}
    shell = "mkdir elsewhere && ln -s elsewhere tests"
    reward = await judged(tmp_path, {"work.py": GOOD}, ask, shell=shell)
    assert parts(reward) == {"passed": 0.0, "tampered": 1.0}


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_full_disk_is_not_tampering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool) -> None:
    ask = UNITTEST | {"files": {"tests/test_work.py": TESTS}, "fresh": fresh}

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with evidence(tmp_path, {"work.py": GOOD}) as found:
        await found.patch()
        monkeypatch.setattr("os.mkdir", full)
        with pytest.raises(JudgeFailed, match="No space left"):
            await evaluate([msgspec.convert(ask, Asked)], found)


async def test_fresh_knows_only_the_changes_of_the_working_copy(tmp_path: Path) -> None:
    ask = {"kind": "tests", "command": ["sh", "-c", "test -f work.py && test ! -e $HOME/left"]}
    there = {"kind": "tests", "name": "there", "command": ["sh", "-c", "test -e $HOME/left"], "fresh": False}
    reward = await judged(tmp_path, {"work.py": GOOD}, ask, there, shell="touch $HOME/left")
    assert parts(reward) == {"tests": 1.0, "tests/passed": 1.0, "there": 1.0, "there/passed": 1.0}
    assert needs_fresh(asked(ask, there))
    assert not needs_fresh(asked(there))


async def test_another_test_program(tmp_path: Path) -> None:
    said = "echo '3 passed, 1 failed in 0.1s'"
    ask: dict[str, Any] = {"kind": "tests", "command": ["sh", "-c", said], "fresh": False}
    assert parts(await judged(tmp_path, {}, ask)) == {"passed": 0.0, "tests_passed": 3.0, "tests_failed": 1.0}
    shared = await judged(tmp_path, {}, ask | {"share": True})
    assert shared is not None
    assert shared.value == 0.75
    few = await judged(tmp_path, {}, ask | {"command": ["sh", "-c", "echo 1 passed"], "share": True, "least": 4})
    assert few is not None
    assert few.value == 0.25
    failed = await judged(tmp_path, {}, ask | {"command": ["sh", "-c", "echo 4 passed; exit 1"]})
    assert failed is not None
    assert failed.value == 0.0
    late = await judged(tmp_path, {}, ask | {"command": ["sleep", "20"], "timeout_s": 0.5})
    assert late is not None
    assert late.value == 0.0
    with pytest.raises(JudgeFailed, match="nobody-has-this"):
        await judged(tmp_path, {}, ask | {"command": ["nobody-has-this"]})


async def test_a_map_of_tests(tmp_path: Path) -> None:
    names = {"test_work.T.test_one": "fail", "test_work.T.test_zero": "pass"}
    ask = UNITTEST | {"kind": "test_map", "expected": names}
    reward = await judged(tmp_path, {"work.py": BAD}, ask)
    assert parts(reward) == {"resolved": 1.0, "to_pass": 1.0, "to_fail": 1.0}
    reward = await judged(tmp_path, {"work.py": GOOD}, ask | {"share": True})
    assert reward is not None
    assert reward.value == 0.5
    assert parts(reward) == {"resolved": 0.0, "to_pass": 1.0, "to_fail": 0.0}
    gone = await judged(tmp_path, {"work.py": GOOD}, ask | {"expected": {"test_work.T.test_gone": "fail"}})
    assert gone is not None
    assert gone.value == 0.0


async def test_pytest(tmp_path: Path) -> None:
    text = "import pytest\nfrom work import double\ndef test_one():\n    assert double(1) == 2\n"
    text += "@pytest.mark.skip\ndef test_skipped():\n    assert 0\n"
    ask = UNITTEST | {"runner": "pytest", "arguments": ["test_work.py"], "files": {"test_work.py": text}}
    good = await judged(tmp_path, {"work.py": GOOD}, ask)
    assert parts(good) == {"passed": 1.0, "tests_passed": 1.0, "tests_failed": 0.0}
    bad = await judged(tmp_path, {"work.py": "oh no"}, ask)
    assert parts(bad) == {"passed": 0.0, "tests_passed": 0.0, "tests_failed": 1.0}


WRITE = """import json, sys
told = json.load(sys.stdin)
reward = {"nonce": told["nonce"], "aggregate_reward_score": 0.5, "turn_rewards": [{"turn": 0, "value": 1}],
          "metrics_list": [{"name": "lines", "value": told["patch"].count("+def"), "type": "Reward"}]}
json.dump(reward, open(told["reward_file"], "w"))
"""


def program(text: str) -> dict[str, Any]:
    return {"kind": "command", "command": [sys.executable, "judge.py"], "files": {"judge.py": text}}


async def test_a_program_that_writes_a_reward(tmp_path: Path) -> None:
    reward = await judged(tmp_path, {"work.py": GOOD}, program(WRITE))
    assert reward is not None
    assert reward.value == 0.5
    assert [(part.name, part.value, part.kind) for part in reward.components] == [("lines", 1.0, ComponentKind.REWARD)]
    assert reward.turns[0].value == 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os; os._exit(0)", "wrote nothing"),
        (WRITE.replace('told["nonce"]', '"guess"'), "nonce"),
        (WRITE.replace('"nonce": told["nonce"], ', ""), "nonce"),
        (WRITE.replace("0.5", "float('nan')"), "cannot be read"),
        ("import time; time.sleep(30)", "stopped"),
    ],
)
async def test_a_program_that_does_not_do_its_work(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(JudgeFailed, match=why):
        await judged(tmp_path, {"work.py": GOOD}, program(text) | {"timeout_s": 3.0})


async def test_completed_and_several_together(tmp_path: Path) -> None:
    done: dict[str, Any] = {"kind": "session_completed", "weight": 0.25}
    assert await judged(tmp_path, {}) is None
    ended = await judged(tmp_path, {}, {"kind": "session_completed"}, status=SessionStatus.TIMEOUT)
    assert ended is not None
    assert ended.value == 0.0
    both = await judged(tmp_path, {"work.py": BAD}, done, UNITTEST | {"share": True, "weight": 2.0})
    assert both is not None
    assert both.value == 1.25
    assert parts(both)["session_completed"] == 1.0


@pytest.mark.parametrize("weight", [1e39, -1e308])
@pytest.mark.parametrize("others", [0, 1])
async def test_a_weight_that_makes_a_reward_too_large(tmp_path: Path, weight: float, others: int) -> None:
    heavy: dict[str, Any] = {"kind": "session_completed", "name": "heavy", "weight": weight}
    with pytest.raises(JudgeFailed, match="too large"):
        await judged(tmp_path, {}, heavy, *[{"kind": "session_completed"}] * others)


def graded(_session: Session, said: Transcript, least: int = 1) -> dict[str, float]:
    return {"long": float(said.tokens >= least), "odd": 1.0}


def failing(_session: Session, _said: Transcript) -> float:
    raise SystemExit(3)


def silent(_session: Session, _said: Transcript) -> None:
    return None


async def test_a_function(tmp_path: Path) -> None:
    ask: dict[str, Any] = {"kind": "function", "function": f"{__name__}:graded", "options": {"least": 3}}
    reward = await judged(tmp_path, {}, ask)
    assert reward is not None
    assert reward.value == 2.0
    assert parts(reward) == {"long": 1.0, "odd": 1.0}
    assert await judged(tmp_path, {}, {"kind": "function", "function": f"{__name__}:silent"}) is None
    with pytest.raises(JudgeFailed, match="SystemExit"):
        await judged(tmp_path, {}, {"kind": "function", "function": f"{__name__}:failing"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "tests"},
        {"kind": "tests", "runner": "pytest", "command": ["x"]},
        {"kind": "tests", "command": ["x"], "timeout_s": 0},
        {"kind": "test_map", "expected": {}},
        {"kind": "command", "command": []},
        {"kind": "session_completed", "weight": float("inf")},
    ],
)
def test_evaluators_that_cannot_be_used(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadReward):
        asked(wrong)
    with pytest.raises(BadReward, match="one name"):
        asked({"kind": "session_completed"}, {"kind": "session_completed"})
