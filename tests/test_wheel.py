"""The wheel has all that a database needs: it is built, unpacked elsewhere, and migrates from there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SECONDS = 120
ROOT = Path(__file__).parent.parent

PROGRAM = """
import sys
from alembic import command
from polarproxy.store import migrate, revisions
from polarproxy.store.database import for_writing, open_database
from polarproxy.store.repository import Repository

engine = open_database(sys.argv[1], create=True)
print(revisions.migrations_folder())
assert migrate.upgrade(engine) == revisions.head()
migrate.downgrade(engine, "base")
assert revisions.current(engine) is None
assert migrate.upgrade(engine) == revisions.head()
revisions.require_current(engine)
with for_writing(engine).begin() as connection:
    config = migrate._config()
    config.attributes["connection"] = connection
    command.check(config)
assert Repository(engine).session_ids() == []
engine.dispose()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_migrations_run_up_down_and_up_from_the_wheel(installed: Path, empty: str, tmp_path: Path) -> None:
    """Without the checkout: only the dependencies are shared with it."""
    run = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", PROGRAM, empty],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == str(installed / "polarproxy" / "_migrations")


def test_nothing_of_the_tests_is_in_the_wheel(installed: Path) -> None:
    top = {path.name.partition("-")[0] for path in installed.iterdir()}
    assert top == {"polarproxy"}
