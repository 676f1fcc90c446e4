"""The stores that are compared: each takes one call at a time from each of many producers, and answers when it is durable."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import msgspec
from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, insert

from polarproxy.store.database import for_writing, open_database
from polarproxy.store.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from polarproxy.model import Call
    from polarproxy.store.items import NewCall

_SECONDS = 60.0


class Store(Protocol):
    """One of them."""

    name: str

    async def write(self, item: NewCall) -> None:
        """Returns when the call is on the disk."""

    def close(self) -> None:
        """Nothing more will come."""


class Ours:
    """polarproxy's writer: groups, what lies beyond the base, one flush for all who wait."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._engine = open_database(url)
        self._writer = Writer(self._engine)

    async def write(self, item: NewCall) -> None:
        await self._writer.write(item, _SECONDS)

    def close(self) -> None:
        self._writer.close()
        self._engine.dispose()


_metadata = MetaData()
_whole = Table(
    "whole_calls",
    _metadata,
    Column("call_id", String(32), primary_key=True),
    Column("session_id", String(128), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("prompt", LargeBinary, nullable=False),
    Column("completion", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)


class PerRequest:
    """SQLAlchemy as most programs use it: a transaction for each request, the call whole, its arrays as bytes.

    SQLite takes one writer at a time, and gets one, so that nobody waits for a lock; PostgreSQL gets many.
    """

    def __init__(self, name: str, url: str, connections: int) -> None:
        self.name = name
        self._engine = for_writing(open_database(url))
        self._pool = ThreadPoolExecutor(connections)
        _metadata.create_all(self._engine)

    async def write(self, item: NewCall) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._insert, item.call)

    def _insert(self, call: Call) -> None:
        completion = call.completions[0]
        row = {
            "call_id": call.call_id,
            "session_id": call.session_id,
            "ordinal": call.ordinal,
            "prompt": call.prompt_token_ids.raw if call.prompt_token_ids else b"",
            "completion": completion.token_ids.raw,
            "logprobs": completion.logprobs.raw if completion.logprobs else b"",
            "body": call.request_body,
        }
        with self._engine.begin() as connection:
            connection.execute(insert(_whole), row)

    def close(self) -> None:
        self._pool.shutdown()
        self._engine.dispose()


class Jsonl:
    """A line of JSON for each call in one file, flushed to the disk before it counts: the least that is durable.

    The standard library's encoder writes it, as it does in most recorders, from objects that are at hand already.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._file = path.open("wb")
        self._pool = ThreadPoolExecutor(1)

    async def write(self, item: NewCall) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._append, item.call)

    def _append(self, call: Call) -> None:
        self._file.write(json.dumps(as_object(call)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._pool.shutdown()
        self._file.close()


class Rollouts:
    """JSON lines as a recorder keeps them that means to lose nothing and double nothing: a file for each session, and for
    each call a lock against other processes, a digest by which a call that comes twice is known, the line, fsync'd, and
    an index that replaces the one before.

    It stands for NVIDIA NeMo Gym's token store, the one peer that is durable before it answers, and writes what that one
    writes and the request besides, in the threads of `asyncio.to_thread`: files of different sessions at the same time.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        folder.mkdir()

    async def write(self, item: NewCall) -> None:
        await asyncio.to_thread(self._append, item.call)

    def _append(self, call: Call) -> None:
        line = json.dumps(as_object(call), sort_keys=True).encode()
        digest = hashlib.sha256(line).hexdigest()
        with self._file(call, "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            index = self._index(call)
            if index.get(call.call_id) == digest:
                return
            with self._file(call, "jsonl").open("ab") as file:
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            fresh = self._file(call, f"{call.call_id}.new")
            fresh.write_text(json.dumps(index | {call.call_id: digest}))
            fresh.replace(self._file(call, "index"))

    def _index(self, call: Call) -> dict[str, str]:
        path = self._file(call, "index")
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _file(self, call: Call, kind: str) -> Path:
        return self._folder / f"{call.session_id}.{kind}"

    def close(self) -> None:
        """Every file is closed already."""


def as_object(call: Call) -> dict[str, object]:
    """The call whole, as a recorder of JSON has it: arrays as numbers, the request as it was parsed."""
    completion = call.completions[0]
    return {
        "call_id": call.call_id,
        "session_id": call.session_id,
        "ordinal": call.ordinal,
        "prompt_token_ids": list(call.prompt_token_ids or ()),
        "completion_token_ids": list(completion.token_ids),
        "logprobs": list(completion.logprobs or ()),
        "request": msgspec.json.decode(call.request_body) if call.request_body else None,
    }
