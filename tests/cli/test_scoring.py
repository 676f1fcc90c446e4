"""`export --reward`, the `[reward]` table of polarproxy.toml, and `--embedding`: what is judged, and what is left alone."""

import json
from pathlib import Path

import pytest

from polarproxy.cli.crediting import similarity
from polarproxy.credit.similarity import ngram_cosine
from polarproxy.errors import BadExport
from polarproxy.model import Reward, SessionStatus
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.cli.command import Command

SPEC = """
[[reward.components]]
name = "short"
judge = "length"
options = { free = 1, most = 5 }
"""


def rewards(name: str = "rows.jsonl") -> dict[str, float]:
    return {row["session_id"]: row["reward"] for row in map(json.loads, Path(name).read_text().splitlines())}


def close(db: str, *sessions: str) -> None:
    engine = open_database(db)
    for name in sessions:
        Repository(engine).set_status(name, SessionStatus.COMPLETED)
    engine.dispose()


@pytest.fixture
def unscored(db: str, tmp_path: Path) -> str:
    """A store without a reward."""
    from sqlalchemy import delete

    from polarproxy.store.schema import metadata

    engine = open_database(db)
    with engine.begin() as connection:
        for name in ("turn_rewards", "reward_components", "rewards"):
            if name in metadata.tables:
                connection.execute(delete(metadata.tables[name]))
    engine.dispose()
    return db


def test_a_file_judges_all_that_is_exported(polarproxy: Command, db: str) -> None:
    Path("spec.toml").write_text(SPEC)
    done = polarproxy("export", "--out", "rows.jsonl", "--reward", "spec.toml", "--db", db)
    assert (done.code, "2 sessions judged by spec" in done.err) == (0, True)
    assert rewards() == {"good": 0.75, "bad": 0.25}
    report = json.loads(Path("rows.jsonl.report.json").read_text())
    assert list(report["reward_version"]["specs"].values()) == [2]
    assert len(polarproxy("reward", "list", "good", "--db", db, "--json").json) == 2
    again = polarproxy("export", "--out", "rows.jsonl", "--reward", "spec.toml", "--db", db)
    assert "were judged" not in again.err


def test_only_what_is_exported_is_judged(polarproxy: Command, db: str) -> None:
    Path("spec.toml").write_text(SPEC)
    polarproxy("export", "--out", "rows.jsonl", "--reward", "spec.toml", "--where", "session=good", "--db", db)
    assert len(polarproxy("reward", "list", "bad", "--db", db, "--json").json) == 1


def test_the_settings_judge_what_is_closed_and_has_no_reward(polarproxy: Command, unscored: str) -> None:
    Path("polarproxy.toml").write_text(SPEC)
    close(unscored, "good")
    done = polarproxy("export", "--out", "rows.jsonl", "--db", unscored)
    assert "1 session judged" in done.err
    assert "1 session still open and not judged" in done.err
    assert rewards() == {"good": 0.75}
    polarproxy("reward", "set", "bad", "0.5", "--db", unscored)
    done = polarproxy("export", "--out", "rows.jsonl", "--db", unscored)
    assert "1 session with a reward of another origin" in done.err
    assert rewards() == {"good": 0.75, "bad": 0.5}


def test_without_credit_nothing_is_judged_unasked(polarproxy: Command, unscored: str) -> None:
    Path("polarproxy.toml").write_text(SPEC)
    close(unscored, "good", "bad")
    polarproxy("export", "--out", "rows.jsonl", "--advantage", "none", "--db", unscored)
    assert rewards() == {"good": None, "bad": None}


def test_a_judge_that_fails_stops_the_export(polarproxy: Command, db: str) -> None:
    Path("broken_judge.py").write_text("def judge(session, said):\n    raise ValueError('no idea')\n")
    Path("spec.toml").write_text('[[reward.components]]\nname = "x"\npython = "broken_judge:judge"\n')
    done = polarproxy("export", "--out", "rows.jsonl", "--reward", "spec.toml", "--db", db)
    assert done.code == 2
    assert "2 sessions could not be judged" in done.err
    assert "session bad: x: broken_judge:judge raised ValueError: no idea" in done.err
    assert not Path("rows.jsonl").exists()
    assert len(polarproxy("reward", "list", "good", "--db", db, "--json").json) == 1


def test_code_is_compared_by_an_embedding(polarproxy: Command, db: str) -> None:
    Path("made_up.py").write_text("def embed(text):\n    return [1.0, float(len(text))]\n")
    done = polarproxy(
        "export", "--out", "rows.jsonl", "--advantage", "gtpo", "--embedding", "made_up:embed", "--db", db
    )
    assert done.code == 0
    alike = similarity("made_up:embed")
    assert alike("ab", "cd") == pytest.approx(1.0)
    assert (alike.__module__, alike.__qualname__) == ("made_up", "embed")
    assert similarity(None) is ngram_cosine
    done = polarproxy("export", "--advantage", "gtpo", "--embedding", "made_up:embde", "--db", db)
    assert (done.code, "--embedding: 'made_up:embde' cannot be found" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('no model')", "raised RuntimeError: no model"),
        ("raise SystemExit", "raised SystemExit"),
        ("return [float('nan')]", "not finite"),
        ("return 'words'", "raised ValueError"),
        ("return [1.0] * len(text)", "raised ValueError"),
    ],
)
def test_an_embedding_that_fails_is_said(body: str, said: str) -> None:
    name = f"failing_{abs(hash(body))}"
    Path(f"{name}.py").write_text(f"def embed(text):\n    {body}\n")
    alike = similarity(f"{name}:embed")
    with pytest.raises(BadExport, match=said):
        alike("a", "bcd")


def test_a_reward_that_is_none_is_refused_with_its_session(polarproxy: Command, db: str) -> None:
    for value in ("nan", "inf", "-inf", "1e300"):
        done = polarproxy("reward", "set", "good", value, "--db", db)
        assert (done.code, "session good: reward is" in done.err) == (2, True)
    for bad in ("true", "1e999", "null", '"1"'):
        Path("scores.jsonl").write_text(f'{{"session_id": "good", "aggregate_reward_score": {bad}}}\n')
        done = polarproxy("reward", "import", "scores.jsonl", "--db", db)
        assert (done.code, "session 'good'" in done.out or "session good" in done.out) == (1, True), (bad, done)
    assert polarproxy("export", "--out", "rows.jsonl", "--db", db).code == 0
    engine = open_database(db)
    Repository(engine).add_reward("good", Reward(1e300))
    engine.dispose()
    done = polarproxy("export", "--out", "rows.jsonl", "--db", db)
    assert (done.code, "session good has the reward 1e+300, which is too large for grpo" in done.err) == (2, True)
