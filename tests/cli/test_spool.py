"""`polarproxy db spool`: what a person sees, and does, when the proxy of a spool is gone."""

from dataclasses import replace
from pathlib import Path

import pytest

from polarproxy.store.database import name_of, open_database
from polarproxy.store.items import Fact, Item
from polarproxy.store.places import Place
from polarproxy.store.repository import Repository
from polarproxy.store.spool_opening import open_spool
from polarproxy.store.spool_records import encode, subject
from tests.cli.command import Command
from tests.database import fresh
from tests.postgres import Server
from tests.store.samples import NOW, a_call, a_session, new_call

ITEMS: list[Item] = [
    a_session("s2", task_id="t"),
    new_call(a_call("c8", 0, (1, 2), (3,), session_id="s2")),
    new_call(a_call("c9", 1, (1, 2, 3), (4,), session_id="s2")),
    Fact("c8", NOW, "delivered", "yes"),
]


def fill(folder: Path, items: list[Item], database: str = "sqlite:////elsewhere") -> None:
    spool = open_spool(folder, database)
    spool.append([(encode(item), subject(item)) for item in items])
    spool.close()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Of a proxy that is gone."""
    fill(tmp_path / "spool", ITEMS)
    return tmp_path / "spool"


def test_list(polarproxy: Command, spool: Path) -> None:
    done = polarproxy("db", "spool", "list", spool)
    assert done.code == 0
    for text in ("0000000001.spool", "sqlite:////elsewhere", "2026-01-02 03:04:05"):
        assert text in done.out
    (found,) = polarproxy("db", "spool", "list", spool, "--json").json
    assert [found[name] for name in ("sessions", "calls", "without_place", "facts", "unreadable_bytes")] == [
        1,
        2,
        0,
        1,
        0,
    ]


def test_the_folder_may_be_a_setting(polarproxy: Command, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = polarproxy("db", "spool", "list")
    assert (done.code, done.err.strip()) == (2, "error: name the folder of the spool; there is no `spool` setting")
    monkeypatch.setenv("POLARPROXY_SPOOL", str(spool))
    assert "0000000001.spool" in polarproxy("db", "spool", "list").out


def test_nothing(polarproxy: Command, db: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty" in polarproxy("db", "spool", "list", tmp_path / "empty").out
    assert "0 records of" in polarproxy("db", "spool", "drain", tmp_path / "empty", "--db", db, "--force").out
    for command in ("list", "verify", "drain"):
        done = polarproxy("db", "spool", command, tmp_path / "none")
        assert (done.code, "there is no spool at" in done.err) == (2, True)
    assert not (tmp_path / "none").exists()


def test_verify(polarproxy: Command, spool: Path) -> None:
    done = polarproxy("db", "spool", "verify", spool)
    assert (done.code, "4 records in 1 file verified" in done.out) == (0, True)
    (path,) = spool.glob("*.spool")
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    done = polarproxy("db", "spool", "verify", spool)
    assert (done.code, "no whole record" in done.out) == (1, True)
    found = polarproxy("db", "spool", "verify", spool, "--json")
    assert (found.code, found.json["bad"][0]["facts"], found.json["torn"]) == (1, 0, [])
    # It changes nothing.
    assert path.read_bytes() == content[:-3]
    open_spool(spool, None).close()
    done = polarproxy("db", "spool", "verify", spool)
    assert (done.code, ".torn" in done.out) == (0, True)


def test_drain(polarproxy: Command, spool: Path, db: str) -> None:
    """Into a database that its records were not meant for: whoever says so knows."""
    done = polarproxy("db", "spool", "drain", spool, "--db", db, "--force")
    assert (done.code, "4 records of" in done.out) == (0, True)
    engine = open_database(db)
    repository = Repository(engine)
    assert [(found.call.call_id, found.delivered) for found in repository.calls("s2")] == [("c8", True), ("c9", False)]
    assert repository.session("s2").task_id == "t"
    engine.dispose()
    assert list(spool.glob("*.spool")) == []
    assert "0 records of" in polarproxy("db", "spool", "drain", spool, "--db", db, "--force").out


def test_drain_into_another_database_must_be_meant(
    polarproxy: Command, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not into whatever database there is here, and not into another one by mistake."""
    monkeypatch.chdir(tmp_path)
    here, before = fresh(tmp_path / "polar.db"), [path.read_bytes() for path in spool.glob("*.spool")]
    for flags in ([], ["--db", here]):
        done = polarproxy("db", "spool", "drain", spool, *flags)
        assert (done.code, "holds records for sqlite:////elsewhere, not for" in done.err) == (2, True)
    assert [path.read_bytes() for path in spool.glob("*.spool")] == before
    engine = open_database(here)
    assert list(Repository(engine).sessions()) == []
    engine.dispose()
    fill(tmp_path / "own", ITEMS, name_of(here))
    assert "4 records of" in polarproxy("db", "spool", "drain", tmp_path / "own").out


