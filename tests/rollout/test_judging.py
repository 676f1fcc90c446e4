"""Judges: built-in ones, Python functions, and commands that are held to their limits and cannot be forged."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polarproxy.credit.spec import read_spec
from polarproxy.credit.transcript import SaidTurn, ToolCall, Transcript
from polarproxy.errors import BadReward, JudgeFailed
from polarproxy.model import Reward, RewardComponent, Session, TurnReward
from polarproxy.rollout.confined import cut_network
from polarproxy.rollout.judging import Judges
from tests.rollout.left import folders, processes
from tests.trajectory.build import WHEN

STORED = Reward(0.5, (RewardComponent("style", 0.25),), (TurnReward(1.0, turn=0),))
SESSION = Session("s", WHEN, task_id="t", metadata=(("answer", "85"),), reward=STORED)
SAID = Transcript(
    "how many?",
    (
        SaidTurn(("c0", 0), "let me see", tools=(ToolCall("bash", '{"c": 1}', "ok \ud83d"),), tokens=5),
        SaidTurn(("c1", 0), "85", tokens=1),
    ),
)


def judged(session: Session = SESSION, said: Transcript = SAID, **fields: Any) -> Reward | None:
    return Judges(read_spec({"components": [{"name": "it", **fields}]})).judge(session, said)


def value(**fields: Any) -> float | None:
    reward = judged(**fields)
    return None if reward is None else reward.value


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


READ = "import json, sys; told = json.load(sys.stdin); "


def test_a_built_in_judge() -> None:
    reward = judged(judge="numeric_match", options={"expected_from": "answer"})
    assert reward is not None
    assert (reward.value, reward.turns) == (1.0, STORED.turns)
    assert value(judge="regex", options={"pattern": "a"}, said=Transcript("", ())) is None


def test_a_component_that_is_stored() -> None:
    spec = read_spec({"components": [{"name": "style", "weight": 4.0}]})
    reward = Judges(spec).judge(SESSION, SAID)
    assert reward is not None
    assert reward.value == 1.0
    assert value() is None


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the working directory, with a name of its own for each test."""
    name = f"verifier_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "def plain(session, said):\n    return len(said.turns) + len(session.metadata)\n"
        "def parts(session, said, scale=1):\n    return {'a': 1.0 * scale, 'b': 0.5}\n"
        "def none(session, said):\n    return None\n"
        "def yes(session, said):\n    return True\n"
        "def crash(session, said):\n    raise ValueError('boo')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_a_python_function(module: str) -> None:
    assert value(python=f"{module}:plain") == 3.0
    assert value(python=f"{module}:none") is None
    reward = judged(python=f"{module}:parts", options={"scale": 2})
    assert reward is not None
    assert (reward.value, [part.name for part in reward.components]) == (2.5, ["it", "it/a", "it/b", "style"])


@pytest.mark.parametrize(("function", "why"), [("yes", "True is no number"), ("crash", "raised ValueError: boo")])
def test_a_python_function_that_does_not_do_its_work(module: str, function: str, why: str) -> None:
    with pytest.raises(JudgeFailed, match=why):
        judged(python=f"{module}:{function}")


@pytest.mark.parametrize("name", ["no_such_module:f", "math:no_such_function", "math:pi"])
def test_a_python_function_that_is_not_there(name: str) -> None:
    with pytest.raises(BadReward, match="python = "):
        judged(python=name)


def test_a_command_is_told_all_and_answers_with_the_nonce() -> None:
    text = READ + (
        "assert told['session']['session_id'] == 's' and told['final_text'] == '85' and told['instruction'] == 'how many?';"
        "assert told['turns'][0]['tools'][0]['result'] == 'ok ?' and told['options'] == {'k': 1};"
        "print('noise'); print(json.dumps({'nonce': told['nonce'], 'value': 0.5, 'components': {'x': 2}}))"
    )
    reward = judged(command=program(text), options={"k": 1})
    assert reward is not None
    assert (reward.value, reward.components[1].name) == (0.5, "it/x")


def test_a_command_may_have_nothing_to_say() -> None:
    assert value(command=program(READ + "print(json.dumps({'nonce': told['nonce'], 'value': None}))")) is None


