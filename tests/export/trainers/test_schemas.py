"""Trainers that cannot be installed here (slime, prime-rl, NeMo RL): their schemas, field by field from their sources."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polarproxy.export.files import format_named
from polarproxy.export.trainers.nemo_rl import to_nemo_rl
from polarproxy.export.trainers.slime import to_slime
from tests.export.exported import context, taken
from tests.export.trainers.example import ROWS

SLIME: dict[str, type | tuple[type, ...]] = {
    "group_index": int,
    "index": int,
    "rollout_id": int,
    "prompt": (str, list),
    "tokens": list,
    "response": str,
    "response_length": int,
    "label": str,
    "reward": (float, dict),
    "loss_mask": list,
    "weight_versions": list,
    "rollout_log_probs": list,
    "rollout_routed_experts": list,
    "remove_sample": bool,
    "teacher_log_probs": list,
    "status": str,
    "metadata": dict,
    "train_metadata": dict,
    "session_id": str,
    "non_generation_time": float,
    "spec_info": dict,
    "prefix_cache_info": dict,
}
"""`slime/utils/types.py`, `Sample`; a field may be missing, but for `status`, which `from_dict` asks for."""
STATUS = {"pending", "completed", "truncated", "aborted", "failed"}


def of_types(values: list[Any], kind: type) -> bool:
    return all(type(value) is kind for value in values)


def test_slime_sample() -> None:
    for row in to_slime(ROWS):
        assert row.keys() <= SLIME.keys()
        for name, value in row.items():
            assert isinstance(value, SLIME[name]), name
        assert row["status"] in STATUS
        length = row["response_length"]
        assert 0 < length < len(row["tokens"])
        assert len(row["loss_mask"]) == len(row["rollout_log_probs"]) == length
        assert of_types(row["tokens"] + row["loss_mask"], int)
        assert of_types(row["rollout_log_probs"], float)
        assert of_types(row["weight_versions"], str)


def test_slime_reads_the_file_as_debug_rollout_data(tmp_path: Path) -> None:
    """`torch.load(path, weights_only=False)["samples"]`."""
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'polarproxy[torch]'")
    path = tmp_path / "data_0.slime.pt"
    format_named("slime").write(path, taken(ROWS), context())
    held = torch.load(path, weights_only=True)
    assert held == {"rollout_id": 0, "samples": to_slime(ROWS)}


class Theirs(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """`src/prime_rl/transport/types.py`, `TrainingSample`, in its order."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    ref_logprobs: list[float] | None = None
    mm_kwargs: dict[str, Any] | None = None
    routed_experts: list[Any] | None = None
    mm_token_type_ids: list[int] | None = None
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None
    advantages: list[float] | None = None


class TheirBatch(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """The same file, `TrainingBatch`."""

    examples: list[Theirs]
    step: int
    run_idx: int | None = None


def test_prime_rl_batch(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.prime-rl.bin"
    format_named("prime-rl").write(path, taken(ROWS), context())
    batch = msgspec.msgpack.decode(path.read_bytes(), type=TheirBatch)
    assert (batch.step, batch.run_idx, len(batch.examples)) == (0, None, 3)
    for row, one in zip(ROWS, batch.examples, strict=True):
        length = len(row.token_ids)
        assert one.token_ids == row.token_ids.tolist()
        assert one.mask == (row.loss_mask == 1).tolist()
        assert one.logprobs == np.where(row.loss_mask == 1, row.rollout_logprobs, 0).tolist()
        assert one.temperatures == [1.0] * length
        assert row.advantages is not None
        assert one.advantages == row.advantages.tolist()
        assert one.rl_weights in ((row.loss_mask * row.loss_weight).tolist(), None)
        others = (one.ref_logprobs, one.mm_kwargs, one.routed_experts, one.mm_token_type_ids, one.ce_weights)
        assert others == (None,) * 5


def test_prime_rl_batch_of_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.prime-rl.bin"
    format_named("prime-rl").write(path, taken([]), context())
    assert msgspec.msgpack.decode(path.read_bytes()) == [[], 0]


def test_nemo_rl_trains_what_its_own_rules_make_of_the_log() -> None:
    """GRPO trains a message when it is an assistant's and has log-probabilities, supervised training by `token_loss_mask`;
    joined messages are the row."""
    required = {"message_log", "length", "extra_env_info", "loss_multiplier", "idx"}
    for row, datum in zip(ROWS, to_nemo_rl(ROWS), strict=True):
        assert required <= datum.keys() <= required | {"task_name", "stop_strings"}
        log = datum["message_log"]
        tokens = np.concatenate([message["token_ids"] for message in log])
        assert tokens.tolist() == row.token_ids.tolist()
        assert len(tokens) == datum["length"]
        assert np.concatenate([message["token_loss_mask"] for message in log]).tolist() == row.loss_mask.tolist()
        trainable = [
            np.full(len(message["token_ids"]), message["role"] == "assistant" and "generation_logprobs" in message)
            for message in log
        ]
        assert np.concatenate(trainable).astype(int).tolist() == row.loss_mask.tolist()
        for message in log:
            lengths = {len(value) for value in message.values() if isinstance(value, np.ndarray)}
            assert len(lengths) == 1
            assert message["role"] in ("user", "assistant")
            assert message["content"] == ""


def test_nemo_rl_finds_the_groups_by_the_first_message() -> None:
    """Groups are formed by identical prompts; sibling sessions of one prompt must have the same first message."""
    first, second, _ = to_nemo_rl(ROWS)
    prompts = [datum["message_log"][0]["token_ids"].tolist() for datum in (first, second)]
    assert prompts == [[1, 2, 3], [1, 2, 3]]
