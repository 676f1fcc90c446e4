"""Which conversation a prompt goes on with, where several seem to be told again: found by the laws, pinned here."""

from dataclasses import dataclass, replace

import pytest

from polarproxy.model import CallKind, CallStatus, CapturedCall
from polarproxy.trajectory.drift import find_drifts
from polarproxy.trajectory.echoes import Echoes
from polarproxy.trajectory.forest import build_forest
from polarproxy.trajectory.retold import Retold
from polarproxy.trajectory.symptoms import DriftClass
from tests.trajectory.build import Said, turn
from tests.trajectory.tongues import NAMES, TOY, Tongue, tongue

END = "<|im_end|>"
BEGIN = "<|im_start|>assistant\n"
THINK = "<think>\nI count them, twice.\n</think>\n\n"


@dataclass(frozen=True)
class Ask:
    """One call: what its prompt tells, in turns of a question and a reply, and what is said then."""

    told: tuple[str, ...]
    """Replies as the prompt tells them."""
    reply: str
    tools: str = "bash"
    system: str = "Be careful and brief."

    def prompt(self) -> str:
        head = f"<|im_start|>system\n{self.system} Tools: {self.tools}.{END}\n"
        asks = [
            f"<|im_start|>user\nQuestion {number}: what is in src?{END}\n{BEGIN}"
            for number in range(1 + len(self.told))
        ]
        replies = [f"{reply}{END}\n" for reply in self.told]
        return head + "".join(ask + reply for ask, reply in zip(asks, [*replies, ""], strict=True))


def answer(number: int) -> str:
    return f"There are {number} files in src, and none of them is empty or new."


def played(asks: list[Ask], speak: Tongue) -> list[CapturedCall]:
    made = [turn(at, speak.encode(ask.prompt()), Said(speak.encode(ask.reply + END))) for at, ask in enumerate(asks)]
    return [replace(one, call=replace(one.call, tools_digest=ask.tools)) for one, ask in zip(made, asks, strict=True)]


def drifts(asks: list[Ask], speak: Tongue) -> dict[str, tuple[str, DriftClass]]:
    return classes(played(asks, speak), speak)


def classes(calls: list[CapturedCall], speak: Tongue) -> dict[str, tuple[str, DriftClass]]:
    prompts = [one.call.prompt_token_ids or () for one in calls]
    texts = speak.texts(*prompts, *(one.call.completions[0].token_ids for one in calls))
    found = find_drifts(build_forest(calls), texts)
    return {drift.call_id: (drift.earlier_call_id, drift.drift_class) for drift in found}


@pytest.mark.parametrize("name", NAMES)
def test_the_conversation_with_new_tools_is_told_again_and_not_the_one_that_it_left(name: str) -> None:
    """The old one, without reasoning in its middle, has more of its end in common with the prompt than the new one."""
    thought = THINK + answer(0)
    asks = [
        Ask((), thought),
        Ask((thought,), answer(1)),
        Ask((thought, answer(1)), answer(2)),
        Ask((thought, answer(1), answer(2)), "Never mind, I will not do that.", "bash, edit"),
        Ask((thought, answer(1), answer(2)), THINK + answer(3), "bash, edit"),
        Ask((thought, answer(1), answer(2), THINK + answer(3)), answer(4), "bash, edit"),
        Ask((answer(0), answer(1), answer(2), answer(3), answer(4)), answer(5), "bash, edit"),
    ]
    assert drifts(asks, tongue(name)) == {
        "s-c3": ("s-c2", DriftClass.TOOLS_CHANGED),
        "s-c6": ("s-c5", DriftClass.THINKING_STRIPPED),
    }


@pytest.mark.parametrize("name", NAMES)
def test_what_went_on_from_the_reply_that_is_told_again_is_not_told_itself(name: str) -> None:
    """The last reply ends like the one that it goes on from, and stands nowhere in the prompt."""
    asks = [
        Ask((), answer(0)),
        Ask((answer(0),), answer(1)),
        Ask((answer(0), answer(1)), answer(2)),
        Ask((answer(0), answer(1)), answer(3), system="Talk like a pirate, and say so."),
    ]
    assert drifts(asks, tongue(name)) == {"s-c3": ("s-c1", DriftClass.SYSTEM_CHANGED)}


def test_with_a_nonce_in_every_turn_each_tells_the_one_before_it_again() -> None:
    asks = [
        Ask(tuple(map(answer, range(at))), answer(at), system=f"Build {1000 + at}. Be brief. Seed {50 + at}.")
        for at in range(12)
    ]
    found = drifts(asks, TOY)
    assert found == {f"s-c{at}": (f"s-c{at - 1}", DriftClass.NONCE) for at in range(1, 12)}


def test_agents_whose_replies_all_end_alike_tell_their_own_again() -> None:
    """More of them than are compared, in turns, and something changes in two places of each prompt."""
    systems = [f"You are agent {name}, who counts for {'x' * name} alone." for name in range(9)]
    rounds = [[answer(100 * name + at) for at in range(4)] for name in range(9)]
    asks = [
        Ask(tuple(replies[:at]), replies[at], system=f"{system} Round {at}.", tools=f"bash {at}")
        for at in range(4)
        for system, replies in zip(systems, rounds, strict=True)
    ]
    found = drifts(asks, TOY)
    assert {call: earlier for call, (earlier, _) in found.items()} == {
        f"s-c{at}": f"s-c{at - 9}" for at in range(9, 36)
    }


