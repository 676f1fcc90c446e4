"""Running the command line in this process, through its real entry point."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from polarproxy.cli.main import run


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Command:
    """Call it with the arguments after `polarproxy`."""

    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> Done:
        self.patch.setattr(sys, "argv", ["polarproxy", *map(str, arguments)])
        self.capture.readouterr()
        code = 0
        try:
            run()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        out, err = self.capture.readouterr()
        assert "Traceback" not in out + err
        return Done(code, out, err)
