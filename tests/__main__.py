"""`python -m tests`: every gate, one after the other, then the tests. Arguments go to pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
GATES = (
    (str(BIN / "ruff"), "check", "."),
    (str(BIN / "ruff"), "format", "--check", "."),
    (str(BIN / "mypy"),),
    (str(BIN / "lint-imports"), "--no-cache"),
)


def main() -> int:
    """The exit code: 0 when every gate and every test passed."""
    failed = [gate for gate in GATES if _run(gate) != 0]
    for gate in failed:
        print(f"gate failed: {' '.join(Path(part).name for part in gate)}", file=sys.stderr)
    tests = _run((sys.executable, "-m", "pytest", *sys.argv[1:]))
    return tests or int(bool(failed))


def _run(command: tuple[str, ...]) -> int:
    print(f"== {' '.join([Path(command[0]).name, *command[1:]])}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
