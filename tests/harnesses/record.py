"""Records requests of the real coding agents as fixtures:

    export $(.ci/setup-harnesses)
    python -m tests.harnesses.record [AGENT ...]

Each agent plays its scenes between a scripted engine and the proxy. What it sent is kept, with every text that is not ours
replaced, in tests/fixtures/harnesses; without names, that of all agents.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

from tests.fakes.answer import ChatAnswer
from tests.harnesses.kept import DROPPED
from tests.harnesses.process import FOLDER, installed
from tests.harnesses.programs import PROGRAMS
from tests.harnesses.recorded import Recorded, store
from tests.harnesses.scenes import OWN, PICTURE, Program, Scene, picture
from tests.harnesses.scripted import Scenario
from tests.harnesses.scrub import Scrubber
from tests.harnesses.stage import NO_KEY, Access, stage
from tests.harnesses.tap import Sent, tapped


def call_id(answer: ChatAnswer, choice: int, tool: int) -> str:
    """Ids that no two replies share, as those of real engines."""
    return f"chatcmpl-tool-{answer.id[-8:]}{choice:04x}{tool:04x}"


async def play(folder: Path, scene: Scene) -> list[Sent]:
    """What the agent sent in a scene. Fails when it went another way than the scene says."""
    scenario = Scenario(*scene.rules())
    async with (
        stage(folder, scene.harness, scenario) as acted,
        tapped(acted.access.url.partition("/s/")[0]) as (address, sent),
    ):
        acted.access = Access(address, NO_KEY)
        acted.place.write(scene.harness.files(acted.access))
        (acted.place.repo / PICTURE).write_bytes(picture())
        for number, prompt in enumerate(scene.prompts):
            ended = await acted.tell(prompt, resume=number > 0, **scene.environment)
            assert ended.exit_code == 0, ended
        assert not scenario.unexpected, [ask.last[-500:] for ask in scenario.unexpected]
        return sent[: scene.keep]


async def record(program: Program) -> list[Recorded]:
    """All scenes of an agent, with the prose replaced."""
    seen: list[tuple[Scene, int, Sent]] = []
    for scene in program.scenes:
        with tempfile.TemporaryDirectory() as folder:
            sent = await play(Path(folder), scene)
        print(f"{program.name}: {scene.name}: {len(sent)} requests", flush=True)
        seen += [(scene, number, each) for number, each in enumerate(sent)]
    scrubber = Scrubber(OWN)
    for _, _, sent_one in seen:
        scrubber.learn([[value for _, value in sent_one.headers], _body(sent_one), sent_one.reply])
    return [_recorded(program, scene, number, each, scrubber) for scene, number, each in seen]


def _body(sent: Sent) -> object:
    return json.loads(sent.body) if sent.body else None


def _recorded(program: Program, scene: Scene, number: int, sent: Sent, scrubber: Scrubber) -> Recorded:
    kept = [(name, value) for name, value in sent.headers if name.lower() not in DROPPED]
    return Recorded(
        harness=program.name,
        version=program.version,
        scenario=scene.name,
        sequence=number,
        method=sent.method,
        path=sent.path,
        headers=[[name, scrubber.header(name, value)] for name, value in kept],
        body=scrubber.value(_body(sent)),
        reply=scrubber.value(sent.reply),
    )


async def run(names: list[str]) -> None:
    with patch.object(ChatAnswer, "tool_id", call_id):
        for program in PROGRAMS:
            if not names or program.name in names:
                store(program.name, await record(program))


if __name__ == "__main__":
    if installed() is None:
        sys.exit(f"{FOLDER} is not set: export $(.ci/setup-harnesses)")
    asyncio.run(run(sys.argv[1:]))
