"""`polarproxy export` in formats made of conversations: through a real proxy, a continued response, and the flags."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from polarproxy.cli.requests import Requests
from polarproxy.model import Reward, Session
from polarproxy.store.database import open_database
from polarproxy.wire.neutral.request import Text
from tests.cli.command import Command
from tests.database import fresh
from tests.export.talk import answered, record
from tests.proxy.rig import rig
from tests.trajectory.build import WHEN


@pytest.fixture
def told(tmp_path: Path) -> str:
    """Two groups of two sessions, one session without a reward, and one without bodies."""
    url = fresh(tmp_path / "told.db")
    engine = open_database(url)
    for group in ("g", "h"):
        for name, reward in ((f"{group}1", 1.0), (f"{group}2", 0.0)):
            record(engine, answered(name, name), Session(name, WHEN, task_id=group, group_id=group), Reward(reward))
    record(engine, answered("free", "x"), Session("free", WHEN))
    engine.dispose()
    return url


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def sessions_in(path: Path) -> list[str]:
    return [line["metadata"]["session_id"] for line in lines(path)]


def test_conversations_need_no_reward(polarproxy: Command, told: str, tmp_path: Path) -> None:
    out = tmp_path / "all.sft.jsonl"
    done = polarproxy("export", "--out", out, "--db", told, "--json")
    assert done.code == 0, done.err
    assert sessions_in(out) == ["free", "g1", "g2", "h1", "h2"]
    assert done.json["texts"] == {"lines": 5}
    assert done.json["advantage"] == "none"


def test_filters(polarproxy: Command, told: str, tmp_path: Path) -> None:
    out = tmp_path / "x.sft.jsonl"
    assert polarproxy("export", "--out", out, "--db", told, "--best-of", 1).code == 0
    assert sessions_in(out) == ["g1", "h1"]
    assert polarproxy("export", "--out", out, "--db", told, "--where", "reward>=0.5").code == 0
    assert sessions_in(out) == ["g1", "h1"]


def test_tasks_are_parted(polarproxy: Command, told: str, tmp_path: Path) -> None:
    out = tmp_path / "x.sft.jsonl"
    assert polarproxy("export", "--out", out, "--db", told, "--split", "train=0.5,val=0.5").code == 0
    train, val = (set(sessions_in(tmp_path / f"x.{part}.sft.jsonl")) for part in ("train", "val"))
    assert train | val == {"free", "g1", "g2", "h1", "h2"}
    assert not train & val
    for pair in ({"g1", "g2"}, {"h1", "h2"}):
        assert pair <= train or pair <= val


def test_what_does_not_fit_is_wrong_use(polarproxy: Command, told: str, tmp_path: Path) -> None:
    for flags, said in (
        (("--format", "parquet", "--best-of", 1), "--best-of does not fit the format parquet"),
        (("--format", "sft", "--margin", 1), "--margin does not fit the format sft; it takes --best-of, --dedup"),
        (("--format", "atif", "--dedup"), "--dedup does not fit the format atif"),
        (("--format", "dpo", "--margin", -1), "--margin is a difference of rewards"),
        (("--format", "sft", "--max-tokens", 9), "leave --max-tokens out"),
        (("--format", "dpo", "--form", "pairs"), "dpo has no form 'pairs'"),
    ):
        done = polarproxy("export", *flags, "--out", tmp_path / "x", "--db", told)
        assert (done.code, said in done.err.replace("\n", " ")) == (2, True), done.err
    assert list(tmp_path.glob("x*")) == []


def test_nothing_that_can_be_read_is_exit_code_1(polarproxy: Command, db: str, tmp_path: Path) -> None:
    """The requests of `db` are not what its tokens say, but readable; its pairs have one text."""
    done = polarproxy("export", "--format", "dpo", "--form", "forks", "--out", tmp_path / "x.jsonl", "--db", db)
    assert done.code == 1, done.out


def test_rewards_go_out_and_come_in(polarproxy: Command, told: str, tmp_path: Path) -> None:
    out = tmp_path / "x.nova.jsonl"
    assert polarproxy("export", "--form", "rewards", "--out", out, "--db", told).code == 0
    given = [line | {"aggregate_reward_score": line["aggregate_reward_score"] + 2} for line in lines(out)]
    handler = tmp_path / "handler.json"
    handler.write_text(json.dumps(given))
    done = polarproxy("reward", "import", handler, "--db", told)
    assert (done.code, "4 rewards of 4 sessions imported" in done.out) == (0, True)
    handler.write_text("[1, 2")
    broken = polarproxy("reward", "import", handler, "--db", told)
    assert (broken.code, "begins like a JSON array and is none" in broken.err) == (2, True)
    handler.write_text('[{"id": "nobody", "aggregate_score": 1}]')
    assert "line 1: id 'nobody': there is no such session" in polarproxy("reward", "import", handler, "--db", told).out


async def test_a_continued_response_is_read_with_all_before_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as proxy:
        ids: list[str] = []
        for text in ("Hi.", "Go on.", "And?"):
            body = {"model": "fake", "input": text} | ({"previous_response_id": ids[-1]} if ids else {})
            answer = await proxy.control("POST", "/s/s1/v1/responses", body)
            assert answer.status == 200, answer.body
            ids.append(answer.json["id"])
        calls = await proxy.recorded(3)
        request = Requests(proxy.parts.repository).read(calls[-1].call)
        assert request is not None
        assert [message.role for message in request.messages] == ["user", "assistant"] * 2 + ["user"]
        proxy.parts.repository.forget_response(ids[0])
        assert Requests(proxy.parts.repository).read(calls[-1].call) is None
        assert Requests(proxy.parts.repository).read(calls[0].call) is not None


async def test_half_a_character_is_read_as_the_engine_was_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as proxy:
        assert (await proxy.ask(b'{"model":"fake","messages":[{"role":"user","content":"a\\ud800b"}]}')).status == 200
        (captured,) = await proxy.recorded()
        request = Requests(proxy.parts.repository).read(captured.call)
        assert request is not None
        (message,) = request.messages
        assert message.parts == (Text("a\ufffdb"),)


def test_a_recorded_session_of_a_proxy_is_exported(polarproxy: Command, tmp_path: Path) -> None:
    """Everything as the proxy itself records it."""

    async def play() -> None:
        async with rig(tmp_path) as proxy:
            await proxy.control("POST", "/api/sessions", {"session_id": "s1", "group_id": "g"})
            first = await proxy.ask()
            messages = [{"role": "user", "content": "hi"}, first.json["choices"][0]["message"]]
            await proxy.ask({"model": "fake", "messages": [*messages, {"role": "user", "content": "more"}]})
            await proxy.recorded(2)

    asyncio.run(play())
    url = f"sqlite:///{tmp_path}/polar.db"
    for suffix in ("sft", "atif"):
        out = tmp_path / f"x.{suffix}.jsonl"
        done = polarproxy("export", "--out", out, "--db", url)
        assert done.code == 0, done.out + done.err
        assert "Hello you." in out.read_text()


ARCHIVE = Path(__file__).parents[1] / "fixtures" / "harnesses" / "claude-code-session.polar"


def test_a_session_of_claude_code_with_a_sub_agent_and_a_compaction(polarproxy: Command, tmp_path: Path) -> None:
    url = fresh(tmp_path / "claude.db")
    assert polarproxy("db", "import", ARCHIVE, "--db", url).code == 0
    out = tmp_path / "x.atif.jsonl"
    assert polarproxy("export", "--out", out, "--db", url).code == 0
    (made,) = lines(out)
    (inner,) = made["subagent_trajectories"]
    (ref,) = made["steps"][3]["observation"]["results"][0]["subagent_trajectory_ref"]
    assert ref["trajectory_id"] == inner["trajectory_id"]
    assert inner["steps"][-1]["message"] == "pong"
    said = [(step["message"], step.get("is_copied_context")) for step in made["steps"] if step["source"] == "agent"]
    assert said == [
        ("", None),
        ("I wait.", None),
        ("I will run a command.", None),
        ("I will run a command.", True),
        ("Done: out.txt contains hello.", None),
    ]
    assert made["agent"]["version"] == "2.1.332"
    done = polarproxy("export", "--format", "sft", "--out", tmp_path / "x.sft.jsonl", "--db", url, "--json")
    assert (done.code, done.json["texts"]) == (0, {"lines": 4})
    weighed = [one for line in lines(tmp_path / "x.sft.jsonl") for one in line["messages"] if one.get("weight")]
    assert len(weighed) == 5
