"""Train the tiny tool-calling policy of `polarproxy demo` and write it as GGUF.

    python -m tests.models.train_demo_model --out polarproxy/rollout/demo/calculator.gguf

Needs torch, transformers, tokenizers and gguf, none of which the project itself depends on. The dialogues,
with mistakes at known rates, are those of `tests.models.demo_dialogues`; the same versions on the same kind of
machine give the same weights. The policy is learnt without the system turn, which is long and the same in every
dialogue, and then gets used to it. About six minutes; one thread, so that sums do not depend on the number of cores.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

from tests.models.demo_dialogues import SYSTEM, TOOL, Problem, Turn, problem, solution
from tests.models.demo_gguf import Vocabulary, write

TEMPLATE = Path(__file__).with_name("demo_chat_template.jinja")
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<tool_call>", "</tool_call>")
# llama.cpp's "qwen2" pre-tokenizer: the same split must be used here, or the engine would tokenize differently.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
IGNORED = -100


@dataclass(frozen=True)
class Budget:
    """How long to train: steps without and then with the system turn, which is long and the same everywhere."""

    short_steps: int
    full_steps: int
    dialogues: int
    """Dialogues per step."""
    peak_rate: float


class Renderer:
    """The chat template, rendered as the engine renders it."""

    def __init__(self) -> None:
        self.source = TEMPLATE.read_text()

    def __call__(self, messages: list[dict[str, Any]], *, generate: bool) -> str:
        rendered, _ = render_jinja_template(
            [messages], tools=[TOOL], chat_template=self.source, add_generation_prompt=generate
        )
        return str(rendered[0])


def messages_of(task: Problem, turns: list[Turn]) -> list[dict[str, Any]]:
    """The dialogue in OpenAI's words, tool results included."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.text}]
    for turn in turns:
        if turn.text is not None:
            messages.append({"role": "assistant", "content": turn.text})
            continue
        function = {"name": "calculator", "arguments": {"expression": turn.expression}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
        messages.append({"role": "tool", "content": turn.result})
    return messages


def segments(render: Renderer, messages: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """The rendered dialogue as (text, sampled by the assistant?) in order."""
    pieces: list[tuple[str, bool]] = []
    done = ""
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = render(messages[:index], generate=True)
        whole = render(messages[: index + 1], generate=False)
        assert prompt.startswith(done), "the template must only append"
        assert whole.startswith(prompt), "the template must only append"
        answer = whole[len(prompt) :].removesuffix("\n")
        pieces += [(prompt[len(done) :], False), (answer, True)]
        done = prompt + answer
    return pieces


def train_tokenizer(render: Renderer, rng: Random, size: int) -> Any:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, False, False)])
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [TEMPLATE.read_text()]
    for _ in range(2_000):
        task = problem(rng)
        corpus.append(render(messages_of(task, solution(rng, task)), generate=False))
    special = [AddedToken(text, special=text in CONTROL, normalized=False) for text in CONTROL + MARKUP]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    inner = json.loads(tokenizer.to_str())
    ids: dict[str, int] = tokenizer.get_vocab()
    return Vocabulary(
        tokens=sorted(ids, key=lambda text: ids[text]),
        merges=[pair if isinstance(pair, str) else " ".join(pair) for pair in inner["model"]["merges"]],
        control=frozenset(ids[text] for text in CONTROL),
        plain_markup=frozenset(ids[text] for text in MARKUP),
        end=ids["<|im_end|>"],
    )


def encode(tokenizer: Any, pieces: list[tuple[str, bool]], *, skip_system: bool) -> tuple[list[int], list[int]]:
    """Token ids and the targets at the same positions; targets the assistant did not sample are IGNORED."""
    ids: list[int] = []
    targets: list[int] = []
    for text, sampled in pieces:
        if skip_system and not ids:
            text = text[text.index("<|im_end|>") + len("<|im_end|>\n") :]
        part = tokenizer.encode(text, add_special_tokens=False).ids
        ids += part
        targets += part if sampled else [IGNORED] * len(part)
    return ids, targets


def batch(tokenizer: Any, render: Renderer, rng: Random, size: int, *, skip_system: bool) -> tuple[Any, Any]:
    """Two int64 tensors [size, longest]: inputs and targets, padded on the right."""
    rows = []
    for _ in range(size):
        task = problem(rng)
        pieces = segments(render, messages_of(task, solution(rng, task)))
        rows.append(encode(tokenizer, pieces, skip_system=skip_system))
    longest = max(len(ids) for ids, _ in rows)
    inputs = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    targets = torch.tensor([t + [IGNORED] * (longest - len(t)) for _, t in rows])
    return inputs, targets


def new_model(vocabulary: Vocabulary) -> Any:
    config = Qwen3Config(
        vocab_size=len(vocabulary.tokens),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return Qwen3ForCausalLM(config).float()


def train(model: Any, tokenizer: Any, render: Renderer, rng: Random, budget: Budget) -> None:
    total = budget.short_steps + budget.full_steps
    optimiser = torch.optim.AdamW(model.parameters(), lr=budget.peak_rate, betas=(0.9, 0.98), weight_decay=0.01)
    started = time.monotonic()
    for step in range(total):
        warm, left = min(1.0, (step + 1) / 50), 0.5 * (1 + math.cos(math.pi * step / total))
        for group in optimiser.param_groups:
            group["lr"] = budget.peak_rate * warm * max(0.02, left)
        inputs, targets = batch(tokenizer, render, rng, budget.dialogues, skip_system=step < budget.short_steps)
        logits = model(input_ids=inputs).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 50 == 0 or step == total - 1:
            print(f"step {step:4d}/{total}  loss {loss.item():.3f}  {time.monotonic() - started:5.0f} s", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, required=True, help="the GGUF file to write")
    arguments.add_argument("--short-steps", type=int, default=700)
    arguments.add_argument("--full-steps", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=7)
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    rng, render = Random(chosen.seed), Renderer()
    tokenizer = train_tokenizer(render, rng, 1024)
    vocabulary = vocabulary_of(tokenizer)
    model = new_model(vocabulary)
    size = sum(weight.numel() for weight in model.parameters())
    print(f"{len(vocabulary.tokens)} tokens, {size:,} parameters")
    train(model, tokenizer, render, rng, Budget(chosen.short_steps, chosen.full_steps, dialogues=32, peak_rate=3e-3))
    write(chosen.out, model, vocabulary, render.source)
    print(f"{chosen.out}: {chosen.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
