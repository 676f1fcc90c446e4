"""The formats there are."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from polarproxy.errors import BadExport
from polarproxy.export.canonical import write_arrow, write_jsonl, write_parquet
from polarproxy.export.format import Format
from polarproxy.export.texts.atif import FORMS as ATIF_FORMS
from polarproxy.export.texts.atif import write_atif
from polarproxy.export.texts.dpo import FORMS as DPO_FORMS
from polarproxy.export.texts.dpo import write_dpo
from polarproxy.export.texts.nova import FORMS as NOVA_FORMS
from polarproxy.export.texts.nova import write_nova
from polarproxy.export.texts.sft import FORMS as SFT_FORMS
from polarproxy.export.texts.sft import write_sft
from polarproxy.export.torch_files import PACKED, PADDED, write_torch
from polarproxy.export.trainers.files import TRAINERS

if TYPE_CHECKING:
    from pathlib import Path

FORMATS: tuple[Format, ...] = (
    Format("parquet", ".parquet", "canonical rows as Parquet (zstd)", write_parquet),
    Format("jsonl", ".jsonl", "canonical rows, one JSON object a line", write_jsonl),
    Format("arrow", ".arrow", "canonical rows as an Arrow IPC file, which can be mapped", write_arrow),
    Format(
        "torch",
        ".pt",
        "canonical rows as one batch of tensors, padded or packed with cu_seqlens",
        write_torch,
        forms=(PADDED, PACKED),
        modules=("torch",),
        extra="torch",
    ),
    Format(
        "atif",
        ".atif.jsonl",
        "Harbor's ATIF v1.8, a trajectory a line, sub-agents embedded, tokens and logprobs of each step",
        write_atif,
        needs="conversations",
        forms=ATIF_FORMS,
    ),
    Format(
        "dpo",
        ".dpo.jsonl",
        "pairs of answers to one prompt, chosen and rejected: of a group by reward, of a session by what it went on from",
        write_dpo,
        needs="conversations",
        takes=("margin", "pairs", "dedup"),
        forms=DPO_FORMS,
    ),
    Format(
        "nova-rft",
        ".nova.jsonl",
        "Amazon Nova's fine-tuning by rewards: rollouts for a reward handler, the prompts of a dataset, or the rewards",
        write_nova,
        needs="conversations",
        takes=("best_of",),
        forms=NOVA_FORMS,
    ),
    Format(
        "sft",
        ".sft.jsonl",
        "conversations of OpenAI chat with tools and reasoning; weight 1 on what the model sampled",
        write_sft,
        needs="conversations",
        takes=("best_of", "dedup"),
        forms=SFT_FORMS,
    ),
    *TRAINERS,
)


def format_named(name: str) -> Format:
    """Raises `BadExport` when there is none of the name."""
    known = {one.name: one for one in FORMATS}
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise BadExport(f"there is no format {name!r}; {hint}there are {', '.join(known)}")
    return known[name]


def format_of(path: Path) -> Format:
    """The format that the longest suffix of a file's name says; raises `BadExport` when none does."""
    fitting = [one for one in FORMATS if path.name.endswith(one.suffix)]
    if not fitting:
        known = ", ".join(one.suffix for one in FORMATS)
        raise BadExport(f"{path.name} does not say its format; use --format or one of the suffixes {known}")
    return max(fitting, key=lambda one: len(one.suffix))
