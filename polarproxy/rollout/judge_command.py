"""Judging by a command: the session as JSON on its input, a number on its output.

The result is the one output line that is a JSON object with the nonce of this run, which only the input tells. Code that is
judged runs inside the command, may print what it likes, and does not know the nonce unless the command gives it away.
"""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from polarproxy.credit.counting import passed_share
from polarproxy.credit.spec import Judgement
from polarproxy.errors import UNREADABLE, JudgeFailed
from polarproxy.rollout import confined
from polarproxy.rollout.confined import NOT_FOUND
from polarproxy.rollout.runtimes.folder import OwnFolder
from polarproxy.rollout.runtimes.hosted import SYSTEM_PATH
from polarproxy.rollout.supervised import run

if TYPE_CHECKING:
    from polarproxy.credit.spec import Component
    from polarproxy.credit.transcript import Transcript
    from polarproxy.model import Session
    from polarproxy.rollout.supervised import Done

_SHOWN = 300


class _Result(msgspec.Struct):
    nonce: str
    value: float | None
    components: dict[str, float] = {}


def judge_by_command(one: Component, session: Session, said: Transcript) -> Judgement:
    """What the component's command says of a session; raises `JudgeFailed` when it says nothing that can be used.

    It runs in an empty folder that is its HOME, without the user's environment; what it started ends with it.
    """
    nonce = secrets.token_hex(16)
    done = _run(one, _input(one, session, said, nonce))
    complaints = done.stderr.strip()[-_SHOWN:]
    if done.code is None:
        raise JudgeFailed(f"{one.name}: {(one.command or ('',))[0]} took longer than {one.timeout_s:g} s")
    if done.code == NOT_FOUND:
        raise JudgeFailed(f"{one.name}: {complaints}")
    if one.reads == "exit":
        if done.code < 0:
            raise JudgeFailed(f"{one.name}: the command was ended by signal {-done.code}: {complaints}")
        return Judgement(float(done.code == 0))
    if one.reads == "tests":
        return Judgement(passed_share(done.stdout + "\n" + done.stderr))
    return _result(one, done.stdout, nonce, f"exit code {done.code}: {complaints}")


def _input(one: Component, session: Session, said: Transcript, nonce: str) -> bytes:
    told = {
        "nonce": nonce,
        "session": asdict(session),
        "instruction": said.instruction,
        "turns": [asdict(turn) for turn in said.turns],
        "final_text": said.final_text,
        "options": one.options,
    }
    return msgspec.json.encode(encodable(told))


def encodable(value: object) -> object:
    """With question marks for halves of characters, which no encoding writes."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(own) for own in value]
    return value


def _run(one: Component, told: bytes) -> Done:
    limits = [str(one.memory_mb), str(int(one.timeout_s) + 1)]
    command = [sys.executable, "-I", "-S", str(Path(confined.__file__)), *limits, *(one.command or ())]
    with OwnFolder("judge") as own:
        home = own.path / "home"
        home.mkdir()
        path = os.environ.get("PATH", SYSTEM_PATH)
        environment = {"PATH": path, "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8"}
        return run(command, seconds=one.timeout_s, folder=home, env=environment, stdin=told)


def _result(one: Component, output: str, nonce: str, how: str) -> Judgement:
    found = []
    for line in output.splitlines():
        if nonce in line:
            try:
                result = msgspec.json.decode(line, type=_Result)
            except UNREADABLE as error:
                raise JudgeFailed(f"{one.name}: its result cannot be read: {error}") from error
            if result.nonce == nonce:
                found.append(result)
    if len(found) != 1:
        raise JudgeFailed(f"{one.name}: it printed {len(found)} results with the nonce of its input, not one ({how})")
    return Judgement(found[0].value, found[0].components)
