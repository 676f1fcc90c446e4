"""What trainers read that know a prompt and a response, written out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from polarproxy.export.trainers.nemo_rl import to_nemo_rl_train
from polarproxy.export.trainers.row import rows_of
from polarproxy.export.trainers.skyrl import ABSENT, generator_output, to_skyrl
from polarproxy.export.trainers.slime import to_slime
from polarproxy.export.trainers.trl import Replay, to_trl
from polarproxy.export.trainers.verl import to_verl, to_verl_rows
from tests.export.trainers.example import ROWS, plain
from tests.export.trainers.rows import Part, sample


def test_numbers_of_rows_sessions_and_groups() -> None:
    alone = sample([([1], "context", [0], 0, 0), ([2], "trained", [-1], 0, 0)], session_id="c", group_id=None)
    other = sample([([1], "context", [0], 0, 0), ([2], "trained", [-1], 0, 0)], session_id="d", group_id=None)
    rows = list(rows_of([*ROWS, alone, other]))
    assert [row.index for row in rows] == [0, 1, 2, 3, 4]
    assert [row.session_index for row in rows] == [0, 0, 1, 2, 3]
    assert [row.group_index for row in rows] == [0, 0, 0, 1, 2]
    assert [row.repetition for row in rows] == [0, 0, 1, 0, 0]
    assert [row.last for row in rows] == [False, True, True, True, True]
    assert [row.group for row in rows] == ["g", "g", "g", "session:c", "session:d"]
    assert [row.prompt_length for row in rows] == [3, 3, 2, 1, 1]
    assert list(rows[0].spans()) == [(3, 5), (6, 7)]
    assert list(rows[1].spans()) == [(6, 7)]


def test_no_group_has_the_name_of_a_session_without_one() -> None:
    """Else a trainer would take both for one group, and compare rewards that have nothing to do with each other."""
    turn: list[Part] = [([1], "context", [0], 0, 0), ([2], "trained", [-1], 0, 0)]
    names: list[tuple[str, str | None]] = [
        ("x", None),
        ("y", "x"),
        ("z", "session:x"),
        ("v", "group:session:x"),
        ("w", ""),
        ("x2", "group:x"),
    ]
    rows = [sample(turn, session_id=session, group_id=group) for session, group in names]
    assert [row.group for row in rows_of(rows)] == [
        "session:x",
        "x",
        "group:session:x",
        "group:group:session:x",
        "",
        "group:group:x",
    ]
    assert len(set(to_verl(rows).non_tensors["uid"])) == len({row["prompt"] for row in to_trl(rows)}) == len(names)
    ids = [row["trajectory_ids"]["instance_id"] for row in to_skyrl(rows)]
    assert len(set(ids)) == len(names)


@pytest.mark.parametrize("credited", [False, True])
def test_a_batch_of_no_rows_has_what_the_others_of_its_export_have(credited: bool) -> None:
    rows = ROWS if credited else [replace(row, reward=None, advantages=None) for row in ROWS]
    assert to_verl([], credited=credited).tensors.keys() == to_verl(rows).tensors.keys()
    assert to_nemo_rl_train([], credited=credited).keys() == to_nemo_rl_train(rows).keys()


def test_verl_padded() -> None:
    batch = to_verl(ROWS, pad_token_id=99)
    tensors = {name: plain(value) for name, value in batch.tensors.items()}
    assert tensors["prompts"] == [[1, 2, 3], [1, 2, 3], [99, 1, 2]]
    assert tensors["responses"] == [[4, 5, 6, 7], [4, 5, 8, 9], [5, 99, 99, 99]]
    assert tensors["response_mask"] == [[1, 1, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert tensors["rollout_log_probs"] == [[-0.5, -1, 0, -2], [0, 0, 0, -0.25], [-3, 0, 0, 0]]
    assert tensors["advantages"] == [[0.5, 0.5, 0, 0.25], [0, 0, 0, 0.5], [-1, 0, 0, 0]]
    assert tensors["rm_scores"] == [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert tensors["input_ids"] == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 8, 9], [99, 1, 2, 5, 99, 99, 99]]
    assert tensors["attention_mask"] == [[1] * 7, [1] * 7, [0, 1, 1, 1, 0, 0, 0]]
    assert tensors["position_ids"] == [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6], [0, 0, 1, 2, 2, 2, 2]]
    floats = {"rollout_log_probs", "advantages", "rm_scores"}
    assert {name: array.dtype for name, array in batch.tensors.items()} == {
        name: np.dtype(np.float32 if name in floats else np.int64) for name in tensors
    }
    assert batch.non_tensors == {
        "uid": ["g", "g", "g"],
        "__num_turns__": [2, 2, 1],
        "min_global_steps": [3, 3, 3],
        "max_global_steps": [4, 3, 3],
        "session_id": ["a", "a", "b"],
        "branch_index": [0, 1, 0],
        "loss_weight": [0.5, 0.5, 1.0],
    }
    assert batch.meta_info == {"temperature": 1.0}


def test_verl_not_padded() -> None:
    row = to_verl_rows(ROWS)[2]
    assert {
        name: plain(row[name]) for name in ("prompts", "responses", "response_mask", "loss_mask", "position_ids")
    } == {
        "prompts": [1, 2],
        "responses": [5],
        "response_mask": [1],
        "loss_mask": [1],
        "position_ids": [0, 1, 2],
    }
    assert row["uid"] == "g"


def test_what_not_all_rows_have_is_in_no_verl_batch() -> None:
    """A column of some rows is none that a tensor could hold; NULL is not 0."""
    unknown = sample(
        [([1], "context", [0], 0, 0), ([2], "trained", [-1], 0, 0)], reward=None, credit=False, temperature=0.5
    )
    for held in (to_verl([*ROWS, unknown]).tensors, to_verl_rows([*ROWS, unknown])[0]):
        assert not {"rm_scores", "advantages"} & held.keys()
    assert to_verl([*ROWS, unknown]).meta_info == {}


def test_slime() -> None:
    first, second, third = to_slime(ROWS)
    assert first == {
        "group_index": 0,
        "index": 0,
        "rollout_id": 0,
        "prompt": "",
        "tokens": [1, 2, 3, 4, 5, 6, 7],
        "response": "",
        "response_length": 4,
        "reward": 1.0,
        "loss_mask": [1, 1, 0, 1],
        "weight_versions": ["3", "4"],
        "rollout_log_probs": [-0.5, -1.0, 0.0, -2.0],
        "remove_sample": False,
        "status": "completed",
        "metadata": {"group_id": "g", "task_id": None, "branch_index": 0},
        "train_metadata": {"loss_weight": 0.5, "advantages": [0.5, 0.5, 0.0, 0.25]},
        "session_id": "a",
    }
    assert [row["rollout_id"] for row in (first, second, third)] == [0, 0, 1]
    assert second["loss_mask"] == [0, 0, 0, 1]


def test_skyrl() -> None:
    output = generator_output(to_skyrl(ROWS))
    assert output["prompt_token_ids"] == [[1, 2, 3], [1, 2, 3], [1, 2]]
    assert output["response_ids"] == [[4, 5, 6, 7], [4, 5, 8, 9], [5]]
    assert output["loss_masks"] == [[1, 1, 0, 1], [0, 0, 0, 1], [1]]
    assert output["rollout_logprobs"] == [[-0.5, -1, 0, -2], [0, 0, 0, -0.25], [-3]]
    assert output["rewards"] == [[0, 0, 0, 0], [0, 0, 0, 1], [0]], "once a session, at the end of its last row"
    assert output["is_last_step"] == [False, True, True]
    assert output["trajectory_ids"] == [
        {"instance_id": "g", "repetition_id": 0},
        {"instance_id": "g", "repetition_id": 0},
        {"instance_id": "g", "repetition_id": 1},
    ]
    assert output["advantages"] == [[0.5, 0.5, 0, 0.25], [0, 0, 0, 0.5], [-1]]
    assert all(output[name] is None for name in ABSENT)


def test_trl_replays_the_rows_of_each_group_in_order_and_fills_small_groups() -> None:
    lonely = sample([([1], "context", [0], 0, 0), ([2, 3], "trained", [-1, -2], 0.5, 0)], session_id="c", group_id="h")
    replay = Replay(to_trl([*ROWS, lonely]))
    assert replay.prompts == [{"prompt": "g"}, {"prompt": "h"}]
    assert replay.num_generations == 3
    given = {name: plain(values) for name, values in replay(["h", "h", "h", "g", "g", "g"], None).items()}
    assert given["prompt_ids"] == [[1], [1], [1], [1, 2, 3], [1, 2, 3], [1, 2]]
    assert given["completion_ids"] == [[2, 3], [2], [2], [4, 5, 6, 7], [4, 5, 8, 9], [5]]
    assert given["logprobs"] == [[-1, -2], [0], [0], [-0.5, -1, 0, -2], [0, 0, 0, -0.25], [-3]]
    assert given["env_mask"] == [[1, 1], [0], [0], [1, 1, 0, 1], [0, 0, 0, 1], [1]]
    assert given["reward"] == [1.0, None, None, 1.0, 1.0, 0.0]
    assert given["advantages"] == [[0.5, 0.5], [0.0], [0.0], [0.5, 0.5, 0, 0.25], [0, 0, 0, 0.5], [-1]]
    assert "prompt" not in given
