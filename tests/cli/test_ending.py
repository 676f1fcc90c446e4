"""Programs that start others, ended from outside: nothing that they started is left."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import pytest

from polarproxy.rollout.scripted.engine import ScriptedEngine
from tests.rollout.jobs.katas import Model
from tests.rollout.left import folders, processes

RECIPE = """format = 1
name = "stays"
version = "1"
[start]
command = ["sh", "-c", "setsid sleep 600 & sleep 600", "{instruction}"]
[check]
instruction = "stay"
turns = [{ text = "Done." }]
"""
JOB = """name = "j"
[tasks]
path = "tasks.jsonl"
[run]
harnesses = ["stays"]
recipes = "recipes"
runtime = "local"
samples = 2
"""
KEY = "a-key-for-this-test"
ENDED = {
    "harness run": ("harness", "run", "stays", "--task", "x", "--harnesses", "recipes", "--runtime", "local"),
    "harness check": ("harness", "check", "stays", "--harnesses", "recipes", "--runtime", "local", "--timeout", "600"),
    "generate": ("generate", "job.toml"),
    "serve": (
        "serve",
        "--rollouts",
        "2",
        "--harnesses",
        "recipes",
        "--runtime",
        "local",
        "--port",
        "0",
        "--admin-key",
        KEY,
    ),
}


async def submit(serving: asyncio.subprocess.Process) -> None:
    assert serving.stdout is not None
    base = (await serving.stdout.readline()).decode().split()[3]
    task = {"instruction": "stay", "harness": "stays", "num_samples": 2}
    head = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(headers=head) as http, http.post(f"{base}/api/tasks", json=task) as answer:
        assert answer.status == 201


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("what", ENDED)
async def test_nothing_is_left_of_what_it_started(tmp_path: Path, what: str, number: signal.Signals) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "stays.toml").write_text(RECIPE)
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "instruction": "stay"}\n')
    async with ScriptedEngine(Model()) as engine:
        more = () if what == "harness check" else ("--upstream", engine.url)
        env = os.environ | {"TMPDIR": str(tmp_path)}
        command = [sys.executable, "-m", "polarproxy", *ENDED[what], *more]
        running = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE)
        if what == "serve":
            await submit(running)
        async with asyncio.timeout(40):
            while len([line for line in processes(tmp_path) if line == "sleep 600"]) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.3)
        running.send_signal(number)
        # Who is impatient breaks off no clearing up.
        await asyncio.sleep(0.05)
        if running.returncode is None:
            running.send_signal(number)
        async with asyncio.timeout(40):
            out, said = await running.communicate()
            # A process that is killed is told of by the kernel, and its keepers need a moment.
            while number is signal.SIGKILL and processes(tmp_path):  # noqa: ASYNC110
                await asyncio.sleep(0.3)
    # The second one may come when all is cleared up, and the program as good as ended.
    orderly = {0} if what == "serve" else {1, 130}
    assert running.returncode in {-number} | (set() if number is signal.SIGKILL else orderly), said
    assert b"Traceback" not in out + said
    assert processes(tmp_path) == []
    if number is not signal.SIGKILL:
        assert folders(tmp_path) == []
