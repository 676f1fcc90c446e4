"""`serve --rollouts`: tasks by HTTP, over a real recipe, with keys."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from polarproxy.cli.runner import running_proxy
from polarproxy.model.harness import Turn
from polarproxy.rollout.recipes import find_harnesses, named
from polarproxy.rollout.scripted.engine import ScriptedEngine, played
from polarproxy.settings import Settings


def smoke() -> str:
    check = named(find_harnesses(None), "shell").recipe.check
    assert check is not None
    return check.instruction


async def post(http: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, Any]:
    async with http.post(url, json=body) as answer:
        return answer.status, await answer.json()


async def test_a_task_over_a_recipe(tmp_path: Path) -> None:
    async with ScriptedEngine(played([Turn(text="Done.")])) as engine:
        settings = Settings(upstream=engine.url, port=0, db=f"sqlite:///{tmp_path}/polar.db", rollouts=2)
        async with running_proxy(settings) as (base, parts):
            task = {
                "instruction": smoke(),
                "harness": "shell",
                "num_samples": 2,
                "runtime": {"kind": "local", "files": {"a/b.txt": "b"}},
                "evaluator": {"kind": "tests", "command": ["sh", "-c", "grep -q hello out.txt && test -f a/b.txt"]},
            }
            async with aiohttp.ClientSession() as nobody:
                assert (await post(nobody, f"{base}/api/tasks", task))[0] == 401
            key = {"Authorization": f"Bearer {parts.signer.admin_key}"}
            async with aiohttp.ClientSession(headers=key) as http, asyncio.timeout(60):
                status, refused = await post(http, f"{base}/api/tasks", task | {"harness": "shel"})
                assert (status, "did you mean 'shell'" in refused["error"]["message"]) == (400, True)
                status, refused = await post(http, f"{base}/api/tasks", task | {"runtime": "cloud"})
                assert status == 400
                status, made = await post(http, f"{base}/api/tasks", task)
                assert status == 201
                while made["state"] == "open":
                    await asyncio.sleep(0.1)
                    async with http.get(f"{base}/api/tasks/{made['task_id']}") as answer:
                        made = await answer.json()
                assert (made["usable"], made["statuses"]) == (2, {"completed": 2})
            sessions = [entry.session for entry in parts.repository.sessions()]
            assert [(one.harness, one.reward and one.reward.value) for one in sessions] == [("shell", 1.0)] * 2


async def test_without_a_task_service(tmp_path: Path) -> None:
    settings = Settings(upstream="http://127.0.0.1:9", port=0, db=f"sqlite:///{tmp_path}/polar.db")
    async with running_proxy(settings) as (base, _), aiohttp.ClientSession() as http:
        status, refused = await post(http, f"{base}/api/tasks", {})
        assert (status, "--rollouts" in refused["error"]["message"]) == (501, True)
