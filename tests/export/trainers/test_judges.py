"""The trainers' own code reads our files, where `.ci/setup-trainers` installed it, and holds what we recorded."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polarproxy.batch.sample import Sample
from polarproxy.export.files import format_named
from polarproxy.export.texts.dpo import write_dpo
from polarproxy.export.texts.sft import write_sft
from tests.export.exported import context, taken
from tests.export.talk import answered
from tests.export.test_sft import said_context
from tests.export.test_sft import taken as said
from tests.export.trainers.example import ROWS
from tests.export.trainers.rows import Part, sample

FOLDER = "POLARPROXY_TEST_TRAINERS"
ROOT = Path(__file__).parents[3]

needs_trainers = pytest.mark.skipif(
    FOLDER not in os.environ, reason=f"needs the trainers: export $(.ci/setup-trainers) sets {FOLDER}"
)


def judge(name: str, *arguments: object) -> Any:
    """What a program of `judges/` prints last."""
    python = Path(os.environ[FOLDER]) / "bin" / "python"
    home = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    run = subprocess.run(
        [str(python), "-m", f"tests.export.trainers.judges.{name}", *map(str, arguments)],
        cwd=ROOT,
        env=home
        | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout.splitlines()[-1])


def written(folder: Path, name: str, form: str | None, samples: list[Sample]) -> Path:
    kind = format_named(name)
    path = folder / f"rows{kind.suffix}"
    kind.write(path, taken(samples), context(form))
    return path


JUDGED = [
    ("verl", "verl", "dataproto"),
    ("verl-rows", "verl", "tensordict"),
    ("openrlhf", "openrlhf", "experience"),
    ("skyrl", "skyrl", None),
    ("tinker", "tinker", None),
    ("areal", "areal", None),
    ("nemo-gym", "nemo-gym", None),
    ("datasets", "parquet", None),
    ("datasets", "jsonl", None),
]
TOLD: dict[str, list[dict[str, Any]]] = {
    # Advantages (0.5 + 0.5 + 0.25 + 0.5 − 1) over 5 trained tokens. verl's own count three rows, 1, 1 and 0, not two sessions:
    # 0.577 a row, over 3, 1 and 1 trained tokens.
    "verl": [{"uid": "g", "mean": 0.15, "grouped": 1.732}, {"grouped": 0.577}, {"grouped": -1.155}],
    "verl-rows": [{"uid": "g"}] * 3,
    "openrlhf": [{"reward": 1}, {"reward": 1}, {"reward": 0}],
    "skyrl": [
        {"trajectory": "g_0", "last": False, "reward": 0},
        {"trajectory": "g_0", "last": True, "reward": 1},
        {"trajectory": "g_1", "last": True, "reward": 0},
    ],
    "areal": [{"reward": 1, "versions": [-1, -1, -1, 3, 3, -1, 4]}, {"reward": 1}, {"reward": 0}],
    "nemo-gym": [{"rollout": "a/0"}, {"rollout": "a/1"}, {"rollout": "b/0"}],
    "tinker": [{}, {}, {}],
    "datasets": [{"group": "g", "session": "a", "reward": 1}, {"session": "a"}, {"session": "b", "reward": 0}],
}


@needs_trainers
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "form"), JUDGED, ids=[f"{name}-{kind}" for name, kind, _ in JUDGED])
def test_a_trainer_holds_what_was_recorded(name: str, kind: str, form: str | None, tmp_path: Path) -> None:
    if format_named(kind).modules:
        pytest.importorskip("torch", reason="needs torch: pip install 'polarproxy[torch]'")
    seen = judge("loaded", name, written(tmp_path, kind, form, ROWS))
    assert len(seen) == len(ROWS)
    for row, held, told in zip(ROWS, seen, TOLD[name], strict=True):
        assert held["tokens"] == row.token_ids.tolist()
        assert held["mask"] == row.loss_mask.tolist()
        assert held["logprobs"] == np.where(row.loss_mask == 1, row.rollout_logprobs, 0).tolist()
        if "advantages" in held:
            assert row.advantages is not None
            assert held["advantages"] == row.advantages.tolist()
        for field, value in told.items():
            assert held[field] == (pytest.approx(value, abs=1e-3) if isinstance(value, float) else value)


def turn(ids: list[int], logprob: float, advantage: float) -> Part:
    return ids, "trained", [logprob - 0.125 * place for place in range(len(ids))], advantage, 1


def steps() -> list[Sample]:
    """Three sessions of two groups, one of two rows; log-probabilities near those of a model that knows nothing (−log 64)."""
    prompt: Part = ([1, 2, 3], "context", [0, 0, 0], 0, 0)
    tool: Part = ([6, 7], "context", [0, 0], 0, 0)
    return [
        sample([prompt, turn([4, 5], -4, 0.5), tool, turn([8], -4.25, 0.25)], session_id="a", weight=0.5),
        sample([prompt, turn([9, 10, 11], -4.5, 0.5)], session_id="a", branch=1, weight=0.5),
        sample([prompt, turn([12], -3.5, -1.0)], session_id="b", reward=0.0),
        sample([prompt, turn([13, 14], -4, 0.75)], session_id="c", group_id="h", reward=0.25),
    ]


@needs_trainers
@pytest.mark.slow
def test_trl_takes_a_step_and_its_loss_is_that_of_our_masks_logprobs_and_advantages(tmp_path: Path) -> None:
    """Each loss is also computed by hand from the file; what is changed in the file changes the loss as computed."""
    told = judge(
        "trl_step",
        written(tmp_path, "trl", None, steps()),
        ROOT / "docs" / "reference" / "trainers.md",
        tmp_path / "trl",
    )
    assert len(told) == 5
    for name, scenario in told.items():
        assert scenario["trainer"] == pytest.approx(scenario["hand"], rel=1e-5, abs=1e-7), name
        assert scenario["moved"], name
    losses = {name: scenario["trainer"] for name, scenario in told.items()}
    assert abs(losses["as exported"] - losses["a token masked"]) > 1e-2
    assert abs(losses["corrected"] - losses["corrected, a token likelier"]) > 1e-2
    assert abs(losses["corrected"] - losses["exported advantages"]) > 1e-2


@needs_trainers
@pytest.mark.slow
def test_trl_trains_on_conversations_and_pairs(tmp_path: Path) -> None:
    sessions = [said(answered(name, f"I am {name}."), reward) for name, reward in (("a", 1.0), ("b", 0.0))]
    write_sft(tmp_path / "x.sft.jsonl", sessions, said_context())
    write_dpo(tmp_path / "x.dpo.jsonl", sessions, said_context())
    told = judge("said", tmp_path / "x.sft.jsonl", tmp_path / "x.dpo.jsonl", tmp_path)
    assert [message["role"] for message in told["messages"][0]] == ["system", "user", "assistant", "tool", "assistant"]
    assert told["messages"][0][2]["tool_calls"][0]["function"]["arguments"] == '{"c":  "ls \\u00e9"}'
    assert [message.get("weight") for message in told["messages"][0]] == [None, None, 1, None, 1]
    assert told["trained"] == 'I look.bash({"c":  "ls \\u00e9"})I am a.'
    assert told["shown"]["prompt"] == "[system]Be good.\n[user]How many?\n[assistant]"
    assert told["shown"]["chosen"].startswith('I look.bash({"c":  "ls \\u00e9"})\n[tool]3 files\n[assistant]I am a.')
    assert told["shown"]["rejected"].rstrip().removesuffix("<eos>").rstrip().endswith("I am b.")
    # A policy that is its own reference prefers neither.
    assert told["dpo"] == pytest.approx(told["even"], abs=1e-3)
    assert 0 < told["sft"] < 10
