"""What broke others' merging, played in text on a tokenizer: nothing is lost, and everything is trained in its own context.

The numbers are those of `docs/reference/cases.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from polarproxy.model import TOKEN_BYTES, CallKind, CapturedCall, TokenIds
from polarproxy.trajectory.branches import Trajectory, build_trajectory
from polarproxy.trajectory.drift import by_class, find_drifts
from polarproxy.trajectory.forest import build_forest
from polarproxy.trajectory.merging import stitch
from polarproxy.trajectory.prefix_tree import PrefixTree
from tests.trajectory.build import Said, turn
from tests.trajectory.laws import LAWS, faithful
from tests.trajectory.tongues import NAMES, TOY, Tongue, tongue

END = "<|im_end|>"
BEGIN = "<|im_start|>assistant\n"
SYSTEM = "<|im_start|>system\nYou work in a repository and answer in few words." + END + "\n"
TOOL = '<tool_call>\n{"name": "read", "arguments": {"path":"src/a.py", "lines":20}}\n</tool_call>'


def user(text: str) -> str:
    return f"<|im_start|>user\n{text}{END}\n"


def told(*turns: str) -> str:
    """A prompt: turns of the user and the assistant in alternation."""
    said = (user(text) if place % 2 == 0 else f"{BEGIN}{text}{END}\n" for place, text in enumerate(turns))
    return SYSTEM + "".join(said) + BEGIN


@dataclass(frozen=True)
class Outcome:
    trajectory: Trajectory
    drifts: dict[str, int]
    branches: list[list[str]]
    """The calls that each branch trains."""


def play(speak: Tongue, *asked: tuple[str, str], kinds: Sequence[CallKind] = ()) -> list[CapturedCall]:
    """Calls of prompts and replies; every reply ends its turn."""
    known = dict(enumerate(kinds))
    return [
        turn(place, speak.encode(prompt), Said(speak.encode(reply + END)), kind=known.get(place, CallKind.MAIN))
        for place, (prompt, reply) in enumerate(asked)
    ]


def outcome(speak: Tongue, calls: Sequence[CapturedCall]) -> Outcome:
    for law in LAWS:
        law(calls, lambda some: build_trajectory("s", some))
    prompts = [captured.call.prompt_token_ids or () for captured in calls]
    sampled = [completion.token_ids for captured in calls for completion in captured.call.completions]
    trajectory = build_trajectory("s", calls)
    return Outcome(
        trajectory,
        by_class(find_drifts(build_forest(calls), speak.texts(*prompts, *sampled))),
        [[turn.node.captured.call.call_id for turn in branch.turns if turn.trained] for branch in trajectory.branches],
    )


@pytest.fixture(params=NAMES)
def speak(request: pytest.FixtureRequest) -> Tongue:
    return tongue(request.param)


def test_five_turns_keep_every_token(speak: Tongue) -> None:
    """64, 141: the prefix of a long conversation is not lost after the second turn."""
    said = ["Where is it?", "In src."]
    asked = [(told(*said[:1]), said[1])]
    for number in range(4):
        said += [f"And file {number}?", f"File {number} is in src too."]
        asked.append((told(*said[:-1]), said[-1]))
    found = outcome(speak, play(speak, *asked))
    assert (found.branches, found.drifts) == ([[f"s-c{place}" for place in range(5)]], {})
    (branch,) = found.trajectory.branches
    assert list(branch.token_ids) == speak.encode(told(*said[:-1]) + said[-1] + END)


def test_a_call_that_a_parser_rewrote_forks_and_both_turns_are_trained(speak: Tongue) -> None:
    """40, 54, 55, 56: arguments come back with other spaces, or in another order."""
    for written in ('{"path": "src/a.py", "lines": 20}', '{"lines":20, "path":"src/a.py"}'):
        back = TOOL.replace('{"path":"src/a.py", "lines":20}', written)
        later = (told("Read it.", back, "It is empty."), "Then write it.")
        found = outcome(speak, play(speak, (told("Read it."), TOOL), later))
        assert found.drifts == {"arguments_reserialized": 1}
        assert found.branches == [["s-c0"], ["s-c1"]]
        assert found.trajectory.coverage == 1.0


def test_a_tool_call_that_is_dropped_from_history_is_truncated_and_nothing_is_lost(speak: Tongue) -> None:
    """48: the harness keeps the words of a turn and forgets its tool calls."""
    kept = "I will read the file first."
    calls = play(speak, (told("Fix it."), f"{kept}\n{TOOL}"), (told("Fix it.", kept, "Well?"), "Done."))
    found = outcome(speak, calls)
    assert (found.drifts, found.branches) == ({"truncated": 1}, [["s-c0"], ["s-c1"]])


def test_an_empty_think_block_of_the_generation_prompt_only(speak: Tongue) -> None:
    """44, S4′: Qwen without thinking. Both turns are trained where they were sampled; stitched they are one row, marked."""
    block = "<think>\n\n</think>\n\n"
    first = (told("Where is it?") + block, "It lies in the folder src.")
    second = (told("Where is it?", "It lies in the folder src.", "Sure?") + block, "Yes.")
    calls = play(speak, first, second)
    found = outcome(speak, calls)
    assert (found.drifts, found.branches) == ({"empty_think": 1}, [["s-c0"], ["s-c1"]])


def test_reasoning_that_a_template_drops_is_trained_all_the_same(speak: Tongue) -> None:
    """46, 50, 52, 53: and the row of the next turn holds what the engine saw, without it."""
    thought = "<think>\nIt must be in src.\n</think>\n\nIn src."
    calls = play(speak, (told("Where is it?"), thought), (told("Where is it?", "In src.", "Sure?"), "Yes."))
    found = outcome(speak, calls)
    assert (found.drifts, found.branches) == ({"thinking_stripped": 1}, [["s-c0"], ["s-c1"]])
    seen = told("Where is it?", "In src.", "Sure?") + "Yes." + END
    assert list(found.trajectory.branches[1].token_ids) == speak.encode(seen)


def test_a_lost_newline_before_the_end_of_a_turn_is_a_separator(speak: Tongue) -> None:
    """47: the template strips what the model sampled before its end of turn."""
    said = "It lies in the folder src."
    calls = play(speak, (told("Where is it?"), f"{said}\n"), (told("Where is it?", said, "Sure?"), "Yes."))
    found = outcome(speak, calls)
    assert (found.drifts, found.branches) == ({"separator": 1}, [["s-c0"], ["s-c1"]])


def test_a_nonce_in_the_system_prompt_breaks_every_prefix_and_loses_nothing(speak: Tongue) -> None:
    """61: every request differs from the last in the first line; each is a row of its own, and said to be."""
    said = ["Where is it?"]
    asked = []
    for number, nonce in enumerate(("4f9a1", "b07c3", "1d2e8")):
        reply = f"Answer {number}: it is in src."
        asked.append((told(*said).replace("You work", f"cch={nonce}; you work"), reply))
        said += [reply, f"Sure, {number}?"]
    found = outcome(speak, play(speak, *asked))
    assert found.drifts == {"nonce": 2}
    assert found.branches == [["s-c0"], ["s-c1"], ["s-c2"]]
    assert found.trajectory.coverage == 1.0


def test_a_last_reply_that_the_harness_rewrites_forks_as_edited(speak: Tongue) -> None:
    """71: what was sampled is trained, and so is what follows the rewritten turn."""
    said, written = "It is in the folder src, I believe.", "It is in the folder lib, I believe."
    found = outcome(speak, play(speak, (told("Where is it?"), said), (told("Where is it?", written, "Sure?"), "Yes.")))
    assert (found.drifts, found.branches) == ({"edited": 1}, [["s-c0"], ["s-c1"]])


def test_two_id_sequences_of_one_text_are_told_as_such() -> None:
    """41, 140: the same text in other ids is never taken for the same tokens."""
    prompt, later = told("Where is Maxim?"), told("Where is Maxim?", "Maxim is in the garden.", "Sure?")
    calls = [
        turn(0, TOY.encode(prompt), Said(TOY.pieces("Max", "im is in the garden.", END))),
        turn(1, TOY.encode(later), Said(TOY.encode("Yes." + END))),
    ]
    found = outcome(TOY, calls)
    assert (found.drifts, found.branches) == ({"retokenized": 1}, [["s-c0"], ["s-c1"]])


def test_a_compaction_in_the_middle_stops_nothing(speak: Tongue) -> None:
    """42, 63, 70, S4: history is replaced by a summary; what came before and after is trained, the summary is not."""
    summary = "The user looked for a file and was told that it lies in the folder src."
    asked = [
        (told("Where is it?"), "It lies in the folder src."),
        (told("Where is it?", "It lies in the folder src.", "Summarise."), summary),
        (told(f"Until now: {summary} Go on."), "I will read it now."),
        (told(f"Until now: {summary} Go on.", "I will read it now.", "Well?"), "It is empty."),
    ]
    found = outcome(speak, play(speak, *asked, kinds=[CallKind.MAIN, CallKind.COMPACTION]))
    assert found.drifts == {"compacted": 1}
    assert found.branches == [["s-c0"], ["s-c2", "s-c3"]]
    assert found.trajectory.left_out_by_reason() == {"side_call": 1}


def test_agents_that_take_turns_are_a_row_each_and_all_are_there(speak: Tongue) -> None:
    """65, 69, 70, 73: sub-agents share the parent's head and interleave with it; no chain is chosen over another."""
    agents = [[f"Task {number}: count the files."] for number in range(4)]
    asked = []
    for step in range(3):
        for number, said in enumerate(agents):
            reply = f"Agent {number} has counted {step} of them."
            asked.append((told(*said), reply))
            said += [reply, "Go on."]
    found = outcome(speak, play(speak, *asked))
    assert found.branches == [[f"s-c{number + 4 * step}" for step in range(3)] for number in range(4)]
    assert (found.drifts, found.trajectory.coverage) == ({}, 1.0)


