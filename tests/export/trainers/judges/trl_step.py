"""One optimiser step of TRL's GRPO trainer on an export, in several scenarios; each loss beside the one computed by hand.

    python -m tests.export.trainers.judges.trl_step FILE.trl.parquet DOCS.md FOLDER

Prints a JSON object of scenarios: `trainer` and `hand` are losses, `moved` says whether the step changed the model.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, load_dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from polarproxy.export.trainers.trl import Replay

VOCABULARY = 64
CLIP = 1.5
Rows = list[dict[str, Any]]


def tiny_model() -> Any:
    """The same weights every time."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.02, tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def tokenizer() -> Any:
    """A word for every id; nothing of ours passes through it, TRL wants to print."""
    words = {f"w{place}": place for place in range(VOCABULARY - 2)} | {"<pad>": VOCABULARY - 2, "<eos>": VOCABULARY - 1}
    made = Tokenizer(WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


def recorded(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward function: what was recorded."""
    return list(reward)


def step(
    rows: Rows, folder: Path, kind: type = GRPOTrainer, *, correct: bool = False, **settings: Any
) -> tuple[float, bool]:
    """The loss of one step, and whether it moved the model."""
    replay, losses = Replay(rows), list[float]()
    count = replay.num_generations * len(replay.prompts)
    arguments = GRPOConfig(
        output_dir=str(folder), max_steps=1, per_device_train_batch_size=count, num_generations=replay.num_generations,
        learning_rate=0.1, report_to=[], use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True,
        vllm_importance_sampling_mode="token_truncate", vllm_importance_sampling_clip_max=CLIP, max_completion_length=64,
        lr_scheduler_type="constant", **settings,
    )  # fmt: skip
    trainer = kind(
        model=tiny_model(),
        reward_funcs=recorded,
        args=arguments,
        train_dataset=Dataset.from_list(replay.prompts),
        processing_class=tokenizer(),
        rollout_func=replay,
    )
    if correct:
        # What `use_vllm=True` sets, without an engine to send weights to: rollouts are recorded already.
        trainer.use_vllm, trainer._last_loaded_step = True, 0
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    inner = trainer._compute_loss

    def computed(*given: Any) -> Any:
        loss = inner(*given)
        losses.append(float(loss.detach()))
        return loss

    trainer._compute_loss = computed
    trainer.train()
    moved = any(not torch.equal(one, other) for one, other in zip(before, trainer.model.parameters(), strict=True))
    return losses[0], moved


def logprobs_of(row: dict[str, Any]) -> torch.Tensor:
    """The model's log-probability of each completion token, without padding."""
    ids = torch.tensor([[*row["prompt_ids"], *row["completion_ids"]]])
    logits = tiny_model()(ids).logits[0, :-1]
    every = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0]
    return every[len(row["prompt_ids"]) - 1 :].detach()


def by_group(rows: Rows) -> list[list[float]]:
    """TRL's own advantages, which count rows: r − mean of the group's, over its deviation + 1e-4; 0 without a reward, and in a
    group of one."""
    made = []
    for row in rows:
        group = torch.tensor(
            [one["reward"] for one in rows if one["prompt"] == row["prompt"] and one["reward"] is not None]
        )
        alone = row["reward"] is None or len(group) == 1
        value = 0.0 if alone else (row["reward"] - group.mean()) / (group.std() + 1e-4)
        made.append([float(value)] * len(row["completion_ids"]))
    return made


def ours(rows: Rows) -> list[list[float]]:
    """The exported advantages, by the row's weight."""
    return [[value * row["loss_weight"] for value in row["advantages"]] for row in rows]


def by_hand(rows: Rows, advantages: list[list[float]], *, correct: bool = False) -> float:
    """−Σ mask · A · ratio / Σ mask (loss type dapo). The policy has not moved, so the ratio is that to the sampler, cut at
    CLIP, or 1 without the correction."""
    total, count = 0.0, 0
    for row, advantage in zip(rows, advantages, strict=True):
        mask = torch.tensor(row["env_mask"])
        ratio = torch.exp((logprobs_of(row) - torch.tensor(row["logprobs"])) * mask).clamp(max=CLIP) if correct else 1.0
        total -= float((torch.tensor(advantage) * ratio * mask).sum())
        count += int(mask.sum())
    return total / count


def altered(rows: Rows, name: str, change: Callable[[Any], Any]) -> Rows:
    """The rows with the first trained token's value of one column changed, in the first row."""
    place = rows[0]["env_mask"].index(1)
    values = list(rows[0][name])
    values[place] = change(values[place])
    return [{**rows[0], name: values}, *rows[1:]]


def recipe(page: Path) -> type:
    """The class that the documentation gives to train on exported advantages."""
    code = re.search(r"<!-- trl-advantages -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
    if code is None:
        raise SystemExit(f"{page} has no recipe")
    names: dict[str, Any] = {}
    exec(code[1], names)
    made: type = names["RecordedAdvantages"]
    return made


def main(file: Path, page: Path, folder: Path) -> None:
    """Every scenario."""
    rows = load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(folder / "cache")).to_list()
    masked = altered(rows, "env_mask", lambda _: 0)
    likelier = altered(rows, "logprobs", lambda value: value + 1.0)
    scenarios = {
        "as exported": (rows, GRPOTrainer, by_group, False),
        "a token masked": (masked, GRPOTrainer, by_group, False),
        "corrected": (rows, GRPOTrainer, by_group, True),
        "corrected, a token likelier": (likelier, GRPOTrainer, by_group, True),
        "exported advantages": (rows, recipe(page), ours, True),
    }
    told = {}
    for name, (given, kind, advantages, correct) in scenarios.items():
        loss, moved = step(given, folder / "out", kind, correct=correct)
        told[name] = {"trainer": loss, "hand": by_hand(given, advantages(given), correct=correct), "moved": moved}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
