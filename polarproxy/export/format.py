"""What a format is: a name, and a function that streams the sessions of an export into one file."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol

from polarproxy.errors import BadExport
from polarproxy.export.texts.options import TextOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from polarproxy.batch.sample import Sample
    from polarproxy.export.account import Account
    from polarproxy.model import Call, Session
    from polarproxy.trajectory.branches import Trajectory
    from polarproxy.trajectory.rebuilt import Rebuilt
    from polarproxy.wire.neutral.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """One session of an export: what was recorded, and what of it is trained."""

    session: Session
    rebuilt: Rebuilt
    """Everything that was recorded: calls with what they were for, all branches, agents."""
    trajectory: Trajectory | None
    """What is trained here: without turns that were refused, filtered out or not credited. None: nothing is."""
    samples: tuple[Sample, ...]
    """Its rows, by branch. Empty: it is left out."""
    left_out: str | None = None
    """Why it has no rows. None: it has."""


def _no_request(_call: Call) -> Request | None:
    return None


def _no_spellings(_model: str) -> Mapping[int, bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class Reading:
    """How text is read; the command line knows the dialects and the store."""

    request: Callable[[Call], Request | None] = _no_request
    """What a call asked, in no dialect's words. None: it was not kept, or cannot be read."""
    spellings: Callable[[str], Mapping[int, bytes]] = _no_spellings
    """The spelling of every token that a model, by the name it was served under, ever sampled."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a writer may know beside its sessions."""

    account: Account
    """Of the file that is written; complete once every session was taken."""
    form: str | None = None
    """Which of the format's forms. None: it has none."""
    reading: Reading = field(default_factory=Reading)
    texts: TextOptions = field(default_factory=TextOptions)
    """Only for formats that take them."""


class Write(Protocol):
    """Writes one whole file.

    The path is a temporary one: the caller makes it durable and moves it into place, or deletes it on failure. Sessions come
    by group, so that a group can be had whole by `itertools.groupby`; those that are left out come too, without rows. What is
    held in memory must not grow with the number of sessions, and the same sessions must make the same bytes: no clock, no
    randomness, no order of a set.
    """

    def __call__(self, path: Path, sessions: Iterable[Taken], context: Context, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Format:
    """A file format."""

    name: str
    suffix: str
    """By which a file's name says that it is this; no two formats share one."""
    about: str
    """What it is, in a line for `--help`."""
    write: Write
    needs: Literal["rows", "conversations"] = "rows"
    """Whether it is made of token rows or of what was said; flags that cut rows are refused for the latter."""
    takes: tuple[str, ...] = ()
    """The fields of `TextOptions` that it takes."""
    forms: tuple[str, ...] = ()
    """Names for `--form`; the first is the default."""
    modules: tuple[str, ...] = ()
    """Packages that must be installed."""
    extra: str | None = None
    """The extra of polarproxy that installs them."""

    def require(self) -> None:
        """Raises `BadExport` when a package that it needs is not installed."""
        for module in self.modules:
            if find_spec(module) is None:
                what = module if self.extra is None else f"'polarproxy[{self.extra}]'"
                raise BadExport(f"{self.name} needs {module}, which is missing; install it with: pip install {what}")

    def form(self, wanted: str | None) -> str | None:
        """The form that is wanted, or the default; raises `BadExport` when there is none of the name."""
        if wanted is None:
            return self.forms[0] if self.forms else None
        if wanted not in self.forms:
            known = f"choose one of {', '.join(self.forms)}" if self.forms else "leave --form out"
            raise BadExport(f"{self.name} has no form {wanted!r}; {known}")
        return wanted


def rows_of(sessions: Iterable[Taken]) -> Iterator[Sample]:
    """The rows of sessions, one after the other."""
    for taken in sessions:
        yield from taken.samples