def test_drain_says_what_is_refused(polarproxy: Command, tmp_path: Path, db: str) -> None:
    fill(tmp_path / "spool", [new_call(a_call("c1", 0, (9,), (9,), session_id="good")), ITEMS[1]])
    done = polarproxy("db", "spool", "drain", tmp_path / "spool", "--db", db, "--force")
    assert (done.code, "1 record of" in done.out) == (1, True)
    assert "refused: call c1 contradicts what is stored" in done.err
    assert len(list((tmp_path / "spool").glob("*.spool"))) == 1


def test_drain_says_what_it_could_not_read(polarproxy: Command, spool: Path, db: str) -> None:
    (path,) = spool.glob("*.spool")
    content = bytearray(path.read_bytes())
    content[-100] ^= 1  # of the last call, before the fact
    path.write_bytes(content + b"torn")
    done = polarproxy("db", "spool", "verify", spool)
    assert (done.code, "bytes are no whole record" in done.out) == (1, True)
    done = polarproxy("db", "spool", "drain", spool, "--db", db, "--force")
    assert (done.code, "3 records of" in done.out) == (1, True)
    assert "4 bytes at the end of" in done.err
    assert "are damaged; their files are kept" in done.err
    assert path.read_bytes() == content


def test_drain_leaves_a_spool_in_use_alone(polarproxy: Command, spool: Path, db: str) -> None:
    held = open_spool(spool, None)
    done = polarproxy("db", "spool", "drain", spool, "--db", db, "--force")
    held.close()
    assert (done.code, "another polarproxy uses the spool" in done.err) == (2, True)


def test_drain_gives_places_where_the_database_can(
    polarproxy: Command, tmp_path: Path, db: str, postgres: Server
) -> None:
    waiting = [
        replace(new_call(a_call(f"c{7 + number}", 0, (1, 2), (3,))), place=Place("s1", 0, number, waits=True))
        for number in (1, 0)
    ]
    fill(tmp_path / "spool", [*waiting])
    done = polarproxy("db", "spool", "drain", tmp_path / "spool", "--db", db, "--force")
    assert (done.code, "only PostgreSQL can give it one" in done.err) == (2, True)
    with postgres.temporary() as url:
        assert polarproxy("db", "spool", "drain", tmp_path / "spool", "--db", url, "--force").code == 0
        engine = open_database(url)
        assert [found.call.call_id for found in Repository(engine).calls("s1")] == ["c7", "c8"]
        engine.dispose()


def test_serve_refuses_the_spool_of_another_database(polarproxy: Command, spool: Path, tmp_path: Path) -> None:
    url = fresh(tmp_path / "other.db")
    done = polarproxy("serve", "--spool", spool, "--db", url, "--port", "0")
    assert (done.code, "holds records for sqlite:////elsewhere" in done.err) == (2, True)
