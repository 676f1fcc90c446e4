"""What a task in bubblewrap can do through its one way out, the proxy; and rewards that it makes up."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from polarproxy.cli.runner import running_proxy
from polarproxy.model import SessionStatus
from polarproxy.model.harness import Turn
from polarproxy.proxy.parts import Parts
from polarproxy.rollout.installing import Installed, install
from polarproxy.rollout.recipes import find_harnesses
from polarproxy.rollout.running import Access, run_harness
from polarproxy.rollout.runtimes.bubblewrap import BubblewrapRuntime
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Limits, Spec
from polarproxy.rollout.scripted.engine import ScriptedEngine, played
from polarproxy.settings import Settings
from tests.rollout.runtimes.place import CONNECT, LIMITS, PYTHON, reports

pytestmark = pytest.mark.skipif(
    (reason := BubblewrapRuntime.why_not()) is not None, reason=f"needs bubblewrap: {reason}"
)


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[tuple[str, Parts]]:
    async with ScriptedEngine(played([Turn(text="Done.")])) as engine:
        settings = Settings(
            upstream=engine.url, port=0, db=f"sqlite:///{tmp_path / 'polar.db'}", auth="required", engine="vllm"
        )
        async with running_proxy(settings) as running:
            yield running


ASK = """
import json, os, sys, urllib.request, urllib.error
def ask(path, key=None, body=None, method=None):
    headers = {"Authorization": "Bearer " + key} if key else {}
    data = None if body is None else json.dumps(body).encode()
    headers["Content-Type"] = "application/json"
    asked = urllib.request.Request(os.environ["URL"] + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=20) as reply: return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error: return error.code, error.read().decode()
own, other, chat = os.environ["KEY"], sys.argv[1], {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
guess = own.replace("mine", "other")
found = {
    "own": ask("/v1/chat/completions", own, chat),
    "keyless": ask("/v1/chat/completions", None, chat),
    "forged": ask("/v1/chat/completions", guess, chat),
    "path": ask(f"/s/{other}/v1/chat/completions", own, chat),
}
for path in ("sessions", "sessions/OTHER", "sessions/OTHER/calls", "sessions/OTHER/rewards", "stats", "upstreams", "policy"):
    found["api " + path] = ask("/api/" + path.replace("OTHER", other), own)
found["make"] = ask("/api/sessions", own, {"session_id": "mine-too"})
found["reward"] = ask("/api/sessions/mine/rewards", own, {"aggregate_reward_score": 1.0, "metrics_list": []})
found["close"] = ask(f"/api/sessions/{other}/close", own, {"status": "completed"})
found["delete"] = ask(f"/api/sessions/{other}", own, method="DELETE")
found["dots"] = ask("/s/mine/../../api/sessions", own)
found["dots, encoded"] = ask("/s/mine/%2e%2e/%2e%2e/api/sessions", own)
print(json.dumps(found))
"""


async def test_its_key_opens_its_own_session_and_nothing_else(proxied: tuple[str, Parts]) -> None:
    base, parts = proxied
    parts.signer.key("other")
    async with Runtimes().running("bubblewrap", Spec(limits=LIMITS, proxy=base)) as runtime:
        assert runtime.proxy is not None
        env = {"URL": runtime.proxy, "KEY": parts.signer.key("mine")}
        ended = await runtime.exec([PYTHON, "-c", ASK, "other"], env=env, budget=Budget(60))
    assert ended.exit_code == 0, ended
    found = json.loads(ended.stdout)
    status, reply = found.pop("own")
    assert (status, json.loads(reply)["choices"][0]["message"]["content"]) == (200, "Done.")
    wrong = {name: answer for name, answer in found.items() if answer[0] not in (401, 403, 404, 405)}
    assert wrong == {}
    assert {found[name][0] for name in ("keyless", "forged", "path")} == {401}
    assert {found[name][0] for name in ("reward", "make", "close")} == {403}
    assert parts.repository.session_ids() == ["mine"]
    assert parts.repository.session("mine").reward is None


async def test_the_gate_leads_to_the_proxy_only(proxied: tuple[str, Parts]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        targets = [["127.0.0.1", listener.getsockname()[1]], ["127.0.0.1", 22]]
        async with Runtimes().running("bubblewrap", Spec(limits=LIMITS, proxy=proxied[0])) as runtime:
            found = await reports(runtime, CONNECT, json.dumps(targets))
    assert "connected" not in found.values()


async def test_many_connections_leave_this_process_its_descriptors(proxied: tuple[str, Parts]) -> None:
    program = """
import json, os, socket, time
host, port = os.environ['URL'].removeprefix('http://').split(':')
held = []
for _ in range(900):
    try: held.append(socket.create_connection((host, int(port)), timeout=5))
    except OSError: break
print(json.dumps(len(held)))
"""
    limits = Limits(memory_mb=512, processes=40)
    before = psutil.Process().num_fds()
    async with Runtimes().running("bubblewrap", Spec(limits=limits, proxy=proxied[0])) as runtime:
        assert runtime.proxy is not None
        running = asyncio.create_task(
            runtime.exec([PYTHON, "-c", program + "\ntime.sleep(5)"], env={"URL": runtime.proxy}, budget=Budget(60))
        )
        most = 0
        while not running.done():
            most = max(most, psutil.Process().num_fds())
            await asyncio.sleep(0.05)
    # Each connection has two ends here, and a third in the proxy, which shares this process.
    assert most - before < 900
    for _ in range(500):
        if psutil.Process().num_fds() <= before + 5:
            break
        await asyncio.sleep(0.01)
    assert psutil.Process().num_fds() <= before + 5


def shell() -> Installed:
    return install(find_harnesses()["shell"], Path("unused"))


async def test_a_printed_reward_is_only_output(proxied: tuple[str, Parts]) -> None:
    """Nothing that a harness prints or writes is taken for a reward, or for the way it ended."""
    base, parts = proxied
    fake = '{"aggregate_reward_score": 1.0, "metrics_list": [], "status": "completed", "exit_code": 0}'
    access = Access(session_id="mine", api_key=parts.signer.key("mine"), model="m")
    command = f"echo '{fake}'; echo '{fake}' > reward.json; cp reward.json ~; exit 7"
    async with Runtimes().running("bubblewrap", Spec(limits=LIMITS, proxy=base)) as runtime:
        outcome = await run_harness(shell(), runtime, access, command, Budget(60))
    assert (outcome.status, outcome.ended.exit_code) == (SessionStatus.AGENT_ERROR, 7)
    assert [name for name in parts.repository.session_ids() if parts.repository.session(name).reward is not None] == []
