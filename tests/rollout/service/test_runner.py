"""A runner that starts where another one died, stops in order, and shares its database with others."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from polarproxy.errors import ProxyRefused
from polarproxy.model import Reward, SessionStatus
from polarproxy.rollout.runtimes.local import LocalRuntime
from polarproxy.rollout.service.gateway import Gateway
from polarproxy.rollout.service.lifecycle import Lifecycle
from polarproxy.rollout.service.ports import Order
from polarproxy.rollout.service.verdict import Verdict
from polarproxy.store.database import open_database
from polarproxy.store.ownership import Ownership
from polarproxy.store.task_rows import RolloutState, TaskState
from tests.postgres import Server
from tests.rollout.service.shop import SIMPLE, service, until

SAID = {"kind": "tests", "command": ["grep", "-q", "Hello", "said.txt"]}


async def test_after_a_crash_what_is_done_stays_and_what_ran_is_run_once_more(tmp_path: Path) -> None:
    async with service(tmp_path, running=False) as made:
        task = made.submit(num_samples=4, evaluator=SAID)
        # Ended and nobody noted it; closed and not judged; still open; without a session yet.
        ended, unjudged, unclosed, unmade = made.store.take("", 4)
        for one in (ended, unjudged, unclosed):
            assert one.session_id is not None
            await made.gateway.open_session(one.session_id, {})
        assert ended.session_id is not None
        assert unjudged.session_id is not None
        await made.gateway.close_session(ended.session_id, SessionStatus.TIMEOUT)
        await made.gateway.add_reward(ended.session_id, Reward(0.25))
        await made.gateway.close_session(unjudged.session_id, SessionStatus.COMPLETED)
        async with asyncio.timeout(60):
            await made.runner.run(until_done=True)
        first, *others = made.store.rollouts(task)
        assert (first.attempts, first.session_id) == (1, ended.session_id)
        assert first.outcome is not None
        assert (first.outcome.status, first.outcome.reward) == (SessionStatus.TIMEOUT, 0.25)
        assert [(one.attempts, one.outcome and one.outcome.reward) for one in others] == [(2, 1.0)] * 3
        sessions = {one.session.session_id: one.session for one in made.rig.parts.repository.sessions()}
        assert len(sessions) == 6
        for broken in (unjudged, unclosed):
            session = sessions[broken.session_id or ""]
            assert (session.status, session.reward) == (SessionStatus.INFRA_ERROR, None)
        assert made.store.task(task).state is TaskState.DONE
        assert unmade.session_id not in sessions


async def test_what_dies_twice_is_given_up(tmp_path: Path) -> None:
    async with service(tmp_path, running=False) as made:
        task = made.submit(evaluator=SAID)
        made.store.take("", 1)
        made.store.run_again(task, 0)
        made.store.take("", 1)
        async with asyncio.timeout(30):
            await made.runner.run(until_done=True)
        (one,) = made.store.rollouts(task)
        assert one.outcome is not None
        assert (one.outcome.status, one.attempts) == (SessionStatus.INFRA_ERROR, 2)


async def test_a_stop_in_order_gives_back_what_runs(tmp_path: Path) -> None:
    async with service(tmp_path, running=False) as made:
        task = made.submit(SIMPLE + "import time; time.sleep(60)", num_samples=2)
        working = asyncio.create_task(made.runner.run())
        await until(lambda: len(made.rig.received) == 2)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        assert [(one.state, one.attempts) for one in made.store.rollouts(task)] == [(RolloutState.WAITING, 0)] * 2
        statuses = {entry.session.status for entry in made.rig.parts.repository.sessions()}
        assert statuses == {SessionStatus.ABORTED}
        assert made.shop.left() == []


async def test_the_urgent_come_first(tmp_path: Path) -> None:
    async with service(tmp_path, running=False) as made:
        slow, urgent = made.submit(num_samples=6), made.submit(num_samples=1, priority=9)
        async with asyncio.timeout(60):
            await made.runner.run(until_done=True)
        started = {task: made.store.rollouts(task)[-1].started_at for task in (slow, urgent)}
        first, last = started[urgent], started[slow]
        assert first is not None
        assert last is not None
        assert first <= last
        assert made.finished[0].rollout.task_id in (urgent, slow)


async def test_a_database_that_is_away_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(tmp_path, running=False) as made:
        task = made.submit(evaluator=SAID)
        refused = 0
        finish = made.store.finish

        def refuse_once(*arguments: object) -> None:
            nonlocal refused
            refused += 1
            if refused == 1:
                raise OperationalError("finish", None, Exception("away"))
            finish(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(made.store, "finish", refuse_once)
        async with asyncio.timeout(60):
            await made.runner.run(until_done=True)
        assert refused == 2
        assert made.store.task(task).state is TaskState.DONE


def test_a_job_has_one_runner(postgres: Server) -> None:
    with postgres.temporary() as url:
        first, second = open_database(url), open_database(url)
        one, other, another = Ownership(first, "j"), Ownership(second, "j"), Ownership(second, "k")
        try:
            assert one.held()
            assert one.held()
            assert not other.held()
            assert another.held()
            one.release()
            assert other.held()
            assert not one.held()
        finally:
            for held in (one, other, another):
                held.release()
            first.dispose()
            second.dispose()


def test_a_sqlite_file_has_one_process_anyway(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/x.db", create=True)
    assert Ownership(engine, "j").held()
    assert Ownership(engine, "j").held()
    engine.dispose()


async def test_many_sessions_are_ended_together(tmp_path: Path) -> None:
    async with service(tmp_path, running=False) as made:
        gateway = made.gateway
        names = [f"s{number}" for number in range(20)]
        for name in names:
            await gateway.open_session(name, {})
        ends = (gateway.close_session(name, SessionStatus.ABORTED) for name in [*names, "nobody"])
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert found[:-1] == [None] * 20
        assert isinstance(found[-1], ProxyRefused)
        statuses = {entry.session.status for entry in made.rig.parts.repository.sessions()}
        assert statuses == {SessionStatus.ABORTED}


async def test_those_who_fail_together_all_hear_of_it(tmp_path: Path) -> None:
    async with Gateway("http://127.0.0.1:9") as gateway:
        ends = (gateway.close_session(f"s{number}", SessionStatus.ABORTED) for number in range(5))
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert [type(one) for one in found] == [ProxyRefused] * 5


async def test_a_runtime_that_cannot_be_removed_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(tmp_path, running=False) as made:
        stop = LocalRuntime.stop

        async def stop_badly(runtime: LocalRuntime) -> None:
            await stop(runtime)
            raise OSError(9, "Bad file descriptor")

        monkeypatch.setattr(LocalRuntime, "stop", stop_badly)
        task = made.submit(evaluator=SAID)
        async with asyncio.timeout(60):
            await made.runner.run(until_done=True)
        (one,) = made.store.rollouts(task)
        assert one.outcome is not None
        assert (one.outcome.status, one.outcome.reward, one.attempts) == (SessionStatus.COMPLETED, 1.0, 1)


async def test_a_fault_of_an_executor_ends_the_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(tmp_path, running=False) as made:

        async def broken(_self: Lifecycle, _order: object) -> None:
            raise RuntimeError("oh")

        monkeypatch.setattr(Lifecycle, "run", broken)
        task = made.submit(evaluator=SAID)
        async with asyncio.timeout(60):
            await made.runner.run(until_done=True)
        (one,) = made.store.rollouts(task)
        assert one.outcome is not None
        assert (one.outcome.status, one.attempts) == (SessionStatus.INFRA_ERROR, 2)


async def test_what_had_ended_before_its_node_was_lost_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(tmp_path) as made:
        whole = made.runner._executor.run

        async def lost(order: Order) -> Verdict:
            await whole(order)
            verdict = Verdict()
            verdict.fail(SessionStatus.INFRA_ERROR, "its node was lost")
            return verdict

        monkeypatch.setattr(made.runner._executor, "run", lost)
        (one,) = await made.done(made.submit())
        assert one.attempts == 1
        assert one.outcome is not None
        assert one.outcome.status is SessionStatus.COMPLETED
        assert len(made.rig.received) == 1
