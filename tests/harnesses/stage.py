"""A real coding agent between its user and a scripted engine, with the proxy recording; and what must hold of the record."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polarproxy.cli.recipes import known_recipes
from polarproxy.cli.runner import running_proxy
from polarproxy.model import Call, CallStatus, CapturedCall, Dialect, TokenSource
from polarproxy.proxy.parts import Parts
from polarproxy.settings import Settings
from polarproxy.trajectory.rebuilt import rebuild
from tests.database import fresh
from tests.fakes import FakeEngine, always, compose
from tests.harnesses.process import Ended, Workspace, run
from tests.harnesses.scripted import CONTEXT, Played, Scenario
from tests.harnesses.story import Story, tell_story
from tests.harnesses.trees import OPEN, Tree, expected, names, tree

MODEL = "mock-model"
SESSION = "rollout-1"
NO_KEY = "unused-key"


@dataclass(frozen=True)
class Access:
    """What an agent is told of its provider: a base URL without any `/v1`, and a key."""

    url: str
    key: str


@dataclass(frozen=True)
class Harness:
    """How a coding agent is configured and started; every function is given the access it has to its provider."""

    dialect: Dialect
    named_by: Literal["key", "path"]
    """Whether a session key or the path of the base URL tells the session."""
    command: Callable[[str], Sequence[str]]
    """The command line for a prompt in a new conversation."""
    environment: Callable[[Access], Mapping[str, str]]
    files: Callable[[Access], Mapping[str, str]] = lambda _: {}
    """Files of its home before the first start, by path."""
    resume: Callable[[str], Sequence[str]] | None = None
    """The command line for a prompt in the latest conversation."""
    seconds: float = 60.0


@dataclass
class Stage:
    harness: Harness
    scenario: Scenario
    engine: FakeEngine
    parts: Parts
    access: Access
    place: Workspace
    test: str | None = None
    """The test that it is for, whose tree is known. None: it is none."""

    async def tell(self, prompt: str, *, resume: bool = False, **environment: str) -> Ended:
        """Runs the agent with a prompt. Fails when it does not end by itself."""
        command = self.harness.resume if resume else self.harness.command
        assert command is not None
        known = dict(self.harness.environment(self.access))
        ended = await run(command(prompt), known | environment, self.place, self.harness.seconds)
        assert ended.exit_code is not None, (
            f"still running after {self.harness.seconds} s: {self.scenario.order}\n{ended}"
        )
        return ended

    async def record(self) -> list[Call]:
        """All stored calls by ordinal, once they are as many as the engine was asked, checked against what it sampled.

        Everything is in one session; every call is of the agent's dialect; every whole reply was delivered; and the
        tokens are those of the engine. They rebuild into the tree that is expected of the test.
        """
        assert not self.scenario.unexpected, [ask.last[-500:] for ask in self.scenario.unexpected]
        await _until(lambda: len(self._stored()) >= len(self.scenario.played))
        await _until(lambda: all(captured.delivered or not _whole(captured.call) for captured in self._stored()))
        calls = [captured.call for captured in self._stored()]
        assert len(calls) == len(self.scenario.played)
        assert self.parts.repository.session_ids() == [SESSION]
        assert {call.dialect for call in calls} == {self.harness.dialect}
        played = {f"chatcmpl-{number:016x}": turn for number, turn in enumerate(self.scenario.played, 1)}
        for call in calls:
            if call.engine_request_id is not None:
                _check_tokens(call, played.pop(call.engine_request_id))
        # What is left was refused before it was sampled.
        assert len(played) == sum(not _whole(call) and not call.completions for call in calls)
        if self.test is not None and self.test not in OPEN:
            assert self.tree() in expected(self.test), json.dumps({self.test: [self.tree()]}, indent=1)
        return calls

    def tree(self) -> Tree:
        """The stored calls as a tree."""
        stored = self._stored()
        named = names([captured.call for captured in stored], self.scenario.played)
        return tree(rebuild(SESSION, stored, known_recipes()), named)

    def story(self) -> Story:
        """What the stored calls rebuild into; `record` has waited for them."""
        return tell_story(self._stored())

    def _stored(self) -> list[CapturedCall]:
        return self.parts.repository.calls(SESSION)


def _whole(call: Call) -> bool:
    return call.status is CallStatus.COMPLETED


def _check_tokens(call: Call, played: Played) -> None:
    reply = played.turn.replies[0]
    assert call.token_source is TokenSource.ENGINE
    assert call.prompt_token_ids is not None
    assert list(call.prompt_token_ids) == played.prompt_token_ids
    (completion,) = call.completions
    assert completion.logprobs is not None
    count = len(completion.token_ids)
    assert list(completion.token_ids) == reply.token_ids[:count]
    assert list(completion.logprobs) == reply.logprobs[:count]
    assert count == len(reply.tokens) or not _whole(call)


async def _until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (what is waited for lies in a database, which signals nothing)
            await asyncio.sleep(0.01)


def statuses(calls: Sequence[Call]) -> list[str]:
    return [call.status.value for call in calls]


def header(call: Call, name: str) -> str | None:
    """A recorded request header. None: it was not sent, or is not kept."""
    return dict(call.headers).get(name)


@asynccontextmanager
async def stage(folder: Path, harness: Harness, scenario: Scenario, **settings: Any) -> AsyncIterator[Stage]:
    # A logprob that temperature moves by more than a probe's tolerance.
    probed = always(compose("1", logprob=lambda _: -0.5))
    async with FakeEngine(scenario, text_script=probed, model=MODEL, max_model_len=CONTEXT) as engine:
        known: dict[str, Any] = {"upstream": engine.url, "port": 0, "db": fresh(folder / "polar.db")}
        async with running_proxy(Settings(**(known | settings))) as (base, parts):
            keyed = harness.named_by == "key"
            access = Access(base, parts.signer.key(SESSION)) if keyed else Access(f"{base}/s/{SESSION}", NO_KEY)
            place = Workspace.make(folder)
            place.write(harness.files(access))
            yield Stage(harness, scenario, engine, parts, access, place)
