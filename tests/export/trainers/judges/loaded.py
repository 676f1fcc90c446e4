"""Every other trainer's own code reads a file of ours.

    python -m tests.export.trainers.judges.loaded verl|verl-rows|openrlhf|skyrl|tinker|areal|nemo-gym|datasets FILE

Prints a JSON list, a row each: `tokens`, `mask`, `logprobs`, `advantages` as the trainer holds them, padding cut off, and what
else the trainer made of the row.
"""

import json
import sys
import typing
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import typing_extensions

Seen = dict[str, Any]


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def of_response(prompt: Any, there: Any, response: Any, columns: dict[str, Any]) -> Seen:
    """A row in a prompt and a response, of tensors without padding; zeros stand before the response."""
    zeros = [0] * len(prompt)
    return {"tokens": [*prompt.tolist(), *response.tolist()]} | {
        name: zeros + values[: int(there)].tolist() for name, values in columns.items()
    }


def verl(file: Path) -> list[Seen]:
    """`DataProto.from_dict`, to the tensordict of verl's new trainer and back, and its masked mean of the advantages."""
    from verl import DataProto
    from verl.trainer.ppo.core_algos import agg_loss, compute_grpo_outcome_advantage

    data = DataProto.from_dict(**torch.load(file, weights_only=True))
    data = DataProto.from_tensordict(data.to_tensordict())
    data.check_consistency()
    batch, told = data.batch, data.non_tensor_batch
    mean = agg_loss(loss_mat=batch["advantages"], loss_mask=batch["response_mask"], loss_agg_mode="token-mean")
    grouped, _ = compute_grpo_outcome_advantage(batch["rm_scores"], batch["response_mask"], told["uid"])
    width = batch["prompts"].shape[1]
    seen = []
    for place in range(len(data)):
        there = batch["attention_mask"][place].bool()
        prompt, length = batch["prompts"][place][there[:width]], there[width:].sum()
        columns = {
            "mask": batch["response_mask"][place],
            "logprobs": batch["rollout_log_probs"][place],
            "advantages": batch["advantages"][place],
        }
        row = of_response(prompt, length, batch["responses"][place][: int(length)], columns)
        assert row["tokens"] == batch["input_ids"][place][there].tolist()
        assert batch["position_ids"][place][there].tolist() == list(range(int(there.sum())))
        seen.append(row | {"uid": told["uid"][place], "mean": float(mean), "grouped": float(grouped[place].sum())})
    return seen


def verl_rows(file: Path) -> list[Seen]:
    """`list_of_dict_to_tensordict`, as verl's TransferQueue takes rows."""
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    table = list_of_dict_to_tensordict(torch.load(file, weights_only=True))
    seen = []
    for place in range(len(table)):
        row = {
            name: table[name][place]
            for name in ("prompts", "responses", "loss_mask", "rollout_log_probs", "advantages")
        }
        columns = {"mask": row["loss_mask"], "logprobs": row["rollout_log_probs"], "advantages": row["advantages"]}
        made = of_response(row["prompts"], len(row["responses"]), row["responses"], columns)
        assert made["tokens"] == table["input_ids"][place].tolist()
        seen.append(made | {"uid": table["uid"][place]})
    return seen


def openrlhf(file: Path) -> list[Seen]:
    """`Experience`s, on their way through its replay buffer: joined, split into items, made a batch of."""
    from openrlhf.trainer.ppo_utils.experience import (
        Experience,
        make_experience_batch,
        remove_padding_in_sequences,
        split_experience_batch,
    )

    rows = [Experience(**row) for row in torch.load(file, weights_only=True)]
    joined = Experience.concat_experiences(rows, pad_token_id=99)
    batch = make_experience_batch(remove_padding_in_sequences(split_experience_batch(joined)))
    seen = []
    for place in range(len(rows)):
        length = int(batch.attention_mask[place].sum())
        assert length == int(batch.total_length[place])
        columns = {"mask": batch.action_mask, "logprobs": batch.rollout_log_probs, "advantages": batch.advantages}
        made = {name: [0, *values[place][: length - 1].tolist()] for name, values in columns.items()}
        tokens = batch.sequences[place][:length].tolist()
        seen.append(made | {"tokens": tokens, "reward": float(batch.rewards[place])})
    return seen


