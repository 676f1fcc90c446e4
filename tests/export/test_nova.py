"""Amazon Nova's forms: rollouts for reward handlers, prompts, rewards that find their sessions again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.cli.reward_import import Names, _lines, _read
from polarproxy.export.format import Context, Taken
from polarproxy.export.texts.nova import PROMPTS, REWARDS, ROLLOUTS, write_nova
from polarproxy.export.texts.options import TextOptions
from polarproxy.model import ComponentKind, Reward, RewardComponent, TurnReward
from polarproxy.wire.neutral.request import Media, Text, Thinking
from tests.export.talk import Talk, answered
from tests.export.test_sft import lines, said_context, taken


def known(one: Taken, **metadata: str) -> Taken:
    return replace(one, session=replace(one.session, metadata=tuple(metadata.items())))


def written(
    folder: Path, sessions: list[Taken], form: str, options: TextOptions | None = None
) -> tuple[list[Any], Context]:
    context = replace(said_context(options), form=form)
    write_nova(folder / "x.nova.jsonl", sessions, context)
    return lines(folder / "x.nova.jsonl"), context


def test_a_rollout(tmp_path: Path) -> None:
    session = known(taken(answered("s", "Three."), 0.5), sample_id="n-7", answer='{"n": 3}')
    (line,), _ = written(tmp_path, [session], ROLLOUTS)
    assert (line["id"], line["reference_answer"]) == ("n-7", {"n": 3})
    assert [message["role"] for message in line["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert all(isinstance(message["content"], str) for message in line["messages"])
    assert not any("weight" in message for message in line["messages"])
    assert line["tools"][0]["function"]["name"] == "bash"
    assert line["metadata"] == {
        "session_id": "s",
        "sample_id": "n-7",
        "answer": '{"n": 3}',
        "task_id": "g",
        "group_id": "g",
    }


def test_the_prompts_of_a_dataset(tmp_path: Path) -> None:
    sessions = [
        known(taken(answered("a", "x"), group="t"), reference_answer="three"),
        known(taken(answered("b", "y"), group="t"), reference_answer="three"),
        taken(answered("c", "z", question="Why?"), group="u"),
        taken(answered("d", "z", question="When?"), group="u"),
    ]
    found, context = written(tmp_path, sessions, PROMPTS)
    assert [(line["id"], line.get("reference_answer")) for line in found] == [
        ("t", "three"),
        ("u", None),
        ("u-2", None),
    ]
    assert [message["role"] for message in found[0]["messages"]] == ["system", "user"]
    assert context.account.texts == {"lines": 3, "prompts written already": 1, "lines without a reference answer": 2}


def test_what_has_no_place_is_counted(tmp_path: Path) -> None:
    talk = Talk(tools=())
    talk.say("user", "Look.", Media("image/png", "data:image/png;base64,AA=="), "Well?")
    talk.ask(Thinking("Hm."), Text("A dot."))
    (line,), context = written(tmp_path, [taken(talk)], ROLLOUTS)
    assert [message["content"] for message in line["messages"]] == ["Look.\nWell?", "A dot."]
    assert "tools" not in line
    told = context.account.texts
    assert (told["reasoning left out"], told["media left out"]) == (1, 1)


def test_the_best_of_a_group(tmp_path: Path) -> None:
    sessions = [taken(answered(name, name), reward) for name, reward in (("a", 0.0), ("b", 1.0))]
    found, _ = written(tmp_path, sessions, ROLLOUTS, TextOptions(best_of=1))
    assert [line["id"] for line in found] == ["b"]


def test_rewards_as_a_handler_gives_them(tmp_path: Path) -> None:
    parts = (RewardComponent("tests", 1.0), RewardComponent("length", 7.0, ComponentKind.METRIC))
    scored = taken(answered("s", "x"))
    scored = replace(scored, session=replace(scored.session, reward=Reward(0.5, parts)))
    found, context = written(tmp_path, [scored, taken(answered("t", "y"))], REWARDS)
    assert found == [
        {
            "id": "s",
            "aggregate_reward_score": 0.5,
            "metrics_list": [
                {"name": "tests", "value": 1.0, "type": "Reward"},
                {"name": "length", "value": 7.0, "type": "Metric"},
            ],
        }
    ]
    assert context.account.texts == {"lines": 1, "sessions without a reward": 1}


_NUMBERS = st.floats(-3.4e38, 3.4e38)
_REWARDS = st.builds(
    Reward,
    _NUMBERS,
    st.lists(
        st.builds(
            RewardComponent,
            st.text(max_size=4).filter(lambda text: text.isprintable()),
            _NUMBERS,
            st.sampled_from(ComponentKind),
        ),
        max_size=3,
        unique_by=lambda part: part.name,
    ).map(tuple),
    st.lists(st.builds(TurnReward, _NUMBERS, turn=st.integers(0, 9)), max_size=3, unique_by=lambda turn: turn.turn).map(
        tuple
    ),
)
_GIVEN = st.lists(
    st.tuples(st.none() | st.integers(0, 99), _REWARDS),
    max_size=4,
    unique_by=lambda one: one[0] if one[0] is not None else object(),
)
EMPTY = Talk()


@settings(max_examples=60, deadline=None)
@given(_GIVEN, st.booleans())
def test_rewards_find_their_sessions_again(
    tmp_path_factory: pytest.TempPathFactory, given_rewards: list[tuple[int | None, Reward]], as_list: bool
) -> None:
    """As lines, and as the one list that a handler answers."""
    sessions = []
    for place, (sample, reward) in enumerate(given_rewards):
        one = taken(EMPTY)
        session = replace(one.session, session_id=f"s{place}", reward=reward)
        named = {} if sample is None else {"sample_id": f"n{sample}"}
        sessions.append(known(replace(one, session=session), **named))
    folder = tmp_path_factory.mktemp("nova")
    found, _ = written(folder, sessions, REWARDS)
    file = folder / "x.nova.jsonl"
    if as_list:
        file.write_text(json.dumps(found, indent=1))
    names = Names.of(one.session for one in sessions)
    back = [_read(line, names) for _, line in _lines(file)]
    assert back == [(one.session.session_id, one.session.reward) for one in sessions]
