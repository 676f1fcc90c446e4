"""Records one session of Claude Code with something of everything, for the guide `what-is-trained`:

    export $(.ci/setup-harnesses)
    python -m tests.harnesses.example

A failure, a sub-agent in the background, a tool call, an overflow and the compaction after it. Nothing of Claude Code's prose
is kept: bodies are scrubbed as in every recording, and each prompt is what the engine's template makes of the scrubbed
messages, so that tokens repeat where they repeated. Everything else is as it was recorded.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from polarproxy.model import Call, CapturedCall, Session, TokenIds, Usage
from polarproxy.store.archiving import write_sessions
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.migrate import upgrade
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.fakes.answer import ChatAnswer
from tests.fakes.toy_tokenizer import prompt_ids, token_bytes
from tests.harnesses import test_claude_code as claude_code
from tests.harnesses.process import FOLDER, installed
from tests.harnesses.record import call_id
from tests.harnesses.scenes import ASK_SUB, DONE, HEARD, OWN, PONG, SUB, TASK, WAIT, act, main
from tests.harnesses.scripted import Ask, Rule, Scenario, Test, fails, overflows, says, uses
from tests.harnesses.scrub import Scrubber
from tests.harnesses.stage import SESSION, Stage, stage

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "harnesses" / "claude-code-session.polar"


SUMMARY = (
    "The user asked for a sub-agent, which was started in the background and said pong; after that a command was run"
    " that wrote hello into the file out.txt, and nothing is left to be done."
)
WRAPPED = f"<summary> {SUMMARY} </summary>"


def scenario() -> Scenario:
    agent = uses("Agent", description=SUB, prompt=TASK, subagent_type="general-purpose")
    compaction = Rule("compaction", claude_code.compacting, (says(WRAPPED),))
    turns = (fails(500), agent, WAIT, act("Bash", command="echo hello > out.txt"), overflows(), DONE, HEARD)
    return Scenario(compaction, Rule("sub", told_first(TASK), (PONG,)), main(*turns))


def told_first(text: str) -> Test:
    """Only the sub-agent is told so by its first message."""
    return lambda ask: any(text in said for said in ask.said[:2])


class KeepsSummary(Scrubber):
    """What the model summed up is ours, and stands in the middle of the harness's own words."""

    def _made(self, text: str) -> str:
        return super()._made(text) + (f" {SUMMARY}" if SUMMARY in text else "")


def scrubbed(stage: Stage, calls: Sequence[CapturedCall]) -> list[CapturedCall]:
    """The calls without anybody's prose, ids or paths."""
    asks = {f"chatcmpl-{number:016x}": played.ask for number, played in enumerate(stage.scenario.played, 1)}
    scrubber = KeepsSummary(OWN | {WRAPPED})
    for captured in calls:
        scrubber.learn([[value for _, value in captured.call.headers], json.loads(captured.call.request_body)])
    return [
        replace(each, call=_scrubbed(each.call, asks.get(each.call.engine_request_id or ""), scrubber))
        for each in calls
    ]


def _scrubbed(call: Call, ask: Ask | None, scrubber: Scrubber) -> Call:
    body = scrubber.value(json.loads(call.request_body))
    prompt, usage = call.prompt_token_ids, call.usage
    if prompt is not None and ask is not None:
        prompt = TokenIds.of(prompt_ids(scrubber.value(ask.body["messages"]), scrubber.value(ask.body.get("tools"))))
        usage = usage and Usage(len(prompt), usage.completion_tokens)
    return replace(
        call,
        call_id=f"call-{call.ordinal}",
        headers=tuple((name, scrubber.header(name, value)) for name, value in call.headers),
        request_body=json.dumps(body, ensure_ascii=False).encode(),
        prompt_token_ids=prompt,
        usage=usage,
    )


def keep(session: Session, calls: Sequence[CapturedCall]) -> None:
    """Writes them as an archive."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_database(f"sqlite:///{folder}/polar.db", create=True)
        upgrade(engine)
        writer = Writer(engine)
        for captured in calls:
            call = captured.call
            texts = {token: token_bytes(token) for completion in call.completions for token in completion.token_ids}
            writer.submit(NewCall(call, session, texts)).result(20)
            if captured.delivered:
                writer.submit(Fact(call.call_id, call.arrived_at, DELIVERED, "yes")).result(20)
        writer.close()
        list(write_sessions(engine, [session.session_id], ARCHIVE))
        engine.dispose()


async def record() -> None:
    with patch.object(ChatAnswer, "tool_id", call_id), tempfile.TemporaryDirectory() as folder:
        async with stage(Path(folder), claude_code.CLAUDE, scenario()) as acted:
            ended = await acted.tell(ASK_SUB)
            assert ended.exit_code == 0, ended
            await acted.record()
            session = acted.parts.repository.session(SESSION)
            keep(session, scrubbed(acted, acted.parts.repository.calls(SESSION)))
            print(acted.scenario.order, ARCHIVE.stat().st_size, acted.story())


if __name__ == "__main__":
    if installed() is None:
        sys.exit(f"{FOLDER} is not set: export $(.ci/setup-harnesses)")
    asyncio.run(record())
