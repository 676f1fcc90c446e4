"""On a real vLLM, a conversation of ten turns is one branch in exact mode, through real clients; in template mode it forks.

The model thinks, calls a tool with JSON that nobody spells as it does, and is far from what it learned after a few turns, so
that its replies are as odd as can be. Everything is at temperature 0; only the mode differs.
"""

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from polarproxy.cli.rescoring import Rescored, rescored
from polarproxy.cli.runner import running_proxy
from polarproxy.model import CapturedCall, PromptMode, PromptOutcome
from polarproxy.proxy.parts import Parts
from polarproxy.proxy.rescore import Bar
from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.trajectory.branches import Trajectory
from polarproxy.trajectory.drift import by_class, find_drifts
from polarproxy.trajectory.rebuilt import rebuild
from tests.database import fresh
from tests.e2e.vllm_server import VllmServer
from tests.harnesses.process import FOLDER, Workspace, installed, run
from tests.models.dialogues import WEATHER_TOOL
from tests.proxy.rig import until

pytestmark = pytest.mark.vllm

TURNS = 10
SECONDS = 120.0
QUESTION = "What is the weather in Paris?"
RESULT = '{"temp": 18}'
LIMIT = 60
FUNCTION = WEATHER_TOOL["function"]
Message = dict[str, Any]


def chat(base: str, key: str, *, stream: bool = False) -> None:
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0, timeout=SECONDS)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(TURNS):
        asked: Any = {"model": "tiny", "messages": messages, "tools": [WEATHER_TOOL], "temperature": 0}
        if stream:
            asked["stream_options"] = {"include_usage": True}
            with client.chat.completions.stream(**asked, max_completion_tokens=LIMIT) as events:
                said = events.get_final_completion().choices[0].message
        else:
            said = client.chat.completions.create(**asked, max_completion_tokens=LIMIT).choices[0].message
        # As the agents of the field send it back: without reasoning, arguments written anew.
        calls = [call.model_dump(exclude_none=True) for call in said.tool_calls or ()]
        for call in calls:
            call["function"] = {
                "arguments": json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":")),
                "name": call["function"]["name"],
            }
        messages.append({"content": said.content, "role": "assistant", **({"tool_calls": calls} if calls else {})})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in calls]
        if not calls:
            messages.append({"role": "user", "content": [{"type": "text", "text": QUESTION}]})


def chat_stream(base: str, key: str) -> None:
    chat(base, key, stream=True)


def messages_api(base: str, key: str) -> None:
    client = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0, timeout=SECONDS)
    tool: Any = {
        "name": FUNCTION["name"],
        "description": FUNCTION["description"],
        "input_schema": FUNCTION["parameters"],
    }
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(TURNS):
        said = client.messages.create(
            model="tiny", max_tokens=LIMIT, messages=messages, tools=[tool], extra_body={"temperature": 0}
        )
        messages.append({"role": "assistant", "content": said.content or [{"type": "text", "text": ""}]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": RESULT}
            for block in said.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results or QUESTION})


def responses_api(base: str, key: str) -> None:
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0, timeout=SECONDS)
    tool: Any = {"type": "function", **FUNCTION}
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(TURNS):
        said = client.responses.create(
            model="tiny", max_output_tokens=LIMIT, temperature=0, input=items, tools=[tool], store=False
        )
        # Reasoning comes back too: without it nothing would be left of a turn that is cut while it thinks.
        items += [item.model_dump(exclude_none=True) for item in said.output]
        calls = [item for item in said.output if item.type == "function_call"]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT} for call in calls]
        if not calls:
            items.append({"role": "user", "content": QUESTION})


CLIENTS: dict[str, Callable[[str, str], None]] = {
    "openai_chat": chat,
    "openai_chat_stream": chat_stream,
    "anthropic_messages": messages_api,
    "openai_responses": responses_api,
}


@dataclass(frozen=True)
class Told:
    """One conversation, as recorded."""

    calls: list[CapturedCall]
    trajectory: Trajectory
    drifts: dict[str, int]
    repository: Repository

    def outcomes(self) -> list[PromptOutcome | None]:
        return [one.outcome if (one := captured.call.prompting) else None for captured in self.calls]

    def cached(self) -> list[int]:
        """Tokens of each prompt that the engine still had, by its own account."""
        return [(captured.call.usage and captured.call.usage.cached_tokens) or 0 for captured in self.calls]


async def record(vllm: VllmServer, db: str, mode: PromptMode, talk: Callable[[str, Parts], Any]) -> None:
    """One conversation in a session of its mode's name, with nothing of an earlier one in the engine's cache."""
    urllib.request.urlopen(urllib.request.Request(f"{vllm.url}/reset_prefix_cache", method="POST"), timeout=30).close()  # noqa: ASYNC210
    settings = Settings(upstream=vllm.url, port=0, db=db, prompts=mode.value)
    async with running_proxy(settings) as (base, parts):
        await talk(f"{base}/s/{mode}", parts)
        await until(lambda: all(captured.delivered for captured in parts.repository.calls(mode.value)))


def told(repository: Repository, mode: PromptMode) -> Told:
    calls = repository.calls(mode.value)
    whole = rebuild(mode.value, calls)
    return Told(
        calls, whole.trajectory, by_class(find_drifts(whole.forest, repository.token_texts("tiny"))), repository
    )


