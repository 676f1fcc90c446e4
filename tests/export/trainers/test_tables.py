"""The tables of docs/reference/trainers.md are those of the code, and the code keeps to them."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polarproxy.export.trainers import areal, nemo_gym, nemo_rl, openrlhf, prime_rl, skyrl, slime, tinker, trl, verl
from polarproxy.export.trainers.files import TRAINERS as FORMATS
from polarproxy.export.trainers.row import Field, filled, rows_of
from tests.export.trainers.example import TWO_TURNS
from tests.export.trainers.test_round_trip import TRAINERS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "trainers.md").read_text()
OF_ROWS: dict[str, tuple[Field[Any], ...]] = {
    "verl": verl.TENSORS + verl.NON_TENSORS,
    "trl": trl.FIELDS,
    "slime": slime.FIELDS,
    "prime-rl": prime_rl.FIELDS,
    "nemo-rl-messages": nemo_rl.DATUM,
    "nemo-rl-train": nemo_rl.TRAIN + nemo_rl.TRAIN_SCALARS,
    "skyrl": skyrl.FIELDS,
    "openrlhf": openrlhf.EXPERIENCE,
    "openrlhf-agent": openrlhf.AGENT,
    "tinker": tinker.LOSS_INPUTS + tinker.CARRIED,
    "areal": areal.FIELDS,
}
LENGTHS = {"P": 3, "R": 4, "L": 7, "P + R": 7, "L − 1": 6, "S": 7, "1": 1}
"""Of `TWO_TURNS`."""
KINDS = {"int": int, "float": float, "bool": bool, "str": str}
SHAPED = re.compile(r"(int64|int32|uint8|float32|bool|int|float) \[([^\]]+)\]")


@pytest.mark.parametrize("name", [*OF_ROWS, "nemo-gym"])
def test_every_field_is_documented_in_its_words(name: str) -> None:
    for field in OF_ROWS.get(name, nemo_gym.FIELDS):
        assert f"| `{field.name}` | {field.about} |" in PAGE, f"{name}: {field.name}"


def test_the_keys_of_a_message_are_documented_and_no_others_are_there() -> None:
    keys = {key for datum in nemo_rl.to_nemo_rl([TWO_TURNS]) for message in datum["message_log"] for key in message}
    assert keys == set(nemo_rl.MESSAGE)
    for key, about in nemo_rl.MESSAGE.items():
        assert f"| `{key}` | {about} |" in PAGE


@pytest.mark.parametrize("name", sorted(OF_ROWS.keys() - {"nemo-rl-messages"}))
def test_shapes_and_types_are_as_documented(name: str) -> None:
    (row,) = rows_of([TWO_TURNS])
    values = filled(OF_ROWS[name], row)
    checked = [_check(field, values[field.name]) for field in OF_ROWS[name] if field.name in values]
    assert any(checked)


def _check(field: Field[Any], value: Any) -> bool:
    said = SHAPED.match(field.about)
    if said is None:
        return False
    kind, sizes = said[1], [size for size in said[2].split(", ") if size != "B"]
    shape = tuple(LENGTHS[size] for size in sizes)
    if isinstance(value, Mapping):
        # tinker writes tensors as their values beside their type and shape.
        assert (value["dtype"], tuple(value["shape"]), len(value["data"])) == (kind, shape, shape[0]), field.name
    elif isinstance(value, np.ndarray):
        assert (str(value.dtype), value.shape) == (kind, shape), field.name
    elif isinstance(value, list):
        assert (len(value),) == shape, field.name
        assert {type(one) for one in value} == {KINDS[kind]}, field.name
    else:
        # One value of a row, of which a batch is made: `int64 [B]`.
        assert shape == (), field.name
    return True


def table(of: str) -> Iterable[tuple[str, ...]]:
    """The rows of the table under a heading."""
    section = PAGE.split(f"## {of}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield tuple(cell.strip() for cell in line.strip("|").split("|"))


def test_what_there_is_room_for_is_what_comes_back() -> None:
    rooms = {trainer.name: trainer.room for trainer in TRAINERS}
    documented = set()
    for name, form, advantages, weight, reward, group, _ in table("What there is room for"):
        key = "-".join(part.strip("`") for part in (name, form) if part)
        documented.add(key)
        said = {
            "advantages": advantages != "—",
            "loss_weight": weight != "—",
            "reward": reward != "—",
            "group_id": group != "—",
        }
        assert said == {field: field in rooms[key] for field in said}, key
    assert documented == rooms.keys()
    assert documented == {"-".join(filter(None, (one.name, form))) for one in FORMATS for form in one.forms or ("",)}
