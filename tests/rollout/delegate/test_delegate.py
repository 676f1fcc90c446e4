"""A trainer hands out rollouts and asks for replies over queues, and is answered once the work is stored."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from polarproxy.errors import QueueFailed
from polarproxy.model import SessionStatus
from polarproxy.rollout.delegate.messages import LONGEST_ID
from polarproxy.rollout.delegate.queues import Delivery, LocalQueue
from polarproxy.rollout.delegate.worker import Pace
from tests.rollout.delegate.desk import Desk, desk, generate, rollout
from tests.rollout.service.shop import ASK, SIMPLE, until

SAID = {"kind": "tests", "command": ["grep", "-q", "Hello", "said.txt"]}
SLOW = "import time\n" + SIMPLE + "time.sleep(1.5)\n"


def sessions(made: Desk) -> list[str]:
    return [one.session.session_id for one in made.made.rig.parts.repository.sessions()]


async def test_a_rollout_is_run_judged_and_told_with_its_reward_and_where_its_tokens_lie(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        response = await made.answer_to(rollout(num_samples=2, evaluator=SAID, group="g"))
        await made.worked_off()
        assert (response["version"], response["type"], response["id"]) == ("v0", "rollout_response", "r1")
        assert response["state"] == "done"
        assert response["left_out"] == 0
        assert [one["id"] for one in response["rollouts"]] == ["r1/0", "r1/1"]
        for one in response["rollouts"]:
            assert (one["status"], one["aggregate_reward_score"], one["usable"]) == ("completed", 1.0, True)
            assert one["metrics_list"]
            assert all(set(metric) == {"name", "value", "type"} for metric in one["metrics_list"])
            assert {metric["type"] for metric in one["metrics_list"]} <= {"Reward", "Penalty", "Metric"}
            assert "Reward" in {metric["type"] for metric in one["metrics_list"]}
            trajectory = one["trajectory"]
            assert (trajectory["task_id"], trajectory["group_id"]) == (response["task_id"], "g")
            (call,) = made.made.rig.calls(trajectory["session_id"])
            assert trajectory["turns"] == 1
            assert trajectory["completion_tokens"] == len(call.call.completions[0].token_ids)
            session = made.made.rig.parts.repository.session(trajectory["session_id"])
            assert session.reward is not None
            assert session.reward.value == one["aggregate_reward_score"]


async def test_a_request_that_comes_again_is_answered_in_the_same_way_and_not_run_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        first = await made.answer_to(rollout(num_samples=2, evaluator=SAID))
        assert await made.answer_to(rollout(num_samples=2, evaluator=SAID)) == first
        assert len(sessions(made)) == 2
        other = await made.answer_to(rollout(num_samples=3, evaluator=SAID))
        assert (other["type"], other["id"]) == ("error", "r1")
        assert "another task" in other["error"]
        assert len(sessions(made)) == 2


async def test_two_that_come_at_once_are_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.ask(rollout())
        await made.ask(rollout())
        assert await made.answer() == await made.answer()
        assert len(sessions(made)) == 1


async def test_a_request_stays_hidden_for_as_long_as_its_rollout_runs(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.ask(rollout(instruction=SLOW))
        await until(lambda: sessions(made))
        # Longer than it was hidden for at first.
        await asyncio.sleep(0.9)
        assert await made.asked.receive(1, 60.0) == []
        response = await made.answer()
        assert [one["status"] for one in response["rollouts"]] == ["completed"]
        await made.worked_off()


async def test_what_a_delegate_that_stops_had_under_way_is_answered_by_the_next_one(tmp_path: Path) -> None:
    async with desk(tmp_path, working=False) as made:
        await made.ask(rollout(instruction=SLOW))
        async with made.working(Pace(most=1, visible_s=600.0)):
            await until(lambda: sessions(made))
        async with made.working():
            response = await made.answer()
        assert [one["status"] for one in response["rollouts"]] == ["completed"]
        assert len(sessions(made)) == 1


async def test_a_response_that_cannot_be_sent_leaves_the_request_in_the_queue(tmp_path: Path) -> None:
    async with desk(tmp_path, answered=Shaky(2)) as made:
        response = await made.answer_to(rollout())
        assert [one["status"] for one in response["rollouts"]] == ["completed"]
        await made.worked_off()
        assert len(sessions(made)) == 1
        assert made.said == ["no way in", "no way in"]


async def test_a_failed_rollout_and_a_cancelled_task_are_told_without_a_reward(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        failed = await made.answer_to(rollout("bad", SIMPLE + "sys.exit(3)\n", evaluator=SAID))
        (one,) = failed["rollouts"]
        assert (one["status"], one["aggregate_reward_score"], one["metrics_list"]) == ("agent_error", None, [])
        assert not one["usable"]
        await made.ask(rollout("slow", "import time; time.sleep(60)", num_samples=5))
        await until(lambda: made.made.runner.active)
        (task,) = [one for one in made.made.store.tasks() if one.key == "delegate/slow"]
        made.made.store.cancel(task.task_id)
        made.made.runner.wake()
        response = await made.answer()
        assert (response["state"], response["task_id"]) == ("cancelled", task.task_id)
        assert [one["state"] for one in response["rollouts"]] == ["skipped"] * 5
        assert {one["status"] for one in response["rollouts"]} == {None}


BAD: list[tuple[Any, str | None, str]] = [
    ("", None, "no JSON object"),
    ("[]", None, "no JSON object"),
    ("{" * 100_000, None, "no JSON object"),
    ('{"a":' * 5_000 + "1" + "}" * 5_000, None, ""),
    ({"id": "x"}, "x", "speaks version 'v0'"),
    (rollout("x") | {"version": "v1"}, "x", "'v1'"),
    ({"version": "v0", "id": "x"}, "x", "type"),
    ({"version": "v0", "id": 7, "type": "rollout_request"}, None, "id"),
    (rollout("x") | {"type": "rollout_response"}, "x", "rollout_response"),
    (rollout("x") | {"prio": 1}, "x", "prio"),
    (rollout("x", num_sample=1), "x", "num_sample"),
    (rollout("x", num_samples=0), "x", "num_samples must lie"),
    (rollout("x", runtime={"limits": {"memory_mb": -1}}), "x", ""),
    (rollout("x", harness="nobody"), "x", "nobody"),
    (rollout("x", " "), "x", "instruction is empty"),
    (rollout(""), "", "1 to 200"),
    (rollout("x" * (LONGEST_ID + 1)), None, "not 201"),
    (generate("x", sampling={"n": 2}), "x", "'n'"),
    (generate("x", sampling={"stream": True}), "x", "'stream'"),
    (generate("x", messages=[]), "x", "400"),
    (generate("x", session_id="no/../session"), "x", "cannot name a session"),
]


async def test_what_cannot_be_worked_off_is_answered_with_the_reason_and_does_not_come_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for message, name, why in BAD:
            response = await made.answer_to(message)
            assert response["type"] == "error", message
            assert (response["version"], response["id"]) == ("v0", name), message
            assert why in response["error"], (message, response["error"])
            assert len(response["error"]) <= 2000
            await made.worked_off()
        assert made.made.store.tasks() == []
        assert made.said == []


async def test_any_character_may_stand_in_a_message(tmp_path: Path) -> None:
    program = ASK + "raise SystemExit('\\ufffe\\uffff\\x00\\x1b \\U0001f600')\n"
    async with desk(tmp_path) as made:
        response = await made.answer_to(rollout("\ufffe\uffff 😀\x00", program + "# \ufffe😀"))
        assert response["id"] == "\ufffe\uffff 😀\x00"
        assert response["rollouts"][0]["status"] == "agent_error"


async def test_results_that_do_not_fit_are_left_out_and_can_be_had_from_the_task(tmp_path: Path) -> None:
    async with desk(tmp_path, answered=LocalQueue(most_bytes=900)) as made:
        response = await made.answer_to(rollout(num_samples=4))
        assert (response["rollouts"], response["left_out"]) == ([], 4)
        found = made.made.store.rollouts(response["task_id"])
        assert [one.outcome and one.outcome.status for one in found] == [SessionStatus.COMPLETED] * 4
        reply = await made.answer_to(generate(messages=[{"role": "user", "content": "a long one " * 100}]))
        assert (reply["type"], reply["id"]) == ("error", "g1")
        assert "does not fit" in reply["error"]
        await made.worked_off()


class Late(LocalQueue):
    """Takes a message, and gives it a while later."""

    taken = False

    async def receive(self, most: int, visible_s: float) -> list[Delivery]:
        found = await super().receive(most, visible_s)
        if found and not self.taken:
            self.taken = True
            await asyncio.sleep(0.3)
        return found


async def test_what_is_received_while_a_delegate_stops_is_not_kept(tmp_path: Path) -> None:
    async with desk(tmp_path, asked=(asked := Late()), working=False) as made:
        await made.ask(generate())
        async with made.working(Pace(most=1, visible_s=600.0)):
            await until(lambda: asked.taken)
        async with made.working():
            assert (await made.answer())["type"] == "generate_response"


class Shaky(LocalQueue):
    """Fails the first times that something is sent."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures

    async def send(self, text: str) -> None:
        if self._failures:
            self._failures -= 1
            raise QueueFailed("no way in")
        await super().send(text)


class Down(LocalQueue):
    """Gives nothing the first time."""

    failed = False

    async def receive(self, most: int, visible_s: float) -> list[Delivery]:
        if not self.failed:
            self.failed = True
            raise QueueFailed("no way out")
        return await super().receive(most, visible_s)


async def test_a_queue_that_is_away_for_a_while_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polarproxy.rollout.delegate.worker._TROUBLE_S", 0.05)
    async with desk(tmp_path, asked=Down()) as made:
        assert (await made.answer_to(generate()))["type"] == "generate_response"
        assert made.said == ["no way out"]
