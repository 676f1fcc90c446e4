"""A spool as a folder: what it holds, what it knows of it, and what a crash leaves."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from polarproxy.errors import BadSpool
from polarproxy.store import spool as spool_module
from polarproxy.store.items import Fact, Item
from polarproxy.store.places import Place
from polarproxy.store.spool import Spool
from polarproxy.store.spool_files import spool_files, spool_folder, spool_folders
from polarproxy.store.spool_opening import open_spool, warn_of_strays
from polarproxy.store.spool_records import encode, subject
from polarproxy.store.spool_report import report
from tests.store.samples import NOW, a_call, a_session, new_call

DATABASE = "sqlite:////db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spool(folder: Path) -> Iterator[Spool]:
    opened = open_spool(folder, DATABASE)
    yield opened
    opened.close()


def append(spool: Spool, *items: Item) -> None:
    spool.append([(encode(item), subject(item)) for item in items])


def call(number: int, session: str = "s1") -> Item:
    return new_call(a_call(f"c{number}", number, session_id=session))


def items(spool: Spool) -> list[Item]:
    return [spool.read(held) for held in spool.oldest(1000)]


def reopened(folder: Path) -> list[Item]:
    again = open_spool(folder, DATABASE)
    found = items(again)
    again.close()
    return found


CALLS = [call(number) for number in range(4)]


def test_it_gives_what_it_took_in_order_and_after_a_restart(spool: Spool, folder: Path) -> None:
    made, fact = a_session("s2", task_id="t"), Fact("c0", NOW, "delivered", "yes")
    append(spool, *CALLS[:2])
    append(spool, made, fact)
    assert items(spool) == [*CALLS[:2], made, fact]
    assert len(spool) == 4
    assert spool.size > 0
    spool.close()
    assert reopened(folder) == [*CALLS[:2], made, fact]


def test_it_knows_what_waits(spool: Spool) -> None:
    append(spool, call(3), call(7, "s2"), a_session("s3"), Fact("c9", NOW, "delivered", "yes"))
    assert [spool.holds_session(name) for name in ("s1", "s2", "s3", "s4")] == [True, True, True, False]
    assert [spool.holds_call(name) for name in ("c3", "c7", "c9", "c1")] == [True, True, True, False]
    assert [spool.next_ordinal(name) for name in ("s1", "s2", "s3", "s4")] == [4, 8, 0, 0]
    spool.done(spool.oldest(2))
    assert [spool.holds_session(name) for name in ("s1", "s2", "s3")] == [False, False, True]
    assert spool.next_ordinal("s1") == 0
    assert not spool.holds_call("c3")


def test_a_file_goes_when_all_of_it_is_stored(spool: Spool, folder: Path) -> None:
    append(spool, *CALLS)
    spool.done(spool.oldest(3))
    assert len(spool_files(folder)) == 1
    spool.done(spool.oldest(1))
    assert spool_files(folder) == []
    assert (len(spool), spool.size) == (0, 0)
    append(spool, CALLS[0])
    assert items(spool) == CALLS[:1]


def test_large_files_are_followed_by_new_ones(spool: Spool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "FILE_BYTES", 1)
    for one in CALLS:
        append(spool, one)
    assert len(spool_files(folder)) == len(CALLS)
    first, *_ = spool.oldest(1)
    spool.done([first])
    assert len(spool_files(folder)) == len(CALLS) - 1
    assert items(spool) == CALLS[1:]
    spool.close()
    assert reopened(folder) == CALLS[1:]


def test_numbers_of_files_are_not_used_again(spool: Spool, folder: Path) -> None:
    append(spool, CALLS[0])
    spool.close()
    again = open_spool(folder, DATABASE)
    append(again, CALLS[1])
    assert [path.name for path in spool_files(folder)] == ["0000000001.spool", "0000000002.spool"]
    again.close()
    assert reopened(folder) == CALLS[:2]


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_end_is_cut_off_counted_and_kept(
    spool: Spool, folder: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    append(spool, *CALLS[:2])
    spool.close()
    (path,) = spool_files(folder)
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    again = open_spool(folder, DATABASE)
    assert items(again) == CALLS[:1]
    assert again.torn > 0
    assert "no whole record; they are cut off" in caplog.text
    assert any("no whole records" in text for text in again.warnings)
    (kept,) = folder.glob("*.torn")
    assert path.read_bytes() + kept.read_bytes() == content[:-cut]
    again.close()
    again = open_spool(folder, DATABASE)
    assert (again.torn, items(again)) == (0, CALLS[:1])
    again.close()


@pytest.mark.parametrize("content", [b"", b"polar", b"polarspool\x00\x00", b"polarspool\x00\x00\x05\x00"])
def test_a_file_that_was_only_begun_is_nothing(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "0000000003.spool").write_bytes(content)
    assert reopened(folder) == []
    assert spool_files(folder) == []


def test_damage_in_the_middle_keeps_its_file_and_the_records_after_it(
    spool: Spool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(spool, *CALLS[:2])
    monkeypatch.setattr(spool_module, "FILE_BYTES", 1)
    append(spool, CALLS[2])
    spool.close()
    first, _ = spool_files(folder)
    first.write_bytes(first.read_bytes()[:-1] + b"X")
    again = open_spool(folder, DATABASE)
    assert items(again) == [CALLS[0], CALLS[2]]
    assert (again.torn, again.damaged > 0) == (0, True)
    again.done(again.oldest(2))
    assert spool_files(folder) == [first]
    again.close()


def test_what_the_database_refuses_stays_and_is_told(spool: Spool, folder: Path) -> None:
    append(spool, *CALLS[:2])
    spool.refuse(spool.oldest(1)[0], "it contradicts")
    assert items(spool) == CALLS[1:2]
    spool.done(spool.oldest(1))
    assert (len(spool), len(spool.refused)) == (0, 1)
    assert not spool.holds_session("s1")
    assert any("refuses 1 record " in text for text in spool.warnings)
    spool.close()
    # The next process tries again, and nothing else of the file.
    assert reopened(folder) == CALLS[:1]


def test_what_is_refused_again_stays_once(spool: Spool, folder: Path) -> None:
    append(spool, *CALLS[:3])
    for _ in range(2):
        spool.refuse(spool.oldest(1)[0], "it contradicts")
    append(spool, CALLS[3])
    spool.done(spool.oldest(2))
    spool.close()
    for _ in range(2):
        assert len(spool_files(folder)) == 2
        again = open_spool(folder, DATABASE)
        assert items(again) == CALLS[:2]
        for held in again.oldest(2):
            again.refuse(held, "it contradicts")
        again.close()


def test_what_is_refused_keeps_its_file_when_it_can_have_none_of_its_own(
    spool: Spool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(spool, *CALLS[:2])
    with monkeypatch.context() as patched:
        patched.setattr("polarproxy.store.spool_files.AppendFile._write", full)
        spool.refuse(spool.oldest(1)[0], "it contradicts")
    spool.done(spool.oldest(1))
    append(spool, CALLS[2])
    spool.close()
    assert reopened(folder) == CALLS[:3]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_damage_in_the_last_file_costs_one_record(spool: Spool, folder: Path, bad: int) -> None:
    append(spool, *CALLS)
    offset = spool.oldest(bad + 1)[bad].offset
    spool.close()
    (path,) = spool_files(folder)
    content = bytearray(path.read_bytes())
    content[offset + 20] ^= 1
    path.write_bytes(content)
    again = open_spool(folder, DATABASE)
    assert items(again) == CALLS[:bad] + CALLS[bad + 1 :]
    assert (again.torn, again.damaged > 0) == (0, True)
    assert any("are damaged" in text for text in again.warnings)
    again.done(again.oldest(9))
    again.close()
    assert path.read_bytes() == content


def test_a_header_that_is_damaged_says_no_database(spool: Spool, folder: Path) -> None:
    append(spool, CALLS[0])
    spool.close()
    (path,) = spool_files(folder)
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadSpool, match="nobody knows which database"):
        open_spool(folder, DATABASE)
    again = open_spool(folder, None)
    assert items(again) == CALLS[:1]
    again.close()


def test_what_a_proxy_is_writing_is_no_damage(spool: Spool, folder: Path) -> None:
    append(spool, CALLS[0])
    (path,) = spool_files(folder)
    with path.open("ab") as opened:
        opened.write(b"\x40\x00\x00\x00begun")
    assert [(found.calls, found.unreadable_bytes) for found in report(folder)] == [(1, 0)]
    spool._lock.close()  # as when it is killed
    assert [(found.calls, found.unreadable_bytes) for found in report(folder)] == [(1, 9)]


def test_a_record_that_cannot_be_read_stays_and_is_told(spool: Spool, folder: Path) -> None:
    about = subject(CALLS[0])
    spool.append([(encode(CALLS[0]), about), (b"\xc1", about), (encode(CALLS[1]), about)])
    spool.close()
    again = open_spool(folder, DATABASE)
    assert items(again) == CALLS[:2]
    assert "cannot be read" in again.refused[0].why
    again.done(again.oldest(2))
    assert len(spool_files(folder)) == 1
    again.close()


def test_one_process_at_a_time(spool: Spool, folder: Path) -> None:
    with pytest.raises(BadSpool, match="another polarproxy uses the spool"):
        open_spool(folder, DATABASE)
    spool.close()
    open_spool(folder, DATABASE).close()


def test_records_of_another_database_are_left_alone(spool: Spool, folder: Path) -> None:
    append(spool, CALLS[0])
    spool.close()
    with pytest.raises(BadSpool, match=f"holds records for {DATABASE}, not for postgresql://db"):
        open_spool(folder, "postgresql://db")
    assert reopened(folder) == CALLS[:1]
    again = open_spool(folder, None)
    again.done(again.oldest(1))
    again.close()
    open_spool(folder, "postgresql://db").close()


@pytest.mark.parametrize("bad", ["file", "content"])
def test_what_cannot_be_a_spool(tmp_path: Path, bad: str) -> None:
    folder = tmp_path / "other"
    if bad == "file":
        folder.write_text("hello")
    else:
        folder.mkdir()
        (folder / "0000000001.spool").write_bytes(b"something else")
    with pytest.raises(BadSpool):
        open_spool(folder, DATABASE)


def test_places_that_wait_are_known_after_a_restart(spool: Spool, folder: Path) -> None:
    waiting = replace(new_call(a_call("c1", 0)), place=Place("s1", 0, 5, waits=True))
    append(spool, waiting, CALLS[2])
    assert spool.places() == [waiting.place]
    assert spool.next_ordinal("s1") == 3
    spool.close()
    again = open_spool(folder, DATABASE)
    assert again.places() == [Place("s1", 0, 5, waits=True)]
    again.close()


def test_workers_have_folders_of_their_own_and_strays_are_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert spool_folder(folder, None) == folder
    for number in (1, 2, 3):
        opened = open_spool(spool_folder(folder, number), DATABASE)
        append(opened, CALLS[number])
        opened.close()
    assert [path.name for path in spool_folders(folder)] == ["spool", "worker-1", "worker-2", "worker-3"]
    warn_of_strays(folder, (1, 2, 3))
    assert caplog.text == ""
    warn_of_strays(folder, (1, 2))
    assert f"polarproxy db spool drain {folder}/worker-3" in caplog.text
    assert [(one.name, one.calls) for one in report(folder)] == [
        (f"worker-{number}/0000000001.spool", 1) for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("name", ["1", "00000000001", "\u00b2" * 10, "-000000001", "copy of 0000000001"])
def test_a_file_that_was_given_another_name_is_no_other_ones_place(folder: Path, name: str) -> None:
    """Two names of one number would be read as one file; what is left alone without a word would be lost."""
    folder.mkdir()
    (folder / f"{name}.spool").write_bytes(b"")
    with pytest.raises(BadSpool, match="has a name that no file of a spool has"):
        open_spool(folder, None)
