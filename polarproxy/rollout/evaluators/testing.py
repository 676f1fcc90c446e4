"""Judging by tests: run by a witness that says how each one went, or by any program."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.credit.counting import count_tests
from polarproxy.errors import UNREADABLE, JudgeFailed
from polarproxy.model import ComponentKind, Reward, RewardComponent
from polarproxy.rollout.evaluators import witness
from polarproxy.rollout.runtimes.budget import Budget

if TYPE_CHECKING:
    from polarproxy.rollout.evaluators.asked import TestMap, Tests
    from polarproxy.rollout.evaluators.evidence import Evidence
    from polarproxy.rollout.runtimes.protocol import Ended, Runtime

_NOT_THERE = (126, 127)
_SHOWN = 500

How = Literal["pass", "fail", "skip"]


class _Line(msgspec.Struct):
    nonce: str
    tests: dict[str, How]


async def judge_tests(asked: Tests, evidence: Evidence) -> Reward:
    """Components: `passed` (all of them), and as metrics how many passed and failed."""
    where = await evidence.place(fresh=asked.fresh, files=asked.files)
    if asked.runner is None:
        return await _by_program(asked, where)
    tests = await _witnessed(asked, where)
    good, bad = (sum(how == word for how in tests.values()) for word in ("pass", "fail"))
    return _counted(asked, good, bad, ended_well=True)


async def judge_test_map(asked: TestMap, evidence: Evidence) -> Reward:
    """Components: `resolved`, and as metrics the shares of tests to pass and to fail that did."""
    where = await evidence.place(fresh=asked.fresh, files=asked.files)
    tests = await _witnessed(asked, where)
    met = {name: (tests.get(name) == "pass") == (how == "pass") for name, how in asked.expected.items()}
    # A test that is to fail must have run: one that is gone was not fixed, and not kept.
    met |= {name: tests.get(name) == "fail" for name, how in asked.expected.items() if how == "fail"}
    share = sum(met.values()) / len(met)
    resolved = float(all(met.values()))
    parts = [RewardComponent("resolved", resolved)]
    for word in ("pass", "fail"):
        named = [met[name] for name, how in asked.expected.items() if how == word]
        if named:
            parts.append(RewardComponent(f"to_{word}", sum(named) / len(named), ComponentKind.METRIC))
    return Reward(share if asked.share else resolved, tuple(parts))


async def _witnessed(asked: Tests | TestMap, where: Runtime) -> dict[str, How]:
    """How each test went, by its id; none when the code under test ended the run. Raises `JudgeFailed`."""
    nonce = secrets.token_hex(16)
    script = f"{where.temporary}/{secrets.token_hex(8)}.py"
    await where.put(script, Path(witness.__file__).read_bytes())  # noqa: ASYNC240
    command = [asked.python, "-I", script, asked.runner or "", *asked.arguments]
    ended = await where.exec(command, env={}, budget=Budget(asked.timeout_s), stdin=nonce.encode() + b"\n")
    _check_started(asked.python, ended)
    for line in ended.stdout.splitlines():
        if nonce in line:
            try:
                told = msgspec.json.decode(line, type=_Line)
            except UNREADABLE:
                continue
            if told.nonce == nonce:
                if not told.tests and "ModuleNotFoundError: No module named 'pytest'" in ended.stderr:
                    raise JudgeFailed(f"{asked.title}: {asked.python} in the runtime has no pytest")
                return told.tests
    return {}


async def _by_program(asked: Tests, where: Runtime) -> Reward:
    ended = await where.exec(asked.command, env={}, budget=Budget(asked.timeout_s))
    _check_started(asked.command[0], ended)
    counts = count_tests(ended.stdout + "\n" + ended.stderr)
    if counts is None:
        if asked.share:
            return _counted(asked, 0, 0, ended_well=False)
        passed = float(ended.exit_code == 0 and ended.stopped_by is None)
        return Reward(passed, (RewardComponent("passed", passed),))
    return _counted(asked, *counts, ended_well=ended.exit_code == 0 and ended.stopped_by is None)


def _counted(asked: Tests, good: int, bad: int, *, ended_well: bool) -> Reward:
    enough = good + bad >= asked.least
    passed = float(enough and not bad and ended_well)
    share = good / max(good + bad, asked.least) if good + bad else 0.0
    parts = (
        RewardComponent("passed", passed),
        RewardComponent("tests_passed", float(good), ComponentKind.METRIC),
        RewardComponent("tests_failed", float(bad), ComponentKind.METRIC),
    )
    return Reward(share if asked.share else passed, parts)


def _check_started(program: str, ended: Ended) -> None:
    if ended.exit_code in _NOT_THERE:
        raise JudgeFailed(f"{program} cannot be run in the runtime: {ended.stderr.strip()[-_SHOWN:]}")