def test_going_back_to_an_earlier_turn_is_a_fork_that_shares_its_trunk(speak: Tongue) -> None:
    """63: the longest exact parent wins, wherever it stands; the trunk is trained once."""
    asked = [
        (told("Where is it?"), "In src."),
        (told("Where is it?", "In src.", "Read it."), "It is empty."),
        (told("Where is it?", "In src.", "Delete it."), "It is gone."),
        (told("Where is it?", "In src.", "Delete it.", "It is gone.", "Sure?"), "Yes."),
    ]
    found = outcome(speak, play(speak, *asked))
    assert (found.branches, found.drifts) == ([["s-c0", "s-c1"], ["s-c2", "s-c3"]], {})
    trunk = len(speak.encode(told("Where is it?") + "In src." + END))
    assert [branch.shared_prefix for branch in found.trajectory.branches] == [0, trunk]


def test_replies_that_never_end_of_themselves_are_merged_all_the_same(speak: Tongue) -> None:
    """S2: no end-of-turn token has to be known to find what continues what."""
    prompt = speak.encode("Count: 1 2 3")
    sampled = speak.encode(" 4 5 6")
    calls = [turn(0, prompt, Said(sampled)), turn(1, prompt + sampled, Said(speak.encode(" 7 8 9")))]
    assert outcome(speak, calls).branches == [["s-c0", "s-c1"]]


