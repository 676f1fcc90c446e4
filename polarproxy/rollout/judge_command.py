"""Judging by a command: the session as JSON on its input, a number on its output.

The result is the one output line that is a JSON object with the nonce of this run, which only the input tells. Code that is
judged runs inside the command, may print what it likes, and does not know the nonce unless the command gives it away.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from polarproxy.credit.counting import passed_share
from polarproxy.credit.spec import Judgement
from polarproxy.errors import JudgeFailed
from polarproxy.rollout import confined
from polarproxy.rollout.confined import NOT_FOUND
from polarproxy.rollout.runtimes.hosted import SYSTEM_PATH

if TYPE_CHECKING:
    from typing import IO

    from polarproxy.credit.spec import Component
    from polarproxy.credit.transcript import Transcript
    from polarproxy.model import Session

_MOST_OUTPUT = 4 << 20
"""Bytes of output that are read; what comes later is a program that does not know when to stop."""
_SHOWN = 300


class _Result(msgspec.Struct):
    nonce: str
    value: float | None
    components: dict[str, float] = {}


def judge_by_command(one: Component, session: Session, said: Transcript) -> Judgement:
    """What the component's command says of a session; raises `JudgeFailed` when it says nothing that can be used.

    It runs in an empty folder that is its HOME, without the user's environment, in a process group that is killed at the end.
    """
    nonce = secrets.token_hex(16)
    code, output, complaints, timed_out = _run(one, _input(one, session, said, nonce))
    if timed_out:
        raise JudgeFailed(f"{one.name}: {(one.command or ('',))[0]} took longer than {one.timeout_s:g} s")
    if code == NOT_FOUND:
        raise JudgeFailed(f"{one.name}: {complaints.strip()[-_SHOWN:]}")
    if one.reads == "exit":
        if code < 0:
            raise JudgeFailed(f"{one.name}: the command was ended by signal {-code}: {complaints.strip()[-_SHOWN:]}")
        return Judgement(float(code == 0))
    if one.reads == "tests":
        return Judgement(passed_share(output + "\n" + complaints))
    return _result(one, output, nonce, f"exit code {code}: {complaints.strip()[-_SHOWN:]}")


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


def _run(one: Component, told: bytes) -> tuple[int, str, str, bool]:
    """Exit code, output, complaints, and whether it ran out of time."""
    limits = [str(one.memory_mb), str(int(one.timeout_s) + 1)]
    command = [sys.executable, "-I", "-S", str(Path(confined.__file__)), *limits, *(one.command or ())]
    with (
        tempfile.TemporaryDirectory(prefix="polarproxy-judge-", ignore_cleanup_errors=True) as folder,
        # Files, not pipes: a descendant that outlives the command cannot keep us waiting for the end of its output.
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(told)
        stdin.seek(0)
        path = os.environ.get("PATH", SYSTEM_PATH)
        environment = {"PATH": path, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(one.timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        return code, _text(stdout), _text(stderr), timed_out


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT).decode(errors="replace")


def _result(one: Component, output: str, nonce: str, how: str) -> Judgement:
    found = []
    for line in output.splitlines():
        if nonce in line:
            try:
                result = msgspec.json.decode(line, type=_Result)
            except (msgspec.DecodeError, RecursionError) as error:
                raise JudgeFailed(f"{one.name}: its result cannot be read: {error}") from error
            if result.nonce == nonce:
                found.append(result)
    if len(found) != 1:
        raise JudgeFailed(f"{one.name}: it printed {len(found)} results with the nonce of its input, not one ({how})")
    return Judgement(found[0].value, found[0].components)