@pytest.fixture(scope="module", params=CLIENTS)
def both(
    request: pytest.FixtureRequest, vllm_chat: VllmServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The same conversation in both modes, by mode."""
    db = fresh(tmp_path_factory.mktemp("exact") / "polar.db")
    converse = CLIENTS[request.param]

    async def talk(base: str, parts: Parts) -> None:
        key = parts.signer.key(base.rpartition("/")[2])
        await asyncio.to_thread(converse, base, key)

    for mode in PromptMode:
        asyncio.run(record(vllm_chat, db, mode, talk))
    engine = open_database(db)
    repository = Repository(engine)
    yield {mode: told(repository, mode) for mode in PromptMode}
    engine.dispose()


def test_in_exact_mode_it_is_one_branch_of_which_all_is_trained(both: dict[PromptMode, Told]) -> None:
    found = both[PromptMode.EXACT]
    assert found.outcomes() == [PromptOutcome.FIRST] + [PromptOutcome.EXACT] * (TURNS - 1)
    assert (len(found.trajectory.branches), found.trajectory.coverage) == (1, 1.0)
    assert found.drifts == {}
    assert any(captured.call.completions[0].finish_reason == "tool_calls" for captured in found.calls)


def test_in_template_mode_it_forks_and_the_report_says_why(both: dict[PromptMode, Told]) -> None:
    found = both[PromptMode.TEMPLATE]
    assert found.outcomes() == [None] * TURNS
    assert len(found.trajectory.branches) > TURNS // 2
    assert "thinking_stripped" in found.drifts


def test_the_engine_still_has_as_much_of_every_prompt_or_more(both: dict[PromptMode, Told]) -> None:
    exact, template = both[PromptMode.EXACT].cached(), both[PromptMode.TEMPLATE].cached()
    assert all(left >= right for left, right in zip(exact[1:], template[1:], strict=True)), (exact, template)
    assert sum(exact) > 0


async def test_every_trained_token_scores_as_it_was_recorded_and_stitched_ones_do_not(
    both: dict[PromptMode, Told], vllm_chat: VllmServer
) -> None:
    for mode, merge, sound in (
        (PromptMode.EXACT, "prefix_merging", True),
        (PromptMode.EXACT, "stitch", True),
        (PromptMode.TEMPLATE, "prefix_merging", True),
        (PromptMode.TEMPLATE, "stitch", False),
    ):
        found = await score(both[mode].repository, vllm_chat, mode, merge)
        worst = max(row.worst or 0.0 for row in found.rows)
        assert found.sound == sound, (mode, merge, worst)
        assert found.control is not False
        assert found.compared == sum(len(one.call.completions[0].token_ids) for one in both[mode].calls)


async def score(repository: Repository, vllm: VllmServer, mode: PromptMode, merge: str) -> Rescored:
    upstream = Upstream(vllm.url, Settings(upstream=vllm.url))
    return await rescored(repository, upstream, [mode.value], Bar(1e-3, 0), merge)


MINI = """
agent: {system_template: "You run commands.", instance_template: "{{task}}", step_limit: 10, cost_limit: 0}
environment: {timeout: 5, env: {PATH: /nonexistent}}
model:
  model_class: litellm_textbased
  action_regex: "\\\\A(.*)\\\\Z"
  observation_template: "{{ output.output }} What is the weather in Paris?"
  model_kwargs: {temperature: 0, max_tokens: 40}
"""
"""All that the model says is a command, and no command is found."""


@pytest.mark.harness
async def test_mini_swe_agent_is_one_branch(vllm_chat: VllmServer, tmp_path: Path) -> None:
    if installed() is None:
        pytest.skip(f"needs the coding agents: export $(.ci/setup-harnesses) sets {FOLDER}")
    db = fresh(tmp_path / "polar.db")
    (tmp_path / "mini.yaml").write_text(MINI)

    async def talk(base: str, parts: Parts) -> None:
        mode = base.rpartition("/")[2]
        (tmp_path / mode).mkdir()
        place = Workspace.make(tmp_path / mode)
        environment = {
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_SILENT_STARTUP": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_BASE": f"{base}/v1",
            "OPENAI_API_KEY": parts.signer.key(mode),
        }
        command = [
            "mini",
            "-y",
            "--exit-immediately",
            "-m",
            "openai/tiny",
            "-c",
            str(tmp_path / "mini.yaml"),
            "-t",
            "hi",
        ]
        ended = await run([*command, "-o", "t.json"], environment, place, 100.0)
        assert "LimitsExceeded" in ended.stdout + ended.stderr, ended

    for mode in PromptMode:
        await record(vllm_chat, db, mode, talk)
    engine = open_database(db)
    exact, template = (told(Repository(engine), mode) for mode in (PromptMode.EXACT, PromptMode.TEMPLATE))
    engine.dispose()
    assert exact.outcomes() == [PromptOutcome.FIRST] + [PromptOutcome.EXACT] * (TURNS - 1)
    assert (len(exact.trajectory.branches), exact.trajectory.coverage) == (1, 1.0)
    assert len(template.trajectory.branches) > 1
    assert template.drifts
