"""A PostgreSQL server of the tests' own: made in a temporary folder, reached by a Unix socket, gone at the end.

Debian's `postgresql` brings the programs (`.ci/setup-postgres` installs it); `POLARPROXY_TEST_POSTGRES` names another
folder that holds them. Nothing on the machine is touched, and a server that runs there already is no concern of this one.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import psutil
from sqlalchemy import inspect

from polarproxy.store.database import open_database
from polarproxy.store.migrate import upgrade
from polarproxy.store.schema import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "POLARPROXY_TEST_POSTGRES"
MISSING = f"needs PostgreSQL: .ci/setup-postgres installs it, or {VARIABLE} names the folder with initdb and postgres"

_SECONDS = 60.0
_OWNER = "polarproxy"
_TEMPLATE = "polarproxy_template"

_CUT_OFF = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "150",
    # A killed server keeps what it wrote to the system. Only a power cut would show the difference.
    "fsync": "off",
    # What an administrator may have set, and the program must not depend on.
    "synchronous_commit": "off",
    "timezone": "Asia/Kathmandu",
    "default_transaction_isolation": "serializable",
}


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`; None when there is none on this machine."""
    named, on_path = os.environ.get(VARIABLE), shutil.which("initdb")
    if named:
        places = [Path(named)]
    else:
        places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
        places += [Path(on_path).resolve().parent] if on_path else []
    return next((folder for folder in places if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


def _unprivileged() -> dict[str, Any]:
    """For `subprocess`: the server refuses to run as root, so that root hands it to somebody who is nobody."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise RuntimeError("there is no user that PostgreSQL could run as; make one named postgres")


@dataclass
class Server:
    """A server that can be stopped hard, and started again on what it left."""

    programs: Path
    folder: Path
    settings: Mapping[str, str]
    _process: subprocess.Popen[Any] | None = None
    _names: Iterator[int] = field(default_factory=count)
    _spare: list[str] = field(default_factory=list)
    """Databases that were used and are empty again: making one takes much longer."""

    def url(self, database: str) -> str:
        """Of one of its databases."""
        return f"postgresql://{_OWNER}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Returns when it takes connections; raises `RuntimeError` with its log when it does not."""
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.programs / "postgres"), "-D", f"{self.folder}/data", "-k", str(self.folder), *options]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **_unprivileged())
        self._process = process
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            if time.monotonic() > deadline or process.poll() is not None:
                self.kill()
                raise RuntimeError("PostgreSQL did not start:\n" + (self.folder / "log").read_text(errors="replace"))
            time.sleep(0.02)

    def _answers(self) -> bool:
        asked = [str(self.programs / "pg_isready"), "-q", "-h", str(self.folder), "-d", "postgres"]
        return subprocess.run(asked, timeout=_SECONDS, check=False).returncode == 0

    def start_again(self) -> None:
        """Starts it if it ended by itself."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """As `pg_ctl stop -m immediate`: every connection is cut, nothing is tidied up."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_SECONDS)
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While the block lasts it answers nobody, as behind a cut cable."""
        assert self._process is not None
        postmaster = psutil.Process(self._process.pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # it was just ending
                process.suspend()
        yield
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def execute(self, statement: str) -> None:
        """Runs a statement on its own, as an administrator."""
        engine = open_database(self.url("postgres"))
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()

    def empty(self) -> str:
        """Makes a database without any tables; its URL."""
        name = f"test{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def fresh(self) -> str:
        """Makes a database with the current schema and nothing in it; its URL."""
        name = f"test{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        return self.url(name)

    @contextmanager
    def temporary(self) -> Iterator[str]:
        """A database with the current schema and nothing in it, until the block ends; gives its URL."""
        url = self._spare.pop() if self._spare else self.fresh()
        yield url
        if _emptied(url):
            self._spare.append(url)
        else:
            self.drop(url)

    def deadlocks(self, url: str) -> int:
        """How many there were in a database that nobody is connected to."""
        engine = open_database(url)
        with engine.connect() as connection:
            query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            found = int(connection.exec_driver_sql(query).scalar_one())
        engine.dispose()
        return found

    def drop(self, url: str) -> None:
        """Takes a database away, whoever is still connected."""
        self.execute(f"DROP DATABASE {url.partition('@/')[2].partition('?')[0]} WITH (FORCE)")


def _emptied(url: str) -> bool:
    """Deletes every row of a database, and cuts off who is still connected. False: its tables are not what they were."""
    engine = open_database(url)
    with engine.begin() as connection:
        as_made = {*inspect(connection).get_table_names()} == {*metadata.tables, "alembic_version"}
        if as_made:
            connection.exec_driver_sql(_CUT_OFF)
            connection.exec_driver_sql(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
    engine.dispose()
    return as_made


@contextmanager
def running(place: Path = Path("/tmp"), **settings: str) -> Iterator[Server]:
    """A server until the block ends, with its files in a folder of this one. Raises `FileNotFoundError` where PostgreSQL is
    not installed."""
    programs = binaries()
    if programs is None:
        raise FileNotFoundError(MISSING)
    # A short path, because that of a socket may not be long.
    folder = Path(mkdtemp(prefix="polarpg-", dir=place))
    server = Server(programs, folder, {**_SETTINGS, **settings})
    try:
        somebody = _unprivileged()
        if somebody:
            os.chown(folder, somebody["user"], somebody["group"])
        make = [str(programs / "initdb"), "-D", f"{folder}/data", "-U", _OWNER, "-A", "trust", "-E", "UTF8"]
        subprocess.run(
            [*make, "--locale=C", "--no-sync"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=True,
            **somebody,
        )
        server.start()
        server.execute(f"CREATE DATABASE {_TEMPLATE}")
        engine = open_database(server.url(_TEMPLATE))
        upgrade(engine)
        engine.dispose()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
