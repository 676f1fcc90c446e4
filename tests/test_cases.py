"""The table of cases: every test that it names exists, every case has one row, and no row is without its outcome."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/cases.md"
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_CASE = re.compile(r"(S?\d+′?)(?:, (?:S?\d+′?))*")
COLUMNS = 5


def rows() -> list[list[str]]:
    """The cells of each row, without the head of the table."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@cache
def defined_in(file: Path) -> frozenset[str]:
    """The names of the tests that a file defines."""
    tree = ast.parse(file.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return frozenset(node.name for node in functions)


def test_there_are_rows() -> None:
    assert len(rows()) >= 9


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0].replace(", ", "-"))
def test_a_row_names_tests_that_exist_and_an_outcome(row: list[str]) -> None:
    assert len(row) == COLUMNS, row
    assert _CASE.fullmatch(row[0]), row[0]
    named = _TEST.findall(row[3])
    assert named, f"case {row[0]} names no test"
    missing = [name for file, name in named if not (ROOT / file).exists() or name not in defined_in(ROOT / file)]
    assert missing == []
    assert row[4]


def test_every_test_that_the_page_names_exists() -> None:
    named = _TEST.findall(PAGE.read_text())
    assert [each for each in named if each[1] not in defined_in(ROOT / each[0])] == []


def test_a_case_has_one_row() -> None:
    cases = [case for row in rows() for case in row[0].split(", ")]
    assert sorted(set(cases)) == sorted(cases)
