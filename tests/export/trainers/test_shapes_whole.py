"""What trainers read that know one sequence, or messages of it, written out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np

from polarproxy.export.trainers.areal import to_areal
from polarproxy.export.trainers.nemo_gym import to_nemo_gym
from polarproxy.export.trainers.nemo_rl import to_nemo_rl, to_nemo_rl_train
from polarproxy.export.trainers.openrlhf import to_openrlhf, to_openrlhf_agent
from polarproxy.export.trainers.prime_rl import TrainingSample, to_prime_rl
from polarproxy.export.trainers.tinker import to_tinker
from tests.export.trainers.example import ROWS, plain
from tests.export.trainers.rows import Part, sample


def test_prime_rl() -> None:
    first, _, third = to_prime_rl(ROWS)
    assert first == TrainingSample(
        token_ids=[1, 2, 3, 4, 5, 6, 7],
        mask=[False, False, False, True, True, False, True],
        logprobs=[0, 0, 0, -0.5, -1, 0, -2],
        temperatures=[1.0] * 7,
        env_name="calculator",
        rl_weights=[0, 0, 0, 0.5, 0.5, 0, 0.5],
        advantages=[0, 0, 0, 0.5, 0.5, 0, 0.25],
    )
    assert third.rl_weights is None, "1 on every trained token is what the absence means"


def test_nemo_rl() -> None:
    first, second, _ = to_nemo_rl(ROWS)
    log = [{name: plain(value) for name, value in message.items()} for message in first["message_log"]]
    user: dict[str, Any] = {"role": "user", "content": ""}
    assistant: dict[str, Any] = {"role": "assistant", "content": ""}
    assert log == [
        user | {"token_ids": [1, 2, 3], "token_loss_mask": [0, 0, 0], "advantages": [0, 0, 0]},
        assistant
        | {"token_ids": [4, 5], "token_loss_mask": [1, 1], "generation_logprobs": [-0.5, -1], "advantages": [0.5, 0.5]},
        user | {"token_ids": [6], "token_loss_mask": [0], "advantages": [0]},
        assistant | {"token_ids": [7], "token_loss_mask": [1], "generation_logprobs": [-2], "advantages": [0.25]},
    ]
    assert (first["length"], first["loss_multiplier"], first["idx"], first["task_name"]) == (7, 0.5, 0, "calculator")
    roles = [(message["role"], message["token_ids"].tolist()) for message in second["message_log"]]
    assert roles == [("user", [1, 2, 3]), ("user", [4, 5, 8]), ("assistant", [9])], (
        "a turn that is context is no assistant's, or NeMo RL would train it; the prompt stays a message of its own"
    )
    assert first["message_log"][0]["token_ids"].dtype == np.int64
    assert first["message_log"][1]["generation_logprobs"].dtype == np.float32


def test_nemo_rl_train_batch() -> None:
    batch = to_nemo_rl_train(ROWS, pad_token_id=99)
    assert {name: plain(value) for name, value in batch.items()} == {
        "input_ids": [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 8, 9], [1, 2, 5, 99, 99, 99, 99]],
        "generation_logprobs": [[0, 0, 0, -0.5, -1, 0, -2], [0, 0, 0, 0, 0, 0, -0.25], [0, 0, -3, 0, 0, 0, 0]],
        "token_mask": [[0, 0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0]],
        "advantages": [[0, 0, 0, 0.5, 0.5, 0, 0.25], [0, 0, 0, 0, 0, 0, 0.5], [0, 0, -1, 0, 0, 0, 0]],
        "input_lengths": [7, 7, 3],
        "sample_mask": [0.5, 0.5, 1.0],
    }


def test_choices_of_one_call_are_turns_of_different_names_to_nemo_gym() -> None:
    """It chains turns by them: two of one name would be one turn, whose tokens contradict each other."""
    turn: list[Part] = [([1], "context", [0], 0, 0), ([2], "trained", [-1], 0, 0), ([3], "trained", [-1], 0, 0)]
    rows = [sample(turn, session_id=name, branch=branch) for name, branch in (("a", 0), ("a", 1), ("b", 0))]
    rows = [replace(row, call_ids=("c1", f"c{row.branch_index + 2}")) for row in rows]
    turns = list(to_nemo_gym(rows))
    assert [(one["model_call_id"], one.get("parent_call_id")) for one in turns] == [
        ("c1", None),
        ("c2", "c1"),
        ("c1#2", None),
        ("c3", "c1#2"),
        ("c1", None),
        ("c2", "c1"),
    ]


def test_nemo_gym() -> None:
    turns = list(to_nemo_gym(ROWS))
    assert [(turn["rollout_id"], turn["model_call_id"]) for turn in turns] == [
        ("a/0", "a-0-0"),
        ("a/0", "a-0-1"),
        ("a/1", "a-1-1"),
        ("b/0", "b-0-0"),
    ]
    assert [(turn.get("parent_call_id"), turn["parent_resolution"]) for turn in turns if turn is not turns[1]] == [
        (None, "root")
    ] * 3
    assert turns[1] == {
        "schema_version": 1,
        "rollout_id": "a/0",
        "model_call_id": "a-0-1",
        "parent_call_id": "a-0-0",
        "parent_resolution": "resolved",
        "model": "tiny",
        "prompt_token_ids": [1, 2, 3, 4, 5, 6],
        "generation_token_ids": [7],
        "generation_log_probs": [-2.0],
        "output_items": [],
        "advantages": [0.25],
        "policy_version": 4,
        "reward": 1.0,
        "loss_weight": 0.5,
        "session_id": "a",
        "group_id": "g",
    }


def test_openrlhf() -> None:
    first = {name: plain(value) for name, value in to_openrlhf(ROWS)[0].items() if name != "info"}
    assert first == {
        "sequences": [[1, 2, 3, 4, 5, 6, 7]],
        "attention_mask": [[1] * 7],
        "action_mask": [[0, 0, 1, 1, 0, 1]],
        "rollout_log_probs": [[0, 0, -0.5, -1, 0, -2]],
        "advantages": [[0, 0, 0.5, 0.5, 0, 0.25]],
        "returns": [[0, 0, 0.5, 0.5, 0, 0.25]],
        "rewards": [1],
        "response_length": [4],
        "total_length": [7],
        "index": [0],
        "prompts": ["g"],
        "labels": [""],
    }
    agent = to_openrlhf_agent(ROWS)[0]
    assert agent["action_ranges"] == [[3, 5], [6, 7]]
    assert agent["rollout_log_probs"] == [0, 0, 0, -0.5, -1, 0, -2]
    assert agent["observation_tokens"] == [1, 2, 3, 4, 5, 6, 7]


def test_tinker() -> None:
    datum = next(to_tinker(ROWS))["datum"]
    assert datum["model_input"] == {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3, 4, 5, 6]}]}
    assert datum["loss_fn_inputs"] == {
        "target_tokens": {"data": [2, 3, 4, 5, 6, 7], "dtype": "int64", "shape": [6]},
        "logprobs": {"data": [0, 0, -0.5, -1, 0, -2], "dtype": "float32", "shape": [6]},
        "advantages": {"data": [0, 0, 0.5, 0.5, 0, 0.25], "dtype": "float32", "shape": [6]},
        "mask": {"data": [0, 0, 1, 1, 0, 1], "dtype": "float32", "shape": [6]},
    }


def test_areal() -> None:
    first = to_areal(ROWS)[0]
    assert {name: (plain(value), str(value.dtype)) for name, value in first.items()} == {
        "input_ids": ([[1, 2, 3, 4, 5, 6, 7]], "int32"),
        "loss_mask": ([[0, 0, 0, 1, 1, 0, 1]], "int32"),
        "logprobs": ([[0, 0, 0, -0.5, -1, 0, -2]], "float32"),
        "versions": ([[-1, -1, -1, 3, 3, -1, 4]], "int32"),
        "attention_mask": ([[True] * 7], "bool"),
        "rewards": ([1], "float32"),
        "advantages": ([[0, 0, 0, 0.5, 0.5, 0, 0.25]], "float32"),
        "loss_weight": ([0.5], "float32"),
        "group_index": ([0], "int64"),
        "session_index": ([0], "int64"),
    }