SUMMARY = "Somebody asked twice what is in src, and was told that it holds two files, of which none is new."


def compacted(*, kept: str, kind: CallKind = CallKind.COMPACTION) -> list[CapturedCall]:
    """Two turns, a summary of them, and a prompt that tells the summary and `kept` again."""
    ask = f"<|im_start|>user\nWhat is in src now, after all of that?{END}\n"
    head = f"<|im_start|>system\nBe brief.{END}\n<|im_start|>user\n"
    last = f"{BEGIN}{answer(1)}{END}\n"
    first = f"{head}What is in src?{END}\n{BEGIN}{answer(0)}{END}\n{ask}"
    prompts = [
        (f"{head}What is in src?{END}\n{BEGIN}", answer(0), CallKind.MAIN),
        (first + BEGIN, answer(1), CallKind.MAIN),
        (f"{first}{last}<|im_start|>user\nSummarise all this.{END}\n{BEGIN}", SUMMARY, kind),
        (
            kept.format(head=head, summary=SUMMARY + END + "\n", first=first, last=last) + ask + BEGIN,
            "Nothing.",
            CallKind.MAIN,
        ),
    ]
    return [turn(at, TOY.encode(p), Said(TOY.encode(r + END)), kind=k) for at, (p, r, k) in enumerate(prompts)]


def test_a_summary_with_the_last_turn_behind_it_is_a_compaction() -> None:
    """Claude Code keeps the turns of which the engine said that they were too long."""
    assert classes(compacted(kept="{head}{summary}{last}"), TOY) == {"s-c3": ("s-c2", DriftClass.COMPACTED)}


def test_a_summary_that_a_tool_result_tells_is_none() -> None:
    """A page that was summed up by a side call stands behind the turn that asked for it."""
    calls = compacted(
        kept="<|im_start|>tools\nread, edit and find<|im_end|>\n{first}{last}<|im_start|>tool\n{summary}",
        kind=CallKind.SUMMARY,
    )
    assert classes(calls, TOY) == {"s-c3": ("s-c1", DriftClass.SYSTEM_CHANGED)}


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_that_was_thrown_away_is_not_told_again_by_its_first_word(name: str) -> None:
    """Codex kept the text of a reply that broke off as a turn, and took it out again after the next one."""
    speak = tongue(name)
    head = f"<|im_start|>system\nBe brief.{END}\n<|im_start|>user\nCount the files in src.{END}\n{BEGIN}"
    said = "I will run a command for that."
    act = f'{THINK}{said}<tool_call>\n{{"name": "exec", "arguments": {{"cmd": "ls src"}}}}\n</tool_call>{END}'
    result = f"\n<|im_start|>tool\ntwo files{END}\n{BEGIN}"
    broken = turn(
        0, speak.encode(head), Said(speak.encode(said + "<tool_call>\n"), finish=None), status=CallStatus.ABORTED
    )
    calls = [
        broken,
        turn(1, speak.encode(f"{head}{said}{END}\n{BEGIN}"), Said(speak.encode(act))),
        turn(2, speak.encode(head + act + result), Said(speak.encode(answer(2) + END))),
    ]
    assert classes(calls, speak)["s-c2"] == ("s-c1", DriftClass.EDITED)


def test_a_summary_that_stands_in_the_history_already_is_no_second_compaction() -> None:
    """The system prompt changes after the compaction, and the conversation with the summary is told again."""
    calls = compacted(kept="{head}{summary}{last}")
    prompt = TOY.encode(f"<|im_start|>system\nBe a pirate, and say so.{END}\n<|im_start|>user\n")
    told = [*(calls[3].call.prompt_token_ids or ()), *calls[3].call.completions[0].token_ids]
    head = len(TOY.encode(f"<|im_start|>system\nBe brief.{END}\n<|im_start|>user\n"))
    again = turn(
        4, [*prompt, *told[head:], *TOY.encode(f"\n<|im_start|>user\nSo?{END}\n{BEGIN}")], Said(TOY.encode("No." + END))
    )
    assert classes([*calls, again], TOY)["s-c4"] == ("s-c3", DriftClass.SYSTEM_CHANGED)


def test_of_a_conversation_only_its_last_turn_is_compared() -> None:
    """Each of its replies stands in the prompt; they are one conversation, and leave room for others."""
    asks = [Ask(tuple(map(answer, range(at))), answer(at)) for at in range(9)]
    asks.append(Ask(tuple(map(answer, range(9))), answer(9), system="Be a pirate, and say so."))
    forest = build_forest(played(asks, TOY))
    retold = Retold.of(forest, Echoes(forest))
    candidates = retold._candidates(9)
    assert len(candidates) > 4
    assert [one.place for one in retold._tips(candidates)] == [8]
