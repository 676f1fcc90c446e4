"""What is done of an export of several files, so that one that was broken off goes on.

Beside the export, in a folder `.NAME.unfinished`: `plan.json` says what is exported, every file that is whole lies under its
name, and `NAME.done` says its digest and what was counted of it. At the end all files move into place and the folder goes.
"""

from __future__ import annotations

import fcntl
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from polarproxy.credit.collapse import Observed
from polarproxy.errors import UNREADABLE, BadExport
from polarproxy.export.account import Tally  # noqa: TC001  # msgspec reads the annotation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from polarproxy.credit.rollouts import Rollout
    from polarproxy.export.account import Account
    from polarproxy.model import Session

_PIECE = 1 << 20
_LOCK, _DONE = "lock", ".done"


class Plan(msgspec.Struct, frozen=True):
    """What an export is of, in digests that say what differs when it is not the same."""

    options: str
    sessions: str
    """Of the sessions, with all that the store knows of them."""
    version: str

    def differs(self, before: Plan) -> str | None:
        """What is not as it was. None: nothing."""
        if before.version != self.version:
            return f"it was begun by polarproxy {before.version}"
        if before.options != self.options:
            return "its options were others"
        return "the store has changed since" if before.sessions != self.sessions else None


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of one session's tokens, for the collapse monitor."""

    session_id: str
    length: int | None
    repetition: float | None
    policy_version: int | None


@dataclass(frozen=True, slots=True)
class Done:
    """A file that is whole."""

    name: str
    size: int
    digest: str
    """xxh3-128 of its bytes."""
    tally: Tally
    looked: tuple[Looked, ...]

    def count(self, account: Account, sessions: Mapping[str, Session], rollouts: Mapping[str, Rollout]) -> None:
        """Adds what is in the file to the account of the export."""
        account.add(self.tally)
        account.observed += (
            Observed(
                rollouts[one.session_id],
                sessions[one.session_id].created_at,
                one.length,
                one.repetition,
                one.policy_version,
            )
            for one in self.looked
        )


def done(path: Path, name: str, account: Account) -> Done:
    """The record of a file that was written, given what was counted of it."""
    looked = (
        Looked(one.rollout.session_id, one.length, one.repetition, one.policy_version) for one in account.observed
    )
    return Done(name, path.stat().st_size, file_digest(path), account.tally(), tuple(looked))


def file_digest(path: Path) -> str:
    """xxh3-128 of a file's bytes."""
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            state.update(piece)
    return state.hexdigest()


class Unfinished:
    """The folder of an export while it is worked on."""

    def __init__(self, out: Path) -> None:
        self.folder = out.with_name(f".{out.name}.unfinished")
        self._target = out.parent

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Makes the folder and keeps others from it; raises `BadExport` when another export works there, or it cannot be made.

        A folder in which no file is done is deleted afterwards.
        """
        try:
            self.folder.mkdir(exist_ok=True)
            lock = (self.folder / _LOCK).open("wb")
        except OSError as error:
            raise BadExport(f"{self.folder} cannot be made: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BadExport(f"another export is writing these files ({self.folder}); wait for it") from error
            try:
                yield
            finally:
                if not list(self.folder.glob(f"*{_DONE}")):
                    shutil.rmtree(self.folder)

    def begin(self, plan: Plan) -> str | None:
        """Goes on with what is there. Why it starts anew instead; None: it does not, or nothing was there."""
        saved, why = self.folder / "plan.json", None
        try:
            why = plan.differs(msgspec.json.decode(saved.read_bytes(), type=Plan))
        except FileNotFoundError:
            pass
        except UNREADABLE:
            why = "its plan cannot be read"
        if why is not None:
            for entry in self.folder.iterdir():
                if entry.name != _LOCK:
                    entry.unlink()
        _write(saved, msgspec.json.encode(plan))
        return why

    def finished(self, name: str) -> Done | None:
        """A file that is done and still what it was, here or in its place already. None: it is to be written."""
        try:
            record = (self.folder / f"{name}{_DONE}").read_bytes()
            known = msgspec.msgpack.decode(record, type=Done, dec_hook=_counter)
            path = self._where(name)
            sound = path.stat().st_size == known.size and file_digest(path) == known.digest
        except (OSError, *UNREADABLE):
            return None
        return known if sound else None

    def add(self, file: Done) -> None:
        """Remembers a file that lies in the folder."""
        _write(self.folder / f"{file.name}{_DONE}", msgspec.msgpack.encode(file))

    def settle(self, names: Sequence[str]) -> None:
        """Moves all files into their places, and forgets how they came about."""
        for name in names:
            self._where(name).replace(self._target / name)
        for record in self.folder.glob(f"*{_DONE}"):
            record.unlink()

    def _where(self, name: str) -> Path:
        here = self.folder / name
        return here if here.exists() else self._target / name


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise BadExport(f"{path} cannot be written: {error.strerror or error}") from error


def _counter(_kind: type, value: Any) -> Any:
    """What msgspec does not know of a tally are its counters."""
    return Counter(value)
