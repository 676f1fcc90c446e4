"""Wrong use and bad luck end in a sentence and the right exit code, never in a stack trace."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.cli.command import Command
from tests.fakes import FakeEngine, always, compose

WRONG_USE = [
    ("sessions", "show", "nobody"),
    ("calls", "show", "nobody"),
    ("trajectories", "show", "nobody"),
    ("reward", "set", "nobody", "1"),
    ("reward", "set", "good", "nan"),
    ("reward", "set", "good", "inf"),
    ("reward", "set", "good", "1", "--component", "a"),
    ("reward", "set", "good", "1", "--component", "=1"),
    ("reward", "set", "good", "1", "--component", "a=nan"),
    ("reward", "set", "good", "much"),
    ("reward", "set", "good", "1", "--component", "a=1", "--component", "a=2"),
    ("sessions", "list", "--limit", "many"),
    ("sessions", "list", "--limit", "-3"),
    ("calls", "list", "--session", "nosuch"),
    ("sessions", "nothing"),
    ("calls", "show"),
    ("sessions", "list", "--jsno"),
]


@pytest.mark.parametrize("arguments", WRONG_USE, ids=" ".join)
def test_wrong_use_is_2(polarproxy: Command, db: str, arguments: tuple[str, ...]) -> None:
    done = polarproxy(*arguments, "--db", db)
    assert done.code == 2
    assert done.out == ""
    assert done.err


def test_two_components_of_one_name_are_told_in_a_sentence(polarproxy: Command, db: str) -> None:
    done = polarproxy("reward", "set", "good", "1", "--component", "a=1", "--component", "a=2", "--db", db)
    assert done.err.startswith("error: session good: a reward has two components of one name")


def test_a_model_that_is_not_there_is_2_and_leaves_no_folder(polarproxy: Command) -> None:
    done = polarproxy("demo", "--model", "nothere.gguf")
    assert (done.code, done.out) == (2, "")
    assert "nothere.gguf" in done.err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("command", ["doctor", "serve"])
def test_an_engine_nobody_knows_is_2_and_the_choices_are_named(polarproxy: Command, command: str) -> None:
    done = polarproxy(command, "--engine", "vlm")
    assert done.code == 2
    assert done.err == "error: --engine must be one of auto, vllm, llamacpp, plain, not 'vlm'\n"


READERS = [
    ("sessions", "list"),
    ("sessions", "show", "x"),
    ("calls", "list"),
    ("calls", "show", "x"),
    ("trajectories", "show", "x"),
    ("reward", "set", "x", "1"),
    ("export", "--out", "x.jsonl"),
    ("db", "verify"),
    ("db", "current"),
]


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_database_that_cannot_be_used_is_named(polarproxy: Command, arguments: tuple[str, ...]) -> None:
    Path("diary.db").write_bytes(b"Dear diary, " * 400)
    with sqlite3.connect("foreign.db") as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    Path("empty.db").touch()
    bad = ["sqlite:///none.db", "sqlite:///diary.db", "sqlite:///foreign.db", "mysql://x", "what", "sqlite://"]
    if arguments[:2] != ("db", "current"):
        bad.append("sqlite:///empty.db")
    for url in bad:
        done = polarproxy(*arguments, "--db", url)
        assert (done.code, done.out) == (2, ""), url
        assert done.err.startswith("error: "), url
    assert not Path("none.db").exists()
    assert Path("diary.db").read_bytes() == b"Dear diary, " * 400


def damaged(db: str) -> None:
    connection = sqlite3.connect(db.removeprefix("sqlite:///"))
    connection.execute("UPDATE calls SET prompt_digest = ? WHERE call_id = 'c1'", (b"0" * 16,))
    connection.commit()
    connection.close()


def test_a_session_that_is_damaged_keeps_no_reward_out(polarproxy: Command, db: str) -> None:
    damaged(db)
    done = polarproxy("reward", "set", "good", "0.25", "--turn", "0=1", "--db", db)
    assert (done.code, "session good cannot be rebuilt" in done.err) == (0, True)
    assert polarproxy("reward", "list", "good", "--db", db, "--json").json[-1]["reward"]["value"] == 0.25


def test_damage_is_1_and_said(polarproxy: Command, db: str) -> None:
    damaged(db)
    done = polarproxy("db", "verify", "--db", db, "--json")
    assert done.code == 1
    assert "call c1 of session good" in {entry["where"] for entry in done.json["damaged"]}
    table = polarproxy("db", "verify", "--db", db)
    assert (table.code, "c1" in table.out) == (1, True)
    for arguments in (("calls", "show", "c1"), ("trajectories", "show", "good"), ("sessions", "show", "good")):
        shown = polarproxy(*arguments, "--db", db)
        assert (shown.code, shown.out) == (1, "")
        assert "c1" in shown.err


def test_a_database_that_others_keep_locked_is_1(polarproxy: Command, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polarproxy.store.database.BUSY_TIMEOUT_MS", 20)
    other = sqlite3.connect(db.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    done = polarproxy("reward", "set", "good", "1", "--db", db)
    other.close()
    assert (done.code, "locked" in done.err) == (1, True)


@pytest.mark.parametrize("name", ["[/x]", "[bold]", "a b"])
def test_a_name_is_printed_as_it_was_given(polarproxy: Command, db: str, name: str) -> None:
    done = polarproxy("sessions", "show", name, "--db", db)
    assert done.code == 2
    assert name in done.err


def test_what_the_engine_said_is_printed_as_it_was_said(polarproxy: Command, db: str) -> None:
    assert "refused: [type=missing]" in polarproxy("calls", "show", "c4", "--db", db).out


def test_a_port_that_is_taken_is_wrong_use(polarproxy: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = polarproxy("serve", "--port", taken.getsockname()[1])
    assert done.code == 2
    assert "cannot listen on 127.0.0.1" in done.err


# The real program


async def program(*arguments: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POLARPROXY_")}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "polarproxy",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"},
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_program_ends_with_the_code_that_it_should(db: str) -> None:
    commands = [
        (0, ("sessions", "list", "--json", "--db", db)),
        (2, ("sessions", "show", "nobody", "--db", db)),
        (2, ("sessions", "list", "--db", "sqlite:///none.db")),
        (2, ("serve", "--upstream", "nowhere")),
    ]
    processes = [await program(*arguments) for _, arguments in commands]
    for (code, arguments), process in zip(commands, processes, strict=True):
        found, out, err = await ended(process)
        assert found == code, arguments
        assert "Traceback" not in out + err
        assert ("error: " in err) == (code == 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_serving_ends_in_order_when_it_is_told_to(number: signal.Signals) -> None:

    async with FakeEngine(always(compose("hi"))) as engine:
        process = await program("serve", "--upstream", engine.url, "--port", "0", "--db", "sqlite:///served.db")
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
            base = line.split(" listens on ")[1].split()[0]
            async with (
                aiohttp.ClientSession() as http,
                http.post(f"{base}/s/s1/v1/chat/completions", json={"model": "fake", "messages": MESSAGES}) as answer,
            ):
                assert answer.status == 200
                await answer.read()
        process.send_signal(number)
        code, out, err = await ended(process)
    assert (code, "stopping" in out, err) == (0, True, "")
    verified = await ended(await program("db", "verify", "--db", "sqlite:///served.db"))
    assert (verified[0], "1 session verified" in verified[1]) == (0, True)


MESSAGES = [{"role": "user", "content": "hi"}]


# Doctor


async def doctor(*arguments: str) -> tuple[int | None, str, str]:
    return await ended(await program("doctor", *arguments))


async def test_the_doctor_finds_a_sound_engine_sound() -> None:
    probed = always(compose("1", logprob=lambda _: -0.5))
    async with FakeEngine(always(compose("hi")), text_script=probed) as engine:
        code, out, _ = await doctor("--upstream", engine.url)
        assert code == 0
        assert "token ids in streams" in out
        code, out, _ = await doctor("--upstream", engine.url, "--json")

    checks = {check["name"]: check["ok"] for check in json.loads(out)}
    assert checks["token ids"]
    assert checks["token ids in streams"]
    assert checks["logprobs of the sampling distribution"]
    assert checks["render"]
    assert checks["prompt ids with a chat"]
    assert checks["chat template for exact prompts"]
    assert code == 0


async def test_the_doctor_looks_at_each_of_several_engines() -> None:
    probed = always(compose("1", logprob=lambda _: -0.5))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with FakeEngine(always(compose("hi")), text_script=probed) as engine:
        both = ("--upstream", engine.url, "--upstream", dead)
        code, out, err = await doctor(*both)
        assert (code, f"engine at {engine.url}" in out, f"engine at {dead}" in out) == (1, True, True)
        assert f"{dead} does not answer" in err
        code, out, _ = await doctor(*both, "--json")
    assert code == 1
    assert [check["ok"] for check in json.loads(out) if check["upstream"] == dead] == [False]
    assert [check["ok"] for check in json.loads(out) if check["upstream"] != dead].count(True) > 4


async def test_the_doctor_says_that_nothing_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    code, out, err = await doctor("--upstream", url)
    assert (code, "cannot be trained" in out + err) == (1, False)
    assert f"{url} does not answer" in err
    code, out, err = await doctor("--upstream", url, "--json")
    assert (code, [check["ok"] for check in json.loads(out)]) == (1, [False])
