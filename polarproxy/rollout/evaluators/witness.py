"""Runs tests and says how each one went, in a line that the code under test cannot write.

Run as `python3 -I witness.py unittest|pytest ARGUMENTS…` in the working copy; imports nothing of this package, because it is
copied into the runtime. The first line of its input is a nonce. Its output is one JSON line with that nonce; what the tests
print goes to the error output. Code under test that ends the process, prints a summary of its own or a line without the
nonce is no success: tests that are not in the line have not passed.
"""

from __future__ import annotations

import io
import json
import os
import sys
import unittest


class Results(unittest.TestResult):
    """How each test went, by its id."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        self.outcomes[test.id()] = "pass"

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        self._failed(test, err)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        self._failed(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: object, err: object) -> None:  # noqa: N802
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.outcomes[test.id()] = "skip"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.outcomes[test.id()] = "fail"

    def _failed(self, test: unittest.TestCase, error: object) -> None:
        self.outcomes[test.id()] = "fail"
        sys.stderr.write(f"FAIL {test.id()}\n{self._exc_info_to_string(error, test)}\n")  # type: ignore[attr-defined]


def run_unittest(arguments: list[str], outcomes: dict[str, str]) -> None:
    """By names of modules, classes or methods; by discovery without any."""
    loader, results = unittest.TestLoader(), Results()
    results.outcomes = outcomes
    suite = loader.loadTestsFromNames(arguments) if arguments else loader.discover(".")
    suite.run(results)


def run_pytest(arguments: list[str], outcomes: dict[str, str]) -> None:
    """With pytest's own arguments; a file that cannot be collected is a test that failed."""
    import pytest

    class Plugin:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            before = outcomes.get(report.nodeid, "pass")
            word = {"failed": "fail", "skipped": "skip"}.get(report.outcome, before)
            outcomes[report.nodeid] = "fail" if before == "fail" else word

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                outcomes[report.nodeid] = "fail"

    pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[Plugin()])


def main(arguments: list[str]) -> None:
    """Runs the tests and writes the line."""
    nonce = sys.stdin.readline().strip()
    sys.stdin = io.StringIO()
    told = os.dup(1)  # not inherited by what the tests start
    os.dup2(2, 1)
    # Behind everything else: no file of the working copy takes the place of a module of Python.
    sys.path.append(os.getcwd())  # noqa: PTH109
    outcomes: dict[str, str] = {}
    try:
        {"unittest": run_unittest, "pytest": run_pytest}[arguments[0]](arguments[1:], outcomes)
    # Whatever the code under test raises, the wish to end the program among it: what was found until then counts.
    except BaseException as error:  # noqa: BLE001
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    os.write(told, (json.dumps({"nonce": nonce, "tests": outcomes}) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads of the code under test do not keep it from ending.
    sys.stderr.flush()
    os._exit(0)
