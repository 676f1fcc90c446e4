"""Rollouts through all their stages, over a real proxy: statuses, rewards, time, and nothing left behind."""

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polarproxy.errors import InvalidValue
from polarproxy.model import SessionStatus
from polarproxy.rollout.service.ports import Pools
from polarproxy.rollout.service.verdict import Detail
from polarproxy.store.task_rows import Outcome, Rollout, TaskState
from tests.fakes import Faults, always, compose
from tests.rollout.left import folders, processes
from tests.rollout.service.shop import SIMPLE, Service, gone, service, until

SAID = {"kind": "tests", "command": ["grep", "-q", "Hello", "said.txt"]}


def outcome(rollout: Rollout) -> Outcome:
    assert rollout.outcome is not None
    return rollout.outcome


def detail(rollout: Rollout) -> Detail:
    return msgspec.json.decode(outcome(rollout).detail, type=Detail)


def session_status(made: Service, rollout: Rollout) -> SessionStatus:
    assert rollout.session_id is not None
    return made.rig.parts.repository.session(rollout.session_id).status


async def test_a_task_is_run_judged_and_recorded(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        task = made.submit(num_samples=3, evaluator=SAID, metadata={"a": "b"}, group="g")
        rollouts = await made.done(task)
        assert [(outcome(one).status, outcome(one).usable, outcome(one).reward) for one in rollouts] == [
            (SessionStatus.COMPLETED, True, 1.0)
        ] * 3
        told = detail(rollouts[0])
        assert (told.turns, told.exit_code, told.error, told.components) == (1, 0, None, {"passed": 1.0})
        assert told.completion_tokens > 0
        assert set(told.seconds) == {"init", "ready", "run", "post"}
        for place, one in enumerate(rollouts):
            assert one.session_id is not None
            session = made.rig.parts.repository.session(one.session_id)
            assert (session.status, session.group_id, session.task_id) == (SessionStatus.COMPLETED, "g", task)
            assert session.reward is not None
            assert session.reward.value == 1.0
            assert dict(session.metadata) == {"a": "b", "rollout": f"{task}/{place}"}
            assert len(made.rig.calls(one.session_id)) == 1
        assert made.shop.left() == []
        assert len(made.finished) == 3


CASES: list[tuple[str, dict[str, Any], SessionStatus, float | None]] = [
    ("raise SystemExit(3)", {}, SessionStatus.AGENT_ERROR, None),
    (SIMPLE + "raise SystemExit(3)", {"judge_unfinished": True}, SessionStatus.AGENT_ERROR, 1.0),
    (SIMPLE + "import time; time.sleep(60)", {"timeout_s": 2.0}, SessionStatus.TIMEOUT, None),
    (SIMPLE + "import time; time.sleep(60)", {"timeout_s": 2.0, "judge_unfinished": True}, SessionStatus.TIMEOUT, 1.0),
    ("pass", {}, SessionStatus.AGENT_ERROR, None),
    (SIMPLE, {"evaluator": {"kind": "tests", "command": ["nobody"]}}, SessionStatus.EVALUATOR_ERROR, None),
    (SIMPLE, {"runtime": {"folder": "/nowhere/at/all"}}, SessionStatus.INFRA_ERROR, None),
]


async def test_how_rollouts_end(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        tasks = [made.submit(program, **({"evaluator": SAID} | more)) for program, more, _, _ in CASES]
        ended = await made.done(*tasks)
        found = [(outcome(one).status, outcome(one).reward) for one in ended]
        assert found == [(status, reward) for _, _, status, reward in CASES]
        for one in ended[:-1]:
            assert session_status(made, one) is outcome(one).status
            assert outcome(one).usable == (outcome(one).reward is not None)
        # A partial trajectory is kept.
        assert all(len(made.rig.calls(one.session_id or "")) == 1 for one in ended[1:4])
        assert detail(ended[4]).error == "the harness ended without asking the model anything"
        assert "cannot be made" in (detail(ended[-1]).error or "")
        assert ended[-1].attempts == 2


async def test_an_engine_that_fails_is_not_the_harness_s_fault(tmp_path: Path) -> None:
    async with service(tmp_path, always(compose("x"), faults=Faults(status=500))) as made:
        (one,) = await made.done(made.submit(evaluator=SAID))
        assert (outcome(one).status, one.attempts) == (SessionStatus.INFRA_ERROR, 2)


async def test_only_running_uses_up_the_time(tmp_path: Path) -> None:
    async with service(tmp_path, pools=Pools(init=1, ready=1, run=1, post=1)) as made:
        await made.rig.control("POST", "/api/generation/pause")
        await asyncio.sleep(0.4)
        task = made.submit("ask('a'); ask('b')", num_samples=2, timeout_s=1.5)
        await asyncio.sleep(2.5)
        await made.rig.control("POST", "/api/generation/resume")
        ended = await made.done(task)
        assert [outcome(one).status for one in ended] == [SessionStatus.COMPLETED] * 2


async def test_a_runtime_is_made_ready_while_another_runs(tmp_path: Path) -> None:
    async with service(tmp_path, pools=Pools(init=1, ready=1, run=1, post=1)) as made:
        made.submit(SIMPLE + "import time; time.sleep(30)", num_samples=3, task_id="t")
        await until(lambda: len(made.shop.started) == 2 and len(made.rig.engine.requests) > 0)
        await asyncio.sleep(0.3)
        assert len(made.shop.started) == 2
        assert made.runner.active == 3
        made.store.cancel("t")
        made.runner.wake()
        await made.done("t")


async def test_cancelling_kills_everything_at_once(tmp_path: Path) -> None:
    program = "import os, subprocess, time\nopen('/proc/self/oom_score_adj')\n"
    program += "child = subprocess.Popen(['sleep', '77'], start_new_session=True)\nask(str(child.pid))\ntime.sleep(60)"
    async with service(tmp_path) as made:
        task = made.submit(program, num_samples=5)
        await until(lambda: len(made.rig.received) == 3)
        pids = [int(one.json["messages"][0]["content"]) for one in made.rig.received]
        assert not any(map(gone, pids))
        made.store.cancel(task)
        made.runner.wake()
        rollouts = await made.done(task, seconds=10)
        assert all(map(gone, pids))
        assert made.shop.left() == []
        assert made.store.task(task).state is TaskState.CANCELLED
        assert {one.state.value for one in rollouts} == {"skipped"}
        begun = [one for one in rollouts if one.attempts]
        assert {session_status(made, one) for one in begun if len(made.rig.calls(one.session_id or ""))} == {
            SessionStatus.ABORTED
        }


async def test_cancelling_before_and_after_the_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While runtimes are made, and while evaluators judge: it is over at once, and nothing is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nsetsid sleep 600 & sleep 600\n")
    (slow / "git").chmod(0o755)
    path = os.environ["PATH"]
    async with service(tmp_path) as made:
        monkeypatch.setenv("PATH", f"{slow}:{path}")
        first = made.submit(num_samples=2, runtime={"kind": "local", "git": "ssh://host/it"})
        await until(lambda: processes(tmp_path).count("sleep 600") == 4)
        await cancelled(made, first)
        monkeypatch.setenv("PATH", path)
        judge = {"kind": "tests", "command": ["sh", "-c", "setsid sleep 601 & sleep 601"], "fresh": False}
        second = made.submit(num_samples=2, evaluator=judge)
        await until(lambda: processes(tmp_path).count("sleep 601") == 4)
        await cancelled(made, second)
        assert (processes(tmp_path), folders(tmp_path)) == ([], [])
        # Never begun, they have no session; ended and not judged, they are in no baseline.
        sessions = [entry.session for entry in made.rig.parts.repository.sessions()]
        assert {(one.task_id, one.status, one.reward) for one in sessions} == {(second, SessionStatus.ABORTED, None)}


async def cancelled(made: Service, task: str) -> None:
    for _ in range(2):
        made.store.cancel(task)
        made.runner.wake()
    assert {one.state.value for one in await made.done(task, seconds=20)} == {"skipped"}


async def test_enough_is_enough(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        task = made.submit(num_samples=30, enough=2, evaluator=SAID)
        rollouts = await made.done(task)
        usable = [one for one in rollouts if one.outcome is not None and one.outcome.usable]
        assert 2 <= len(usable) <= 5
        assert len([one for one in rollouts if one.state.value == "skipped"]) >= 25


async def test_a_reward_specification_over_the_components(tmp_path: Path) -> None:
    spec = {"components": [{"name": "passed", "weight": 2.0}, {"name": "style", "judge": "max_turns", "weight": 0.0}]}
    async with service(tmp_path) as made:
        spec["components"].pop()
        (one,) = await made.done(made.submit(evaluator=SAID, reward=spec))
        assert outcome(one).reward == 2.0
        assert one.session_id is not None
        reward = made.rig.parts.repository.session(one.session_id).reward
        assert reward is not None
        assert [part.name for part in reward.components] == ["passed"]


@pytest.mark.parametrize(
    ("keep", "why"),
    [
        ({"min_reward": 2.0}, "min_reward"),
        ({"max_reward": 0.5}, "max_reward"),
        ({"min_turns": 2}, "min_turns"),
        ({"max_turns": 0}, "max_turns"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"statuses": ["timeout"]}, "completed"),
        ({"min_reward": 1.0, "max_reward": 1.0, "min_turns": 1, "max_turns": 1}, None),
    ],
)
async def test_what_is_kept(tmp_path: Path, keep: dict[str, Any], why: str | None) -> None:
    async with service(tmp_path) as made:
        (one,) = await made.done(made.submit(evaluator=SAID, keep=keep))
        assert outcome(one).usable == (why is None)
        assert detail(one).left_out == why


def test_pools_without_places() -> None:
    with pytest.raises(InvalidValue, match="post"):
        Pools(post=0)
