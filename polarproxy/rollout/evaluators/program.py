"""Judging by a program in the runtime that writes its reward into a file.

It is told on its input, as JSON: a nonce, where to write, the instruction, how the harness ended and what it changed. Code
that it starts knows neither the nonce nor the place unless the program gives them away.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from polarproxy.credit.given import GivenReward
from polarproxy.errors import UNREADABLE, BadReward, JudgeFailed
from polarproxy.rollout.judge_command import encodable
from polarproxy.rollout.runtimes.budget import Budget

if TYPE_CHECKING:
    from polarproxy.model import Reward
    from polarproxy.rollout.evaluators.asked import Program
    from polarproxy.rollout.evaluators.evidence import Evidence

_SHOWN = 500


class _Given(GivenReward, forbid_unknown_fields=True, kw_only=True):
    nonce: str


async def judge_by_program(asked: Program, evidence: Evidence) -> Reward:
    """Raises `JudgeFailed` when the program says nothing that can be used."""
    where = await evidence.place(fresh=asked.fresh, files=asked.files)
    nonce, answer = secrets.token_hex(16), f"{where.temporary}/{secrets.token_hex(8)}/reward.json"
    # The folder of the file is there for the program to write into.
    await where.put(answer, b"")
    told = {
        "nonce": nonce,
        "reward_file": answer,
        "session_id": evidence.session.session_id,
        "status": evidence.session.status,
        "instruction": evidence.instruction,
        "exit_code": evidence.ended.exit_code,
        "output": evidence.ended.stdout,
        "patch": (await evidence.patch()).decode(errors="replace"),
        "metadata": dict(evidence.session.metadata),
        "options": asked.options,
    }
    stdin = msgspec.json.encode(encodable(told))
    ended = await where.exec(asked.command, env={}, budget=Budget(asked.timeout_s), stdin=stdin)
    how = f"exit code {ended.exit_code}: {ended.stderr.strip()[-_SHOWN:]}"
    if ended.stopped_by is not None:
        raise JudgeFailed(f"{asked.title}: {asked.command[0]} was stopped ({ended.stopped_by})")
    written = await where.get(answer)
    if not written:
        raise JudgeFailed(f"{asked.title}: {asked.command[0]} wrote nothing into its reward_file ({how})")
    try:
        given = msgspec.json.decode(written, type=_Given)
        reward = given.reward()
    except (*UNREADABLE, BadReward) as error:
        raise JudgeFailed(f"{asked.title}: its reward cannot be read: {error} ({how})") from error
    if given.nonce != nonce:
        raise JudgeFailed(f"{asked.title}: its reward is not from this run: it lacks the nonce ({how})")
    return reward
