"""Run a coding agent as its user would: in a home and a repository of its own, with nothing of this machine's in sight."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from polarproxy.rollout.installing import install
from polarproxy.rollout.recipes import find_harnesses

FOLDER = "POLARPROXY_TEST_HARNESSES"
PROGRAMS = ("claude-code", "codex", "gemini-cli", "mini-swe-agent", "opencode", "qwen-code")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_GIT = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.invalid"}
_GIT |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in _GIT.items()}


@dataclass(frozen=True)
class Ended:
    """How a run of an agent ended; exit code None: it did not end by itself."""

    exit_code: int | None
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"exit code {self.exit_code}\n--- stdout\n{self.stdout[-4000:]}\n--- stderr\n{self.stderr[-4000:]}"


@dataclass(frozen=True)
class Workspace:
    """Three new folders: `home`, `repo`, a git repository of one commit, and `temporary`."""

    home: Path
    repo: Path
    temporary: Path

    @classmethod
    def make(cls, folder: Path) -> "Workspace":
        home, repo, temporary = folder / "home", folder / "repo", folder / "temporary"
        for place in (home, repo, temporary):
            place.mkdir()
        (repo / "README.md").write_text("A tiny repository.\n")
        environment = {"PATH": SYSTEM_PATH, "HOME": str(home), **_GIT}
        for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "start")):
            subprocess.run(("git", *arguments), cwd=repo, env=environment, check=True, timeout=30)
        return cls(home, repo, temporary)

    def write(self, files: Mapping[str, str]) -> None:
        """Files by their path inside the home."""
        for name, content in files.items():
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)


def folder_of_programs() -> Path | None:
    """Where .ci/setup-harnesses has installed the agents. None: it was not run."""
    folder = os.environ.get(FOLDER)
    return Path(folder) if folder else None


@cache
def installed() -> str | None:
    """PATH of the programs that .ci/setup-harnesses has installed. None: it was not run."""
    folder, known = folder_of_programs(), find_harnesses()
    if folder is None:
        return None
    return os.pathsep.join(path for name in PROGRAMS for path in install(known[name], folder).path)


async def run(command: Sequence[str], environment: Mapping[str, str], place: Workspace, seconds: float) -> Ended:
    """Runs `command` from the folder of programs until it ends or `seconds` have passed; nothing of it stays alive."""
    programs = installed()
    assert programs is not None
    known = {
        "PATH": f"{programs}:{SYSTEM_PATH}",
        "HOME": str(place.home),
        "TMPDIR": str(place.temporary),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    # Files, not pipes: what outlives the agent cannot keep us waiting for the end of its output.
    out, err = place.temporary / "stdout", place.temporary / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=place.repo,
            env=known | dict(environment),
            start_new_session=True,
        )
        exit_code: int | None = None
        try:
            async with asyncio.timeout(seconds):
                exit_code = await process.wait()
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Ended(exit_code, out.read_text(errors="replace"), err.read_text(errors="replace"))
