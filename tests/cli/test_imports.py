"""A command pays for what it uses: what only a proxy or a migration needs is not imported by those that read."""

import subprocess
import sys

import pytest

from polarproxy.cli.main import COMMANDS, GROUPS, build
from tests.cli.command import Command

SECONDS = 60
HEAVY = ("aiohttp", "alembic", "asyncpg", "psycopg", "pyarrow", "torch", "uvloop")
PROGRAM = """
import sys
from polarproxy.cli.main import run
sys.argv[0] = "polarproxy"
try:
    run()
except SystemExit as ended:
    assert not ended.code, ended.code
for name in sys.modules:
    print("imported", name)
"""


def imported(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return {line.removeprefix("imported ") for line in done.stdout.splitlines() if line.startswith("imported ")}


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "list"),
        ("sessions", "show", "good"),
        ("calls", "list"),
        ("trajectories", "show", "good"),
        ("db", "stats"),
        ("db", "verify"),
    ],
    ids=" ".join,
)
def test_a_reading_command_imports_nothing_heavy(db: str, arguments: tuple[str, ...]) -> None:
    found = imported(*arguments, "--db", db)
    assert "sqlalchemy" in found
    assert found & {*HEAVY} == set()


def test_the_version_costs_no_database() -> None:
    assert "sqlalchemy" not in imported("--version")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["sesions"]], ids=str)
def test_questions_about_the_commands_see_all_of_them(arguments: list[str]) -> None:
    app = build(arguments)
    names = {info.callback.__name__.replace("_", "-") for info in app.registered_commands if info.callback}
    assert names | {group.name for group in app.registered_groups} == {*COMMANDS, *GROUPS}


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPS])
def test_a_command_that_is_asked_for_stands_alone(polarproxy: Command, name: str) -> None:
    app = build([name, "--help"])
    assert len(app.registered_commands) + len(app.registered_groups) == 1
    done = polarproxy(name, "--help")
    assert done.code == 0
    assert f"polarproxy {name}" in done.out