def skyrl(file: Path) -> list[Seen]:
    """SkyRL's own checks of a step-wise output, its batch, and its merging of steps, which must change nothing: branches are
    no prefixes of each other."""
    # SkyRL is for Python 3.12, whose own TypedDict pydantic takes; on 3.11 it takes this one only.
    typing.TypedDict = typing_extensions.TypedDict
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
    from skyrl.train.generators.base import GeneratorOutput, TrajectoryID
    from skyrl.train.generators.utils import merge_stepwise_output
    from skyrl.train.utils.trainer_utils import validate_generator_output

    from polarproxy.export.trainers.skyrl import ABSENT, FIELDS, generator_output

    known = GeneratorOutput.__annotations__.keys()
    assert {field.name for field in FIELDS} - {"advantages"} <= known, known
    assert set(ABSENT) <= known
    output = generator_output(lines(file))
    output["trajectory_ids"] = [TrajectoryID(**one) for one in output["trajectory_ids"]]
    validate_generator_output(len(output["response_ids"]), output, step_wise=True)
    merged = merge_stepwise_output(output)
    assert merged["response_ids"] == output["response_ids"]
    sequences, attention, there, rewards, mask, logprobs, *_ = convert_prompts_responses_to_batch_tensors(
        99,
        *(output[name] for name in ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs")),
    )
    seen = []
    for place, prompt in enumerate(output["prompt_token_ids"]):
        inside, zeros = there[place].bool(), [0] * len(prompt)
        seen.append(
            {
                "tokens": sequences[place][attention[place].bool()].tolist(),
                "mask": zeros + mask[place][inside].tolist(),
                "logprobs": zeros + logprobs[place][inside].tolist(),
                "advantages": zeros + output["advantages"][place],
                "reward": float(rewards[place].sum()),
                "trajectory": output["trajectory_ids"][place].to_string(),
                "last": output["is_last_step"][place],
            }
        )
    return seen


def tinker(file: Path) -> list[Seen]:
    """`Datum`s, as the client's own types and as those that it sends."""
    from tinker import Datum, ModelInput, TensorData
    from tinker.types._pydantic_types.datum import Datum as Sent

    seen = []
    for line in lines(file):
        told = line["datum"]
        Sent.model_validate(told)
        tensors = {name: TensorData(**tensor) for name, tensor in told["loss_fn_inputs"].items()}
        datum = Datum(model_input=ModelInput.model_validate(told["model_input"]), loss_fn_inputs=tensors)
        held = {name: [0, *tensor.to_numpy().tolist()] for name, tensor in datum.loss_fn_inputs.items()}
        tokens = datum.model_input.to_ints()
        assert held["target_tokens"][1:-1] == tokens[1:]
        seen.append({"tokens": [tokens[0], *held.pop("target_tokens")[1:]]} | held)
    return seen


def areal(file: Path) -> list[Seen]:
    """`concat_padded_tensors`, of which every batch of AReaL is made."""
    from areal.utils.data import concat_padded_tensors

    batch = concat_padded_tensors(torch.load(file, weights_only=True))
    names = {
        "tokens": "input_ids",
        "mask": "loss_mask",
        "logprobs": "logprobs",
        "advantages": "advantages",
        "versions": "versions",
    }
    seen = []
    for place, there in enumerate(batch["attention_mask"].bool()):
        row = {name: batch[theirs][place][there].tolist() for name, theirs in names.items()}
        seen.append(row | {"reward": float(batch["rewards"][place])})
    return seen


def datasets(file: Path) -> list[Seen]:
    """`load_dataset`, rows of the canonical columns."""
    from datasets import load_dataset

    kind = "parquet" if file.suffix == ".parquet" else "json"
    table = load_dataset(kind, data_files=str(file), split="train", cache_dir=str(file.parent / "cache"))
    names = {"tokens": "token_ids", "mask": "loss_mask", "logprobs": "rollout_logprobs", "advantages": "advantages"}
    seen = []
    for row in table:
        made = {name: row[ours] for name, ours in names.items()}
        made["logprobs"] = [
            value if trained else 0.0 for value, trained in zip(made["logprobs"], made["mask"], strict=True)
        ]
        seen.append(made | {"group": row["group_id"], "session": row["session_id"], "reward": row["reward"]})
    return seen


def nemo_gym(file: Path) -> list[Seen]:
    """`TokenEntry`s, the chain that NeMo Gym builds of each row's, and the response that NeMo RL reads."""
    from nemo_gym.token_id_capture.builder import assert_prefix_contiguity, prefix_merging, project_main_chain_response
    from nemo_gym.token_id_capture.records import TokenEntry

    seen = []
    entries = map(TokenEntry.model_validate, lines(file))
    for rollout, turns in groupby(entries, lambda entry: entry.rollout_id):
        held = list(turns)
        built = prefix_merging(held)
        assert len(built.chains) == 1, built
        response = project_main_chain_response(rollout, built)
        assert_prefix_contiguity(response)
        tokens: list[int] = []
        mask: list[int] = []
        logprobs: list[float] = []
        for item in response["output"]:
            new = item["prompt_token_ids"][len(tokens) :]
            tokens += [*new, *item["generation_token_ids"]]
            mask += [0] * len(new) + [1] * len(item["generation_token_ids"])
            logprobs += [0.0] * len(new) + item["generation_log_probs"]
        seen.append({"tokens": tokens, "mask": mask, "logprobs": logprobs, "rollout": rollout})
    return seen


JUDGES = {
    "verl": verl, "verl-rows": verl_rows, "openrlhf": openrlhf, "skyrl": skyrl, "tinker": tinker, "areal": areal,
    "nemo-gym": nemo_gym, "datasets": datasets,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(JUDGES[sys.argv[1]](Path(sys.argv[2]))))
