"""The trainers' formats as files: each what its trainer loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polarproxy.export.canonical import REPORT_KEY
from polarproxy.export.format import Format, rows_of
from polarproxy.export.options import NO_CREDIT
from polarproxy.export.records import chunks, write_lines
from polarproxy.export.report import encode_report
from polarproxy.export.torch_files import save
from polarproxy.export.trainers.areal import to_areal
from polarproxy.export.trainers.nemo_gym import to_nemo_gym
from polarproxy.export.trainers.nemo_rl import to_nemo_rl, to_nemo_rl_train
from polarproxy.export.trainers.openrlhf import to_openrlhf, to_openrlhf_agent
from polarproxy.export.trainers.prime_rl import to_prime_rl
from polarproxy.export.trainers.skyrl import to_skyrl
from polarproxy.export.trainers.slime import to_slime
from polarproxy.export.trainers.tinker import to_tinker
from polarproxy.export.trainers.trl import to_trl
from polarproxy.export.trainers.verl import to_verl, to_verl_rows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from polarproxy.export.format import Context, Taken

TRL_SCHEMA = pa.schema(
    [
        ("prompt", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("completion_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("env_mask", pa.list_(pa.uint8())),
        ("reward", pa.float64()),
        ("advantages", pa.list_(pa.float32())),
        ("loss_weight", pa.float64()),
        ("session_id", pa.string()),
        ("branch_index", pa.int32()),
    ]
)


def write_trl(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """Parquet, for `datasets.load_dataset` and `Replay`; the report stands in its metadata."""
    with pq.ParquetWriter(path, TRL_SCHEMA, compression="zstd", compression_level=1, use_dictionary=False) as writer:
        for chunk in chunks(rows_of(sessions)):
            writer.write_table(pa.Table.from_pylist(list(to_trl(chunk)), TRL_SCHEMA))
            chunk.clear()
        writer.add_key_value_metadata({REPORT_KEY: encode_report(context.account).decode()})


def write_prime_rl(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """`rollouts.bin`: MessagePack of `TrainingBatch(examples, step=0)`, written a row at a time."""
    encoder = msgspec.msgpack.Encoder()
    with path.open("wb") as file:
        # An array of two; the first is an array whose length, of four bytes, is known at the end only.
        file.write(b"\x92\xdd\0\0\0\0")
        count = 0
        for sample in to_prime_rl(rows_of(sessions)):
            file.write(encoder.encode(sample))
            count += 1
        file.write(encoder.encode(0))
        file.seek(2)
        file.write(count.to_bytes(4, "big"))


def write_skyrl(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """A row a line, for `generator_output`."""
    write_lines(path, to_skyrl(rows_of(sessions)))


def write_tinker(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """A datum a line."""
    write_lines(path, to_tinker(rows_of(sessions)))


def write_nemo_gym(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """A token entry a line."""
    write_lines(path, to_nemo_gym(rows_of(sessions)))


def write_slime(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """What `--load-debug-rollout-data` takes."""
    _save(path, {"rollout_id": 0, "samples": to_slime(rows_of(sessions))})


def write_areal(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """A list of dicts of tensors."""
    _save(path, to_areal(rows_of(sessions)))


def write_openrlhf(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """A list of the arguments of `Experience`, or of agents' results."""
    rows = rows_of(sessions)
    _save(path, to_openrlhf_agent(rows) if context.form == "agent" else to_openrlhf(rows))


def write_nemo_rl(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """A list of `DatumSpec`s, or the padded batch that the policy trains on."""
    rows = rows_of(sessions)
    _save(path, to_nemo_rl_train(rows, credited=_credited(context)) if context.form == "train" else to_nemo_rl(rows))


def write_verl(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """The arguments of `DataProto.from_dict`, or a list of the rows of the tensordict form."""
    rows = rows_of(sessions)
    if context.form == "tensordict":
        return _save(path, to_verl_rows(rows))
    batch = to_verl(rows, credited=_credited(context))
    return _save(path, {"tensors": batch.tensors, "non_tensors": batch.non_tensors, "meta_info": batch.meta_info})


def _credited(context: Context) -> bool:
    """Whether the export's rows have credit, which a file without rows cannot tell."""
    return context.account.options.advantage != NO_CREDIT


def _save(path: Path, content: Any) -> None:
    """As torch saves it, arrays as tensors; it loads with `weights_only=True`."""
    save(path, _tensors(content))


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        import torch

        return torch.from_numpy(np.array(value))
    if isinstance(value, dict):
        return {name: _tensors(one) for name, one in value.items()}
    if isinstance(value, list):
        # Lists of numbers, which may be long, hold no arrays.
        return value if value and isinstance(value[0], int | float) else [_tensors(one) for one in value]
    return value


_TORCH: dict[str, Any] = {"modules": ("torch",), "extra": "torch"}

TRAINERS: tuple[Format, ...] = (
    Format(
        "verl",
        ".verl.pt",
        "verl: DataProto's arguments, or rows for its tensordict",
        write_verl,
        forms=("dataproto", "tensordict"),
        **_TORCH,
    ),
    Format("trl", ".trl.parquet", "TRL: what rollout_func returns, a row each, for load_dataset", write_trl),
    Format("slime", ".slime.pt", "slime: Samples for --load-debug-rollout-data", write_slime, **_TORCH),
    Format("prime-rl", ".prime-rl.bin", "prime-rl: a TrainingBatch in MessagePack (rollouts.bin)", write_prime_rl),
    Format(
        "nemo-rl",
        ".nemo-rl.pt",
        "NeMo RL: DatumSpecs, or the batch that is trained",
        write_nemo_rl,
        forms=("messages", "train"),
        **_TORCH,
    ),
    Format("nemo-gym", ".nemo-gym.jsonl", "NeMo Gym: a TokenEntry a trained turn", write_nemo_gym),
    Format("skyrl", ".skyrl.jsonl", "SkyRL: rows of a step-wise GeneratorOutput", write_skyrl),
    Format(
        "openrlhf",
        ".openrlhf.pt",
        "OpenRLHF: Experiences, or agents' results",
        write_openrlhf,
        forms=("experience", "agent"),
        **_TORCH,
    ),
    Format("tinker", ".tinker.jsonl", "Tinker: a Datum a line", write_tinker),
    Format("areal", ".areal.pt", "AReaL: a dict of tensors a row", write_areal, **_TORCH),
)
