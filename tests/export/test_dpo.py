"""Pairs: of one prompt, token for token; the better one is chosen; a fork is told from a retry."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.export.format import Context, Taken
from polarproxy.export.texts.dpo import BOTH, FORKS, SESSIONS, write_dpo
from polarproxy.export.texts.options import TextOptions
from polarproxy.model import CallKind, FinishReason, Label
from polarproxy.wire.neutral.request import Text, Thinking
from tests.export.talk import Talk, answered, asked_again
from tests.export.test_sft import lines, said_context, taken
from tests.trajectory.build import WHEN


def written(
    folder: Path, sessions: Iterable[Taken], options: TextOptions | None = None, form: str = BOTH
) -> tuple[list[Any], Context]:
    context = replace(said_context(options), form=form)
    write_dpo(folder / "x.dpo.jsonl", sessions, context)
    return lines(folder / "x.dpo.jsonl"), context


def names(found: list[Any]) -> list[tuple[str, str]]:
    return [(pair["metadata"]["chosen"]["session_id"], pair["metadata"]["rejected"]["session_id"]) for pair in found]


def group(**rewards: float | None) -> list[Taken]:
    return [taken(answered(name, f"I am {name}."), reward) for name, reward in rewards.items()]


def test_a_pair(tmp_path: Path) -> None:
    ((pair), *more), _ = written(tmp_path, group(a=0.0, b=1.0))
    assert more == []
    assert pair["prompt"] == [{"role": "system", "content": "Be good."}, {"role": "user", "content": "How many?"}]
    assert [message["role"] for message in pair["chosen"]] == ["assistant", "tool", "assistant"]
    assert (pair["chosen"][-1]["content"], pair["rejected"][-1]["content"]) == ("I am b.", "I am a.")
    assert [message.get("weight") for message in pair["rejected"]] == [1, None, 1]
    assert pair["tools"][0]["function"]["name"] == "bash"
    about = pair["metadata"]
    assert (about["kind"], about["margin"], about["chosen"]["reward"]) == ("sessions", 1.0, 1.0)
    assert about["rejected"] == {"session_id": "a", "call_ids": ["a-c0", "a-c1"], "reward": 0.0}


def test_which_pairs_of_a_group(tmp_path: Path) -> None:
    sessions = group(a=0.2, b=1.0, c=0.5, d=None, e=1.0)
    found, context = written(tmp_path, sessions)
    assert names(found) == [("b", "a")]
    assert context.account.texts["sessions without a reward"] == 1
    every, _ = written(tmp_path, sessions, TextOptions(pairs="all"))
    assert names(every) == [("b", "c"), ("b", "a"), ("e", "c"), ("e", "a"), ("c", "a")]
    wide, _ = written(tmp_path, sessions, TextOptions(pairs="all", margin=0.5))
    assert names(wide) == [("b", "c"), ("b", "a"), ("e", "c"), ("e", "a")]
    none, _ = written(tmp_path, sessions, TextOptions(margin=0.9))
    assert none == []


def test_other_prompts_are_no_pair(tmp_path: Path) -> None:
    sessions = [
        taken(answered("a", "x", question="How many?"), 1.0),
        taken(answered("b", "y", question="How much?"), 0.0),
    ]
    found, context = written(tmp_path, sessions)
    assert found == []
    assert context.account.texts["sessions whose prompt no other of their group has"] == 2


def test_other_models_are_no_pair(tmp_path: Path) -> None:
    talk = answered("b", "y")
    talk.calls = [replace(one, call=replace(one.call, served_model="other")) for one in talk.calls]
    found, _ = written(tmp_path, [taken(answered("a", "x"), 1.0), taken(talk, 0.0)])
    assert found == []


def test_groups_are_not_mixed(tmp_path: Path) -> None:
    found, _ = written(tmp_path, [taken(answered("a", "x"), 1.0, "g"), taken(answered("b", "y"), 0.0, "h")])
    assert found == []


def test_the_same_answer_is_no_pair(tmp_path: Path) -> None:
    found, context = written(tmp_path, [taken(answered("a", "x"), 1.0), taken(answered("b", "x"), 0.0)])
    assert found == []
    assert context.account.texts["pairs of one and the same answer"] == 1


def test_a_pair_that_was_written_is_written_once(tmp_path: Path) -> None:
    sessions = [
        taken(answered(name, answer), reward, of)
        for name, answer, reward, of in (
            ("a", "x", 1.0, "g"),
            ("b", "y", 0.0, "g"),
            ("c", "x", 1.0, "h"),
            ("d", "y", 0.0, "h"),
        )
    ]
    assert len(written(tmp_path, sessions)[0]) == 2
    found, context = written(tmp_path, sessions, TextOptions(dedup=True))
    assert names(found) == [("a", "b")]
    assert context.account.texts["written already"] == 1


def test_reasoning_that_is_stripped_does_not_part_a_run_from_its_prompt(tmp_path: Path) -> None:
    sessions = []
    for name, last, reward in (("a", "4", 1.0), ("b", "5", 0.0)):
        talk = Talk(tools=(), session_id=name)
        talk.say("user", "1+1?")
        talk.ask(Thinking("Two."), Text("2"), keep=False)
        talk.messages.append(replace(talk.messages[0], role="assistant", parts=(Text("2"),)))
        talk.say("user", "2+2?")
        talk.ask(Thinking("Hm."), Text(last))
        sessions.append(taken(talk, reward))
    (pair,), _ = written(tmp_path, sessions)
    assert [message["content"] for message in pair["prompt"]] == ["1+1?"]
    assert [message.get("weight") for message in pair["chosen"]] == [0, None, 1]


def compacted(name: str, answer: str) -> Talk:
    talk = Talk(tools=(), session_id=name)
    talk.say("user", "1+1?")
    talk.ask(Text("2"))
    talk.messages.clear()
    talk.say("user", "Summary.")
    talk.ask(Text(answer))
    return talk


def test_a_history_that_was_replaced_is_no_run(tmp_path: Path) -> None:
    found, context = written(tmp_path, [taken(compacted("a", "x"), 1.0), taken(compacted("b", "y"), 0.0)])
    assert found == []
    assert context.account.texts["sessions without a text: history_was_replaced"] == 2


def test_an_answer_that_was_asked_again(tmp_path: Path) -> None:
    for finish in (FinishReason.STOP, FinishReason.LENGTH):
        (pair,), _ = written(tmp_path, [taken(asked_again(finish=finish))])
        assert pair["prompt"] == [{"role": "user", "content": "1+1?"}]
        assert pair["chosen"] == [{"role": "assistant", "content": "2", "weight": 1}]
        assert pair["rejected"] == [{"role": "assistant", "content": "3", "weight": 1}]
        about = pair["metadata"]
        assert (about["kind"], about["margin"], about["chosen"]["reward"]) == ("forks", None, None)
        assert (about["chosen"]["call_ids"], about["rejected"]["call_ids"]) == (["s-c1"], ["s-c0"])


@pytest.mark.parametrize(
    "talk",
    [
        asked_again(delivered=False),
        asked_again(goes_on=False),
        asked_again(finish=FinishReason.ABORT),
    ],
    ids=["never arrived", "nobody went on", "broke off"],
)
def test_what_is_no_choice_of_the_harness(tmp_path: Path, talk: Talk) -> None:
    assert written(tmp_path, [taken(talk)])[0] == []


def test_titles_are_no_answers(tmp_path: Path) -> None:
    talk = asked_again()
    assert len(written(tmp_path, [taken(talk)])[0]) == 1
    talk.calls[0] = replace(talk.calls[0], labels=(Label(CallKind.TITLE, "ann", WHEN),))
    assert written(tmp_path, [taken(talk)])[0] == []


def test_forms(tmp_path: Path) -> None:
    talk = asked_again()
    sessions = [taken(talk, None, "forked"), *group(a=0.0, b=1.0)]
    assert len(written(tmp_path, sessions)[0]) == 2
    assert [pair["metadata"]["kind"] for pair in written(tmp_path, sessions, form=FORKS)[0]] == ["forks"]
    assert [pair["metadata"]["kind"] for pair in written(tmp_path, sessions, form=SESSIONS)[0]] == ["sessions"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=6),
    st.sampled_from([None, 0.0, 0.25, 0.5]),
)
def test_every_pair_keeps_to_its_laws(
    tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, float | None]], margin: float | None
) -> None:
    sessions = [taken(answered(f"s{place}", answer), reward) for place, (answer, reward) in enumerate(members)]
    found, _ = written(tmp_path_factory.mktemp("dpo"), sessions, TextOptions(pairs="all", margin=margin))
    rewards = {f"s{place}": reward for place, (_, reward) in enumerate(members)}
    said = {f"s{place}": answer for place, (answer, _) in enumerate(members)}
    wanted = {
        (one, other)
        for one, high in rewards.items()
        for other, low in rewards.items()
        if high is not None
        and low is not None
        and high > low
        and high - low >= (margin or 0)
        and said[one] != said[other]
    }
    assert set(names(found)) == wanted
    assert len(found) == len(wanted)
    for pair in found:
        assert pair["chosen"] != pair["rejected"]
