"""What became of exact prompts is told wherever calls, sessions and exports are shown."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from polarproxy.model import Continued, FallbackReason, Prompting, PromptOutcome
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.cli.command import Command
from tests.database import fresh
from tests.store.samples import a_call, new_call

EXACT = Prompting(PromptOutcome.EXACT, Continued("c0", 0, 5))
RENDERED = Prompting(PromptOutcome.FALLBACK, Continued("c1", 0, 9), FallbackReason.TOO_LONG.value, "by 7 tokens")
PROMPTS = (Prompting(PromptOutcome.FIRST), EXACT, RENDERED, None)


@pytest.fixture
def db(tmp_path: Path) -> str:
    url = fresh(tmp_path / "polar.db")
    engine = open_database(url)
    writer = Writer(engine)
    for place, prompting in enumerate(PROMPTS):
        call = a_call(f"c{place}", place, [1, 2, 3, *range(50, 50 + place)], (7, 8), prompting=prompting)
        writer.submit(new_call(call)).result(20)
        writer.submit(Fact(call.call_id, datetime.now(UTC), DELIVERED, "yes")).result(20)
    writer.close()
    engine.dispose()
    return url


def test_of_a_session(polarproxy: Command, db: str) -> None:
    said = polarproxy("trajectories", "show", "s1", "--db", db).out.splitlines()[-1]
    assert said.startswith(
        "prompts: 1 exact, 1 with nothing to go on from, 1 rendered by the engine (too_long); 2 sampled"
    )
    told = polarproxy("trajectories", "show", "s1", "--db", db, "--json").json["exact_prompts"]
    assert told == {"first": 1, "exact": 1, "faults": 0, "fallbacks": {"too_long": 1}, "saved_tokens": 2}


def test_of_a_call(polarproxy: Command, db: str) -> None:
    shown = [polarproxy("calls", "show", f"c{place}", "--db", db).out for place in range(4)]
    assert "5 recorded tokens, up to choice 0 of c0" in shown[1]
    assert f"{FallbackReason.TOO_LONG.sentence} (by 7 tokens)" in shown[2]
    assert ["exact prompt" in out for out in shown] == [True, True, True, False]
    told = polarproxy("calls", "show", "c2", "--db", db, "--json").json["prompting"]
    assert told == {
        "outcome": "fallback",
        "continued": {"call_id": "c1", "choice": 0, "length": 9},
        "reason": "too_long",
        "detail": "by 7 tokens",
    }


def test_of_an_export(polarproxy: Command, db: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    done = polarproxy("export", "--db", db, "--out", out, "--advantage", "none", "--no-strict")
    assert "1, 2 sampled tokens kept as they were" in done.out
    assert "not exact, calls: too_long" in done.out
    assert (
        json.loads((tmp_path / "rows.jsonl.report.json").read_text())["exact_prompts"]["sessions"]["s1"]["exact"] == 1
    )