FORGED = [
    ('print(\'{"nonce": "0", "value": 1}\')', "printed 0 results"),
    ("print('1.0')", "printed 0 results"),
    (
        READ + "print(json.dumps({'nonce': '0', 'value': 1, 'components': {told['nonce']: 1}}))",
        "printed 0 results with",
    ),
    (READ + "line = json.dumps({'nonce': told['nonce'], 'value': 1}); print(line); print(line)", "printed 2 results"),
    (READ + "print(json.dumps({'nonce': told['nonce'], 'value': True}))", "cannot be read"),
    (READ + "print(json.dumps({'nonce': told['nonce']}))", "cannot be read"),
    ("import sys; sys.exit('it broke')", "exit code 1: it broke"),
]


@pytest.mark.parametrize(("text", "why"), FORGED, ids=[why for _, why in FORGED])
def test_without_one_result_with_the_nonce_there_is_none(text: str, why: str) -> None:
    with pytest.raises(JudgeFailed, match=why):
        judged(command=program(text))


def test_a_command_may_be_read_by_its_exit_code_or_by_its_tests() -> None:
    assert value(command=program(""), reads="exit") == 1.0
    assert value(command=program("raise SystemExit(3)"), reads="exit") == 0.0
    assert value(command=program("print('3 passed, 1 failed')"), reads="tests") == 0.75
    assert value(command=program(""), reads="tests") is None


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(JudgeFailed, match="no-such-program cannot be started"):
        judged(command=["no-such-program"], reads="exit")


def test_a_command_has_its_time() -> None:
    """And so have those that it started: the test ends long before a minute."""
    text = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with pytest.raises(JudgeFailed, match=r"longer than 0\.5 s"):
        judged(command=program(text), timeout_s=0.5)


@pytest.mark.parametrize("seconds", [0.0, 600.0])
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is killed")
def test_nothing_of_a_command_is_left(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = f"import os, time\nif os.fork() == 0:\n  os.setsid(); time.sleep(600)\ntime.sleep({seconds})"
    if seconds:
        with pytest.raises(JudgeFailed, match=r"longer than 1 s"):
            judged(command=program(text), timeout_s=1)
    else:
        assert value(command=program(text), reads="exit") == 1.0
    assert (processes(tmp_path), folders(tmp_path)) == ([], [])


def test_a_command_that_a_signal_ended_has_no_verdict() -> None:
    with pytest.raises(JudgeFailed, match="ended by signal 11"):
        judged(command=["sh", "-c", "kill -11 $$"], reads="exit")
    # What a shell says of what it ran is its own exit code.
    assert value(command=["sh", "-c", "sh -c 'kill -11 $$'; exit 139"], reads="exit") == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="memory can be limited on Linux only")
def test_a_command_has_its_memory() -> None:
    with pytest.raises(JudgeFailed, match="MemoryError"):
        judged(command=program("x = bytearray(1 << 30)"), memory_mb=512)


def test_a_command_sees_nothing_of_the_users_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARPROXY_TEST_SECRET", "s3cret")
    text = "import os; raise SystemExit('POLARPROXY_TEST_SECRET' in os.environ or os.listdir('.') != [])"
    assert value(command=program(text), reads="exit") == 1.0


def _can_cut() -> bool:
    code = f"import sys; sys.path.insert(0, {str(Path(sys.modules[cut_network.__module__].__file__ or '').parent)!r});"
    code += "import confined; sys.exit(not confined.cut_network())"
    return subprocess.run([sys.executable, "-I", "-c", code], check=False, timeout=30).returncode == 0


def test_a_command_has_no_network_where_the_platform_allows_it() -> None:
    if not _can_cut():
        pytest.skip("this platform lets nobody make a network of their own")
    text = (
        "import socket\nserver = socket.socket()\nserver.bind(('127.0.0.1', 0))\nserver.listen()\n"
        "try:\n    socket.create_connection(server.getsockname(), 5)\nexcept OSError:\n    raise SystemExit(0)\n"
        "raise SystemExit(1)"
    )
    assert value(command=program(text), reads="exit") == 1.0
