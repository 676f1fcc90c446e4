"""TRL trains on our conversations and pairs, as `datasets` loads them.

    python -m tests.export.trainers.judges.said FILE.sft.jsonl FILE.dpo.jsonl FOLDER

Prints a JSON object: the `messages` of each conversation as loaded; the losses of one step of `SFTTrainer` and `DPOTrainer`;
what the model is shown of the first pair (`prompt`, `chosen`, `rejected`) and of the first conversation (`trained`: the
text on which the loss is).
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

LETTERS = [chr(code) for code in range(32, 127)] + ["\n", "é"]
WORDS = {letter: place for place, letter in enumerate([*LETTERS, "<pad>", "<eos>", "<unk>"])}
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content or '' }}"
    "{% for t in m.tool_calls or [] %}{{ t.function.name }}({{ t.function.arguments }}){% endfor %}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def tokenizer() -> Any:
    """A token a letter."""
    made = Tokenizer(WordLevel(WORDS, unk_token="<unk>"))
    made.pre_tokenizer = Split(Regex("[\\s\\S]"), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", chat_template=TEMPLATE
    )


def model(folder: Path) -> str:
    """A folder, because a trainer of preferences loads the model twice."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=1024, initializer_range=0.02, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    return str(folder / "model")


def text(ids: Any) -> str:
    """The letters of some tokens."""
    letters = {place: word for word, place in WORDS.items()}
    return "".join(letters[int(place)] for place in ids)


def settings(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "out"),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
    }


def first_loss(trainer: Any) -> float:
    trainer.train()
    return float(next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry))


def loaded(file: Path, folder: Path) -> Any:
    return load_dataset("json", data_files=str(file), split="train", cache_dir=str(folder / "cache"))


def main(sft: Path, dpo: Path, folder: Path) -> None:
    conversations, pairs = loaded(sft, folder), loaded(dpo, folder)
    tuned = SFTTrainer(
        model=model(folder),
        args=SFTConfig(assistant_only_loss=True, packing=False, max_length=1024, **settings(folder)),
        train_dataset=conversations,
        processing_class=tokenizer(),
    )
    row = tuned.train_dataset[0]
    preferred = DPOTrainer(
        model=model(folder),
        args=DPOConfig(max_length=1024, **settings(folder)),
        train_dataset=pairs,
        processing_class=tokenizer(),
    )
    shown = preferred.train_dataset[0]
    told = {
        "messages": conversations["messages"],
        "trained": text(label for label in row["labels"] if label != -100),
        "shown": {name.removesuffix("_ids"): text(value) for name, value in shown.items() if name.endswith("_ids")},
        "sft": first_loss(tuned),
        "dpo": first_loss(preferred),
        "even": math.log(2),
    }
    print(json.dumps(told, default=list))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
