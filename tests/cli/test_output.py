"""Tables: ids, dates and numbers stay whole; on a narrow terminal columns give way; without a terminal a row is a line."""

import errno
import io
import json
import os
import sys

import pytest

from polarproxy.cli.main import run
from polarproxy.cli.output import print_table
from tests.cli.command import Command

CALL = "c0123456789abcdefghijklmn"
WORDS = "something that was said " * 20


def printed(capsys: pytest.CaptureFixture[str], rows: list[tuple[object, ...]], *spare: str) -> list[str]:
    print_table("a table", ("call", "size", "note"), rows, spare=spare)
    return capsys.readouterr().out.splitlines()


def test_without_a_terminal_one_row_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    lines = printed(capsys, [(CALL, 1, WORDS), (CALL, 2, None)], "note")
    assert len(lines) == 1 + 3 + 2 + 1
    assert WORDS.strip() in lines[4]


def test_what_people_copy_is_never_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = "\n".join(printed(capsys, [(CALL, 123456789, WORDS)]))
    assert CALL in text
    assert "123456789" in text


def test_columns_give_way_in_order(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "38")
    lines = printed(capsys, [(CALL, 123456, "short")], "note", "size")
    assert max(map(len, lines[:-1])) <= 38
    assert "123456" in lines[4]
    assert "short" not in lines[4]
    assert lines[-1] == "too narrow for: note; --json shows all"


def test_an_empty_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "note" in "\n".join(printed(capsys, [], "note"))


@pytest.mark.parametrize(
    "arguments",
    [("sessions", "list"), ("sessions", "show", "good"), ("calls", "list"), ("trajectories", "show", "good")],
    ids=" ".join,
)
def test_listings_fit_on_80_columns(
    polarproxy: Command, db: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = polarproxy(*arguments, "--db", db)
    tables = [line for line in done.out.splitlines() if line.startswith(("│", "┃"))]
    assert tables
    assert max(map(len, tables)) <= 80


def ran(monkeypatch: pytest.MonkeyPatch, out: io.TextIOWrapper, *arguments: str) -> int | str | None:
    """The exit code of a command that prints there."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["polarproxy", *arguments])
        patch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as ended:
            run()
    return ended.value.code


def test_an_encoding_that_lacks_a_character_costs_only_that(
    polarproxy: Command, monkeypatch: pytest.MonkeyPatch, db: str
) -> None:
    assert polarproxy("reward", "set", "good", "1", "--component", "größe=1", "--db", db).code == 0
    table, document = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    assert ran(monkeypatch, table, "reward", "list", "good", "--db", db) == 0
    assert ran(monkeypatch, document, "reward", "list", "good", "--db", db, "--json") == 0
    for out in (table, document):
        out.seek(0)
    assert rb"gr\xf6\xdfe 1" in table.buffer.read()
    assert json.loads(document.buffer.read())[-1]["reward"]["components"][0]["name"] == "größe"


class Full(io.BytesIO):
    """A file on a disk without room."""

    def write(self, _data: object, /) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("way", [(), ("--json",)], ids=str)
def test_a_full_disk_is_said_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, db: str, way: tuple[str, ...]
) -> None:
    out = io.TextIOWrapper(Full(), encoding="utf-8", write_through=True)
    assert ran(monkeypatch, out, "sessions", "list", "--db", db, *way) == 1
    assert capsys.readouterr().err == "error: what was to be printed or written: No space left on device\n"