def test_what_stitching_would_train_out_of_its_context_is_counted(speak: Tongue) -> None:
    """43, 59: with template drift at every turn the published rule makes one row, in which all but the first turn is off
    its context; the default makes rows that are all true."""
    said, asked = ["Where is it?"], []
    for number in range(3):
        reply = f"It is in the folder src{number}."
        asked.append((told(*said), f"<think>\nThought {number}.\n</think>\n\n{reply}"))
        said += [reply, f"Sure, {number}?"]
    calls = play(speak, *asked)
    stitched, default = build_trajectory("s", calls, stitch), outcome(speak, calls)
    assert default.drifts == {"thinking_stripped": 2}
    assert sum(branch.off_context_tokens for branch in default.trajectory.branches) == 0
    (row,) = stitched.branches
    sampled = [len(captured.call.completions[0].token_ids) for captured in calls]
    assert (row.off_context_tokens, row.trained_tokens) == (sum(sampled[1:]), sum(sampled))
    with pytest.raises(AssertionError):
        faithful(calls, lambda some: build_trajectory("s", some, stitch))


def test_each_token_is_held_once_however_often_it_is_told_again() -> None:
    """58: a conversation of n turns costs its own tokens, not the square of them."""
    tree: PrefixTree[int] = PrefixTree()
    said, sizes = ["Where is it?"], []
    for number in range(40):
        prompt, reply = TokenIds.of(TOY.encode(told(*said))), TokenIds.of(TOY.encode(f"Answer {number}." + END))
        tree.extend(tree.match(prompt), prompt, reply, number)
        said += [f"Answer {number}.", f"Sure, {number}?"]
        sizes.append(len(prompt) + len(reply))
    assert held(tree) == sizes[-1]
    assert sum(sizes) > 15 * sizes[-1]


def held(tree: PrefixTree[int]) -> int:
    """Tokens of all pieces that the tree keeps."""
    todo, tokens = [tree.match(TokenIds()).node], 0
    while todo:
        node = todo.pop()
        tokens += len(node.label) // TOKEN_BYTES
        todo.extend(node.children.values())
    return tokens
