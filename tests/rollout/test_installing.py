"""Installing harnesses: whole or not at all, once, by what the recipe asks for; npm is a script that the tests wrote."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from polarproxy.errors import HarnessNotInstalled
from polarproxy.model.harness import Install
from polarproxy.rollout.installing import Installed, install
from polarproxy.rollout.recipes import Harness
from polarproxy.trajectory.recipes import Recipe
from tests.rollout.left import processes

NPM = """#!/bin/sh
echo "$@" >> "$NPM_LOG"
test -z "$NPM_FAILS" || { echo "registry is away" >&2; exit 1; }
while [ $# -gt 0 ]; do test "$1" = --prefix && place=$2; shift; done
mkdir -p "$place/node_modules/.bin"; echo 'echo ran' > "$place/node_modules/.bin/tool"; chmod +x "$place/node_modules/.bin/tool"
"""
TOOL = Install(npm=("tool@1.2.3",), programs={"tool": "node_modules/.bin/tool"})


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The arguments of every run of npm, one a line."""
    folder = tmp_path / "npm"
    folder.mkdir()
    (folder / "npm").write_text(NPM)
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("NPM_LOG", str(folder / "log"))
    (folder / "log").touch()
    return folder / "log"


def harness(wanted: Install | None, folder: Path) -> Harness:
    return Harness(Recipe(format=1, name="tool", version="1", install=wanted), folder / "tool.toml")


def test_an_install_is_done_once_and_anew_for_another_version(npm: Path, tmp_path: Path) -> None:
    cache, said = tmp_path / "cache", list[str]()
    first = install(harness(TOOL, tmp_path), cache, said.append)
    again = install(harness(TOOL, tmp_path), cache, said.append)
    assert first == again
    assert said == ["installing tool: tool@1.2.3"]
    (line,) = npm.read_text().splitlines()
    assert line.endswith("tool@1.2.3")
    assert "--ignore-scripts" in line
    (folder,) = first.path
    assert os.access(Path(folder, "tool"), os.X_OK)
    newer = Install(npm=("tool@1.2.4",), programs=TOOL.programs)
    assert install(harness(newer, tmp_path), cache).path != first.path
    assert len(npm.read_text().splitlines()) == 2


def test_an_interrupted_install_is_done_again(npm: Path, tmp_path: Path) -> None:
    installed = install(harness(TOOL, tmp_path), tmp_path / "cache")
    place = Path(installed.path[0]).parent
    (place / "complete").unlink()
    (place / "leftover").touch()
    install(harness(TOOL, tmp_path), tmp_path / "cache")
    assert not (place / "leftover").exists()
    assert len(npm.read_text().splitlines()) == 2


def test_a_failure_says_why_and_counts_as_nothing(npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("NPM_FAILS", "1")
        with pytest.raises(HarnessNotInstalled, match="tool: npm failed: registry is away"):
            install(harness(TOOL, tmp_path), tmp_path / "cache")
    assert install(harness(TOOL, tmp_path), tmp_path / "cache").path
    lost = Install(npm=TOOL.npm, programs={"tool": "node_modules/other"})
    for _ in range(2):
        with pytest.raises(HarnessNotInstalled, match="brought no node_modules/other"):
            install(harness(lost, tmp_path), tmp_path / "cache")


def test_what_this_machine_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HarnessNotInstalled, match="tool has no packages for"):
        install(harness(Install(npm=("a@1",), arch={"pdp11": "x"}), tmp_path), tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(HarnessNotInstalled, match="installed with npm, which this machine has not"):
        install(harness(TOOL, tmp_path), tmp_path / "cache")
    with pytest.raises(HarnessNotInstalled, match=r"needs Python 3\.97 or newer"):
        install(harness(Install(pip=("a==1",), python="3.97"), tmp_path), tmp_path / "cache")


async def test_two_at_once_install_once(npm: Path, tmp_path: Path) -> None:
    async def one() -> Installed:
        return await asyncio.to_thread(install, harness(TOOL, tmp_path), tmp_path / "cache")

    assert len({done.path for done in await asyncio.gather(*(one() for _ in range(4)))}) == 1
    assert len(npm.read_text().splitlines()) == 1  # noqa: ASYNC240


def test_python_packages_get_an_environment_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("# nothing\n")
    wanted = Install(requirements="requirements.txt", programs={"py": "venv/bin/python"})
    first = install(harness(wanted, tmp_path), tmp_path / "cache")
    assert Path(first.path[0], "py").resolve().exists()
    assert any(Path(first.path[0], "py").resolve().is_relative_to(folder) for folder in first.programs)
    (tmp_path / "requirements.txt").write_text("# still nothing\n")
    assert install(harness(wanted, tmp_path), tmp_path / "cache").path != first.path


def test_nothing_to_install_is_nothing_to_do(tmp_path: Path) -> None:
    installed = install(harness(None, tmp_path), tmp_path / "cache")
    assert (installed.path, installed.programs) == ((), (tmp_path,))
    assert not (tmp_path / "cache").exists()


async def test_an_install_that_is_broken_off_leaves_nothing_running(
    npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for it to be installed by another is let go too."""
    monkeypatch.setenv("HOME", f"{tmp_path}/home")
    (npm.parent / "npm").write_text("#!/bin/sh\nsetsid sleep 600 &\nsleep 600\n")
    unwanted = threading.Event()
    tries = [
        asyncio.to_thread(install, harness(TOOL, tmp_path), tmp_path / "cache", unwanted=unwanted) for _ in range(2)
    ]
    both = asyncio.gather(*tries, return_exceptions=True)
    async with asyncio.timeout(30):
        while len([line for line in processes(tmp_path) if line == "sleep 600"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    unwanted.set()
    async with asyncio.timeout(30):
        ended = await both
    assert sorted(map(str, ended)) == [
        f"{place_of(tmp_path)} was still being installed by another process",
        "tool: npm took longer than 1800 s, or was broken off",
    ]
    assert processes(tmp_path) == []


def place_of(folder: Path) -> str:
    (lock,) = (folder / "cache").glob("tool-*.lock")
    return lock.stem
