"""How many tests passed, read from what test runners print."""

from __future__ import annotations

import re

_SUMMARY = re.compile(r"\b(\d+) (passed|failed|failures?|errors?)\b")
"""pytest, jest, vitest and cargo say so, in one line at the end."""
_UNITTEST = re.compile(r"^Ran (\d+) tests? in .*?^(OK|FAILED)(?: \((.*?)\))?", re.DOTALL | re.MULTILINE)
_UNITTEST_BAD = re.compile(r"(?:failures|errors)=(\d+)")
_GO = re.compile(r"^\s*--- (PASS|FAIL):", re.MULTILINE)


def count_tests(output: str) -> tuple[int, int] | None:
    """How many tests passed and failed, errors among them, by the last summary in the output. None: there is none."""
    for line in reversed(output.splitlines()):
        found = [(int(count), word) for count, word in _SUMMARY.findall(line)]
        if found:
            passed = sum(count for count, word in found if word == "passed")
            return passed, sum(count for count, word in found) - passed
    runs = list(_UNITTEST.finditer(output))
    if runs:
        whole = runs[-1]
        bad = sum(map(int, _UNITTEST_BAD.findall(whole[3] or "")))
        return int(whole[1]) - bad, bad
    verdicts = _GO.findall(output)
    return (verdicts.count("PASS"), verdicts.count("FAIL")) if verdicts else None


def passed_share(output: str) -> float | None:
    """Passed / all tests, from 0 to 1. None: the output speaks of no test."""
    counts = count_tests(output)
    return None if counts is None or not sum(counts) else counts[0] / sum(counts)
