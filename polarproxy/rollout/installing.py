"""Installing harnesses into a cache: exact packages from npm and PyPI, each harness in a folder of its own.

A folder counts as installed only when complete, and its name changes with what the recipe asks for, so that an interrupted
install is simply done again and an old one is never taken for a new one. Several may install at once.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import xxhash

from polarproxy.errors import HarnessNotInstalled
from polarproxy.model.harness import Install
from polarproxy.rollout.filling import uses
from polarproxy.rollout.supervised import run

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from polarproxy.rollout.recipes import Harness
    from polarproxy.trajectory.recipes import Recipe

_COMPLETE = "complete"
_STEP_S = 1800.0
_LOOK_S = 0.1
_NPM = (
    *("install", "--silent", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--no-update-notifier"),
    # Scripts could do anything, and optional packages are native extras that programs do without.
    *("--ignore-scripts", "--omit=optional"),
)
_PIP = ("-m", "pip", "install", "-qq", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True)
class Installed:
    """A harness that can run here."""

    recipe: Recipe
    folder: Path
    """Where the files lie that come with its recipe."""
    path: tuple[str, ...]
    """Folders of its commands, to be looked at before the system's."""
    programs: tuple[Path, ...]
    """Folders that a runtime must let it read."""


def install(
    harness: Harness,
    cache: Path,
    say: Callable[[str], None] = lambda _: None,
    unwanted: threading.Event | None = None,
) -> Installed:
    """Installs what is not installed yet; `say` hears of each step that takes long. It is broken off once it is `unwanted`.

    Raises `HarnessNotInstalled`, which says why, when it cannot be had on this machine.
    """
    wanted = harness.recipe.install
    folders = [harness.folder, *(_python_folders() if uses(harness.recipe, "python") else ())]
    path: list[str] = []
    if wanted is not None:
        machine = platform.machine().replace("arm64", "aarch64")
        if machine not in wanted.arch:
            raise HarnessNotInstalled(f"{harness.recipe.name} has no packages for {machine}")
        wanted = _for_machine(wanted, machine)
        units = [] if wanted.node is None else [_node(wanted.node, wanted.arch[machine])]
        for unit in [_Unit(harness.recipe.name, wanted, harness.folder), *units]:
            place = unit.install(cache, say, unwanted)
            folders += [place, *_interpreter(place)]
            path.append(str(place / "bin"))
    return Installed(harness.recipe, harness.folder, tuple(path), tuple(folders))


def _python_folders() -> tuple[Path, ...]:
    """What this interpreter reads to run, with the packages it has."""
    return tuple(dict.fromkeys((Path(sys.base_prefix), Path(sys.prefix))))


def _interpreter(place: Path) -> list[Path]:
    """The folder of the Python that an environment in there was made from."""
    python = place / "venv" / "bin" / "python"
    return [python.resolve().parents[1]] if python.exists() else []


def _for_machine(wanted: Install, machine: str) -> Install:
    arch = wanted.arch[machine]

    def fill(text: str) -> str:
        return text.replace("{arch}", arch).replace("{machine}", machine)

    return msgspec.structs.replace(
        wanted,
        npm=tuple(map(fill, wanted.npm)),
        programs={name: fill(place) for name, place in wanted.programs.items()},
        arch={machine: "arm64" if machine == "aarch64" else "x64"},
    )


def _node(version: str, arch: str) -> _Unit:
    """Node.js itself, from npm: the system's may be too old, or missing beside npm."""
    package = f"node-linux-{arch}"
    programs = {"node": f"node_modules/{package}/bin/node"}
    return _Unit("node", Install(npm=(f"{package}@{version}",), programs=programs), None)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is installed together, in one folder."""

    name: str
    wanted: Install
    beside: Path | None
    """The folder of the recipe. None: there is none."""

    @property
    def _requirements(self) -> Path | None:
        return (
            None if self.wanted.requirements is None or self.beside is None else self.beside / self.wanted.requirements
        )

    def install(self, cache: Path, say: Callable[[str], None], unwanted: threading.Event | None) -> Path:
        stamp = msgspec.json.encode(self.wanted, order="deterministic")
        if self._requirements is not None:
            stamp += self._requirements.read_bytes()
        place = cache.absolute() / f"{self.name}-{xxhash.xxh3_64_hexdigest(stamp)}"
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place, unwanted):
            if not (place / _COMPLETE).exists():
                said = (*self.wanted.npm, *self.wanted.pip, *filter(None, [self.wanted.requirements]))
                say(f"installing {self.name}" + (f": {', '.join(said)}" if said else ""))
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                self._fill(place, unwanted)
                (place / _COMPLETE).touch()
        return place

    def _fill(self, place: Path, unwanted: threading.Event | None) -> None:
        for command in self._commands(place):
            self._run(command, unwanted)
        (place / "bin").mkdir()
        for name, path in self.wanted.programs.items():
            if not (place / path).exists():
                raise HarnessNotInstalled(f"{self.name}: its packages brought no {path}")
            (place / "bin" / name).symlink_to(Path("..", path))

    def _commands(self, place: Path) -> Iterator[list[str]]:
        if self.wanted.npm:
            yield ["npm", *_NPM[:1], "--prefix", str(place), *_NPM[1:], *self.wanted.npm]
        if self.wanted.pip or self._requirements is not None:
            python = str(place / "venv" / "bin" / "python")
            yield [_python(self.name, self.wanted.python), "-m", "venv", str(place / "venv")]
            if self._requirements is not None:
                yield [python, *_PIP, "--no-deps", "-r", str(self._requirements)]
            if self.wanted.pip:
                yield [python, *_PIP, *self.wanted.pip]

    def _run(self, command: list[str], unwanted: threading.Event | None) -> None:
        program = Path(command[0]).name
        if shutil.which(command[0]) is None:
            raise HarnessNotInstalled(f"{self.name} is installed with {program}, which this machine has not")
        done = run(command, seconds=_STEP_S, unwanted=unwanted)
        if done.code is None:
            raise HarnessNotInstalled(f"{self.name}: {program} took longer than {_STEP_S:g} s, or was broken off")
        if done.code != 0:
            said = (done.stderr.strip() or done.stdout.strip())[-600:]
            raise HarnessNotInstalled(f"{self.name}: {program} failed: {said}")


def _python(name: str, least: str | None) -> str:
    """An interpreter of at least that version: this one, or one that the system or pyenv has."""
    if least is None or sys.version_info[:2] >= tuple(map(int, least.split("."))):
        return sys.executable
    minor = int(least.partition(".")[2])
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for each in range(minor, minor + 4):
        kept = sorted(versions.glob(f"3.{each}.*/bin/python"))
        found = str(kept[-1]) if kept else shutil.which(f"python3.{each}")
        if found is not None:
            return found
    raise HarnessNotInstalled(f"{name} needs Python {least} or newer, which this machine has not")


@contextmanager
def _alone(place: Path, unwanted: threading.Event | None) -> Iterator[None]:
    """Waits for whoever installs the same."""
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if unwanted is not None and unwanted.is_set():
                    raise HarnessNotInstalled(f"{place.name} was still being installed by another process") from None
                time.sleep(_LOOK_S)
        yield
