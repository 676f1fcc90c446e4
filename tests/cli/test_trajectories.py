"""A session that drifted: its branches under each rule, its tree, its drifts spelled out, and where two calls part."""

from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest

from polarproxy.cli.drifts import drift_lines
from polarproxy.cli.opening import Merge
from polarproxy.model import CallStatus, TokenIds
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from polarproxy.trajectory.drift import Drift, Window
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.symptoms import DriftClass
from tests.cli.command import Command
from tests.database import fresh
from tests.fakes.toy_tokenizer import encode, prompt_ids, token_bytes
from tests.store.samples import NOW, a_call, a_session, new_call

ASKED = [{"role": "user", "content": "What is the weather in Paris today?"}]
THOUGHT = "The user wants to know about the weather."
ANSWER = "It is sunny in Paris, with a light wind from the west."
SAMPLED = encode(f"<think>{THOUGHT}</think>{ANSWER}<|im_end|>")
FIRST = prompt_ids(ASKED)
STRIPPED = prompt_ids([*ASKED, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And tomorrow?"}])
RAIN = encode("Rain.<|im_end|>")
THIRD = [*STRIPPED, *RAIN, *encode("\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n")]


def texts(*sequences: Iterable[int]) -> dict[str, bytes]:
    return {f"t{token}": token_bytes(token) for ids in sequences for token in ids}


@pytest.fixture
def drifted(tmp_path: Path) -> str:
    """`s`: a turn whose reasoning is stripped from the next prompt, one that goes on exactly, and a call that failed."""
    url = fresh(tmp_path / "drifted.db")
    engine = open_database(url)
    Repository(engine).add_session(a_session("s"))
    writer = Writer(engine)
    calls = [
        a_call("c1", 0, FIRST, SAMPLED, session_id="s"),
        a_call("c2", 1, STRIPPED, RAIN, session_id="s"),
        a_call("c3", 2, THIRD, RAIN, session_id="s"),
        a_call("c4", 3, None, session_id="s", status=CallStatus.REJECTED, error="too long"),
    ]
    for call in calls:
        writer.submit(new_call(call, **texts(SAMPLED, RAIN))).result(20)
        writer.submit(Fact(call.call_id, NOW, DELIVERED, "yes")).result(20)
    writer.close()
    engine.dispose()
    return url


def test_a_drift_is_spelled_out_on_both_sides(polarproxy: Command, drifted: str) -> None:
    done = polarproxy("trajectories", "show", "s", "--db", drifted)
    assert f"c2 differs from c1 from token {len(FIRST)} on: thinking_stripped" in done.out
    theirs, ours = done.out.splitlines()[-2:]
    assert theirs.startswith("  c1: ")
    assert "⟦<think>The user wants to know" in theirs
    assert ours.startswith("  c2: ")
    assert "⟦⟧It is sunny in Paris" in ours
    (drift,) = polarproxy("trajectories", "show", "s", "--db", drifted, "--json").json["drifts"]
    assert (drift["class"], drift["call_id"], drift["earlier_call_id"]) == ("thinking_stripped", "c2", "c1")
    assert drift["position"] == len(FIRST)
    assert drift["there"]["token_ids"]["changed"] == SAMPLED[:16]
    assert drift["here"]["text"]["changed"] == ""


def test_the_tree_holds_every_call_once(polarproxy: Command, drifted: str) -> None:
    done = polarproxy("trajectories", "show", "s", "--tree", "--db", drifted)
    lines = done.out.splitlines()
    assert lines[0] == "session s, coverage 100.0%"
    assert lines[1] == f"├── c1 main  «{len(FIRST)}:{len(FIRST) + len(SAMPLED)}» trained in row 0"
    assert lines[2].startswith("├── c2 main  «")
    assert lines[2].endswith(f"trained in row 1  ≠ thinking_stripped at {len(FIRST)} of c1")
    assert lines[3].startswith("│   └── c3 main  «")
    assert lines[4] == "└── c4 main  left out: rejected"


def test_a_fork_is_indented_and_a_conversation_is_not(polarproxy: Command, tmp_path: Path) -> None:
    url = fresh(tmp_path / "forked.db")
    engine = open_database(url)
    Repository(engine).add_session(a_session("s"))
    writer = Writer(engine)
    prompts = [(1,), (1, 9, 2), (1, 9, 2, 9, 3), (1, 9, 2, 9, 4), (1, 9, 2, 9, 4, 9, 5)]
    for ordinal, prompt in enumerate(prompts):
        writer.submit(new_call(a_call(f"c{ordinal}", ordinal, prompt, (9,), session_id="s"))).result(20)
    writer.close()
    engine.dispose()
    done = polarproxy("trajectories", "show", "s", "--tree", "--db", url)
    shapes = [
        line.partition("c")[0].count(" " * 3) + line.partition("c")[0].count("──")
        for line in done.out.splitlines()[1:6]
    ]
    assert [line.split("main")[0].strip("│├└─ ") for line in done.out.splitlines()[1:6]] == [
        "c0",
        "c1",
        "c2",
        "c3",
        "c4",
    ]
    assert shapes == [1, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("merge", "tokens", "faithful"),
    [
        ("prefix_merging", [len(FIRST) + len(SAMPLED), len(THIRD) + len(RAIN)], True),
        ("per_request", [len(FIRST) + len(SAMPLED), len(STRIPPED) + len(RAIN), len(THIRD) + len(RAIN)], True),
        ("stitch", [len(THIRD) + len(RAIN) + len(SAMPLED) - len(encode(ANSWER + "<|im_end|>"))], False),
    ],
)
def test_rows_may_be_made_by_any_rule(
    polarproxy: Command, drifted: str, merge: str, tokens: list[int], faithful: bool
) -> None:
    shown = polarproxy("trajectories", "show", "s", "--merge", merge, "--db", drifted, "--json").json
    assert [len(branch["token_ids"]) for branch in shown["branches"]] == tokens
    assert [branch["faithful"] for branch in shown["branches"]] == [faithful] * len(tokens)
    assert (
        "off context" in polarproxy("trajectories", "show", "s", "--merge", merge, "--db", drifted).out
    ) is not faithful


def test_the_command_line_names_the_rules_there_are() -> None:
    (names, _) = get_args(Merge)
    assert list(get_args(names)) == list(dict(MERGES))


def test_where_two_calls_part(polarproxy: Command, drifted: str) -> None:
    done = polarproxy("trajectories", "diff", "c1", "c2", "--db", drifted)
    assert done.code == 1
    assert "thinking_stripped" in done.out
    same = polarproxy("trajectories", "diff", "c2", "c3", "--db", drifted)
    assert (same.code, same.out) == (
        0,
        f"the {len(STRIPPED) + len(RAIN)} tokens of c2 begin the {len(THIRD) + len(RAIN)} of c3\n",
    )
    assert "are the same" in polarproxy("trajectories", "diff", "c1", "s", "--db", drifted).out
    assert polarproxy("trajectories", "diff", "c1", "c2", "--db", drifted, "--json").json["position"] == len(FIRST)
    assert polarproxy("trajectories", "diff", "c2", "c3", "--db", drifted, "--json").json is None


def test_what_has_no_tokens_or_is_not_there_cannot_be_compared(polarproxy: Command, drifted: str) -> None:
    for name, said in (("c4", "no tokens to compare"), ("nothing", "no call and no session")):
        done = polarproxy("trajectories", "diff", "c1", name, "--db", drifted)
        assert done.code == 2
        assert said in done.err


def test_every_token_of_a_call(polarproxy: Command, drifted: str) -> None:
    lines = polarproxy("calls", "show", "c2", "--tokens", "--db", drifted).out.splitlines()
    start = lines.index("prompt")
    assert lines[start + 1].split() == ["position", "id", "logprob", "loss_mask", "text"]
    assert len(lines) == start + 2 + len(STRIPPED) + 1 + 2 + len(RAIN)
    last = lines[-1].split()
    assert last == [str(len(STRIPPED) + len(RAIN) - 1), str(RAIN[-1]), last[2], "1", "'<|im_end|>'"]


def test_other_tokens_of_the_same_text_are_shown_apart() -> None:
    texts = {1: b"Where is ", 2: b"Max", 3: b"im", 4: b"Maxim", 5: b"?"}

    def window(*changed: int) -> Window:
        return Window(TokenIds.of([1]), TokenIds.of(changed), TokenIds.of([5]))

    drift = Drift("b", 1, DriftClass.RETOKENIZED, "a", 9, here=window(4), there=window(2, 3))
    assert [line.plain for line in drift_lines(drift, texts)] == [
        "b differs from a from token 9 on: retokenized",
        "  a: Where is ⟦Max|im⟧?",
        "  b: Where is ⟦Maxim⟧?",
    ]


def test_of_several_choices_the_one_that_was_gone_on_from_is_compared(polarproxy: Command, tmp_path: Path) -> None:
    url = fresh(tmp_path / "choices.db")
    engine = open_database(url)
    Repository(engine).add_session(a_session("s"))
    writer = Writer(engine)
    for call in (
        a_call("a", 0, (1,), (2, 9), (3, 9), session_id="s"),
        a_call("b", 1, (1, 3, 9, 5), (6,), session_id="s"),
    ):
        writer.submit(new_call(call)).result(20)
    writer.close()
    engine.dispose()
    done = polarproxy("trajectories", "diff", "a", "b", "--db", url)
    assert (done.code, done.out.strip()) == (0, "the 3 tokens of a choice 1 begin the 5 of b")
    assert polarproxy("trajectories", "diff", "b", "a", "--db", url).code == 0
