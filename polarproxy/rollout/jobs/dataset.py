"""Tasks out of files: JSON lines, Parquet, folders of either, and folders with a folder for each task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.errors import UNREADABLE, BadSettings
from polarproxy.rollout.evaluators.asked import Asked  # noqa: TC001  (msgspec reads it)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_TABLES = (".jsonl", ".parquet")
_LONGEST_ID = 200


class GivenTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Other columns are left alone."""

    id: str
    instruction: str
    files: dict[str, str] = {}
    """The working copy. Empty: what the job says."""
    folder: str | None = None
    """The working copy, as a folder. None: it is not one."""
    tests: dict[str, str] = {}
    """Files for the job's evaluators."""
    evaluator: Asked | tuple[Asked, ...] | None = None
    """In place of the job's. None: the job's."""
    metadata: dict[str, str] = {}


def read_tasks(path: Path, columns: Mapping[str, str], limit: int | None = None) -> list[GivenTask]:
    """The tasks in order; raises `BadSettings` with the place of one that cannot be read, or that has another's id."""
    found: dict[str, GivenTask] = {}
    for where, row in _rows(path):
        if limit is not None and len(found) >= limit:
            break
        task = _task(row, columns, where)
        if task.id in found:
            raise BadSettings(f"{where}: there is a task {task.id!r} already")
        found[task.id] = task
    if not found:
        raise BadSettings(f"{path} has no tasks")
    return list(found.values())


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.is_dir():
        tables = sorted(file for file in path.rglob("*") if file.suffix in _TABLES and file.is_file())
        if tables:
            for table in tables:
                yield from _table(table)
        else:
            yield from _folders(path)
    elif path.suffix in _TABLES and path.is_file():
        yield from _table(path)
    else:
        raise BadSettings(f"{path} is neither a folder nor a file in one of {', '.join(_TABLES)}")


def _table(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield f"{path}:{number}", msgspec.json.decode(line, type=dict[str, Any])
                except UNREADABLE as error:
                    raise BadSettings(f"{path}:{number}: {error}") from error


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    # Not at the top: no other kind of file needs it.
    import pyarrow as pa
    from pyarrow import parquet

    try:
        number = 0
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", row
    except pa.ArrowInvalid as error:
        raise BadSettings(f"{path} is not Parquet: {error}") from error


def _folders(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """`task.json` or `instruction.md`, with a folder `work` and a folder `tests`, any of them left out."""
    for folder in sorted(path.iterdir()):
        described, said = folder / "task.json", folder / "instruction.md"
        if not described.is_file() and not said.is_file():
            continue
        row: dict[str, Any] = {"id": folder.name}
        try:
            if described.is_file():
                row |= msgspec.json.decode(described.read_bytes(), type=dict[str, Any])
            if said.is_file():
                row.setdefault("instruction", said.read_text())
            if (folder / "work").is_dir():
                row.setdefault("folder", str((folder / "work").resolve()))
            tests = folder / "tests"
            if tests.is_dir():
                files = {
                    str(file.relative_to(tests)): file.read_text()
                    for file in sorted(tests.rglob("*"))
                    if file.is_file()
                }
                row.setdefault("tests", files)
        except UNREADABLE as error:
            raise BadSettings(f"{folder}: {error}") from error
        yield str(folder), row


def _task(row: Mapping[str, Any], columns: Mapping[str, str], where: str) -> GivenTask:
    named = {
        name: row[columns.get(name, name)] for name in GivenTask.__struct_fields__ if columns.get(name, name) in row
    }
    for name, value in named.items():
        # What has a structure may stand in a column of text, as it must in most tables.
        if name not in ("id", "instruction", "folder") and isinstance(value, str):
            try:
                named[name] = msgspec.json.decode(value)
            except UNREADABLE as error:
                raise BadSettings(f"{where}: {name} is no JSON: {error}") from error
    if "metadata" in named and isinstance(named["metadata"], dict):
        named["metadata"] = {
            key: value if isinstance(value, str) else str(value) for key, value in named["metadata"].items()
        }
    if isinstance(named.get("id"), int):
        named["id"] = str(named["id"])
    try:
        task = msgspec.convert({name: value for name, value in named.items() if value is not None}, GivenTask)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{where}: {error}") from error
    if not 0 < len(task.id) <= _LONGEST_ID:
        raise BadSettings(f"{where}: the id has {len(task.id)} characters; 1 to {_LONGEST_ID} will do")
    return task
