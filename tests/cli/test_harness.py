"""`polarproxy harness`: what it lists, and a whole run of the two harnesses that need no package."""

import json
import subprocess
from pathlib import Path

from polarproxy.model import SessionStatus
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.cli.command import Command

OWN = """
format = 1
name = "{name}"
version = "9"
about = "Mine."
[start]
command = ["sh", "-c", "{instruction}"]
[check]
instruction = "{does}"
turns = [{{ text = "Done." }}]
"""


def own(folder: Path, name: str, does: str) -> str:
    text = OWN.replace("{name}", name).replace("{does}", does).replace("{{", "{").replace("}}", "}")
    (folder / f"{name}.toml").write_text(text)
    return str(folder)


def test_every_harness_is_listed(polarproxy: Command) -> None:
    listed = json.loads(polarproxy("harness", "list", "--json").out)
    names = [one["recipe"]["name"] for one in listed]
    assert names == sorted(names)
    assert {"claude-code", "codex", "shell"} <= set(names)
    assert all(name in polarproxy("harness", "list").out for name in names)


def test_one_is_shown_with_what_to_know_of_it(polarproxy: Command, tmp_path: Path) -> None:
    shown = polarproxy("harness", "show", "codex").out
    for words in (
        "codex 0.171.0",
        "@openai/codex@",
        "codex exec",
        "~/.codex/config.toml",
        "POLAR_KEY={api_key}",
        "compaction",
    ):
        assert words in shown
    mine = polarproxy("harness", "show", "codex", "--harnesses", own(tmp_path, "codex", "true"))
    assert "codex 9 Mine." in mine.out


def test_wrong_use_is_told(polarproxy: Command, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    for arguments, words in (
        (("show", "codec"), "did you mean 'codex'?"),
        (("check", "codec"), "did you mean 'codex'?"),
        (("list", "--harnesses", str(tmp_path / "none")), "is no folder of recipes"),
        (("run", "shell", "--task", "x", "--commit", "nothing"), "--commit is REPOSITORY@COMMIT"),
        (("run", "shell", "--task", "@/nonexistent/task"), "/nonexistent/task: No such file"),
        (("run", "shell", "--task", f"@{binary}"), "is not UTF-8"),
        (
            ("run", "shell", "--task", "true", "--patch", "no/such/folder/fix.patch"),
            "there is no folder no/such/folder",
        ),
        (("check", "shell", "--runtime", "vm"), "there is no runtime 'vm'"),
    ):
        ended = polarproxy("harness", *arguments)
        assert (ended.code, words in ended.err) == (2, True), ended
        assert "Traceback" not in ended.err


def test_a_check_prints_what_was_recorded(polarproxy: Command) -> None:
    ended = polarproxy("harness", "check", "shell", "--json")
    assert ended.code == 0, ended
    (told,) = json.loads(ended.out)
    assert (told["harness"], told["calls"], told["trained_tokens"], told["problems"]) == ("shell", {"main": 1}, 6, [])
    assert "✓ shell 1" in polarproxy("harness", "check", "shell").out


def test_a_check_that_fails_says_why(polarproxy: Command, tmp_path: Path) -> None:
    ended = polarproxy("harness", "check", "lazy", "--harnesses", own(tmp_path, "lazy", "echo nothing; exit 3"))
    assert ended.code == 1
    for words in (
        "✗ lazy 9",
        "exit code 3: nothing",
        "it left no out.txt",
        "0 calls were recorded, of 1",
        "stdout: nothing",
    ):
        assert words in ended.out, ended


def test_a_harness_that_cannot_be_had_says_why(polarproxy: Command, tmp_path: Path) -> None:
    folder = own(tmp_path, "far", "true")
    with (tmp_path / "far.toml").open("a") as recipe:
        recipe.write('[install]\nnpm = ["a@1"]\narch = { pdp11 = "x" }\n')
    ended = polarproxy("harness", "check", "far", "--harnesses", folder)
    assert (ended.code, "- far: not checked: far has no packages for" in ended.out) == (1, True), ended
    assert polarproxy("harness", "install", "far", "--harnesses", folder).code == 1


def test_a_run_works_on_a_copy_and_gives_its_patch(polarproxy: Command, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\n")
    patch, db = tmp_path / "fix.patch", f"sqlite:///{tmp_path / 'polar.db'}"
    task = tmp_path / "task"
    task.write_text("echo two >> a.txt; echo done")
    arguments = ("--task", f"@{task}", "--work", str(work), "--patch", str(patch), "--db", db)
    ended = polarproxy("harness", "run", "shell", *arguments, "--upstream", "http://127.0.0.1:9")
    assert (ended.code, ended.out) == (0, "done\n"), ended
    assert "completed: 0 calls" in ended.err
    assert "1 file changed" in ended.err
    assert (work / "a.txt").read_text() == "one\n"
    subprocess.run(["git", "apply", str(patch)], cwd=work, check=True)
    assert (work / "a.txt").read_text() == "one\ntwo\n"
    engine = open_database(db)
    repository = Repository(engine)
    (session,) = map(repository.session, repository.session_ids())
    engine.dispose()
    assert (session.harness, session.status) == ("shell", SessionStatus.COMPLETED)


def test_a_run_that_fails_has_exit_code_1(polarproxy: Command, tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 'polar.db'}"
    arguments = ("--upstream", "http://127.0.0.1:9", "--db", db)
    ended = polarproxy("harness", "run", "shell", "--task", "echo bad; exit 3", *arguments, "--json")
    told = json.loads(ended.out)
    assert (ended.code, told["status"], told["exit_code"]) == (1, "agent_error", 3)
    ended = polarproxy("harness", "run", "shell", "--task", "sleep 60", "--timeout", "1", *arguments)
    assert (ended.code, "timeout: 0 calls" in ended.err) == (1, True), ended
