"""A harness sees its task, its model and an empty home, and nothing of the user's."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from polarproxy.errors import BadSettings
from polarproxy.model import SessionStatus
from polarproxy.model.harness import End
from polarproxy.rollout.installing import Installed, install
from polarproxy.rollout.recipes import Harness, find_harnesses
from polarproxy.rollout.running import Access, run_harness
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Spec
from tests.rollout.runtimes.place import KINDS

SEEN = """
format = 1
name = "seen"
version = "1"
[start]
command = ["{python}", "{folder}/seen.py", "{instruction}"]
resume = ["{python}", "{folder}/seen.py", "resume", "{instruction}"]
stdin = "{instruction}!"
[start.environment]
KEY = "{api_key}"
[start.files]
".tool/config.json" = '{"url": "{base_url}", "context": {context}, "compact": {compact_at}}'
"""
PROGRAM = """
import json, os, sys
from pathlib import Path
home = Path.home()
files = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
print(json.dumps([sys.argv[1:], sys.stdin.read(), dict(os.environ), files, os.listdir()]))
"""
ACCESS = Access(session_id="s-1", api_key="sk-polar-s-1-x", model="m", context=1000)


@pytest.fixture
def seen(tmp_path: Path) -> Installed:
    folder = tmp_path / "recipes" / "seen"
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(SEEN)
    (folder / "seen.py").write_text(PROGRAM)
    return install(find_harnesses(folder.parent)["seen"], tmp_path / "cache")


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_of_the_user_reaches_it(
    seen: Installed, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "planted-credential"
    home = tmp_path / "user"
    for path in (".netrc", ".aws/credentials", ".tool/config.json", ".gitconfig", ".config/tool/auth.json"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(planted)
    monkeypatch.setenv("HOME", str(home))
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "KEY",
        "HTTP_PROXY",
        "XDG_CONFIG_HOME",
    ):
        monkeypatch.setenv(name, planted)
    spec = Spec(programs=seen.programs, proxy="http://127.0.0.1:8700")
    async with Runtimes().running(kind, spec) as runtime:
        outcome = await run_harness(seen, runtime, ACCESS, "dö it", Budget(60))
        resumed = await run_harness(seen, runtime, ACCESS, "more", Budget(60), resume=True)
    assert outcome.status is SessionStatus.COMPLETED, outcome
    assert planted not in outcome.ended.stdout
    arguments, stdin, environment, files, work = json.loads(outcome.answer)
    assert (arguments, stdin, work) == (["dö it"], "dö it!", [])
    assert set(environment) - {"LC_CTYPE", "PWD"} == {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "KEY"}
    assert environment["KEY"] == ACCESS.api_key
    assert list(files) == [".tool/config.json"]
    config = json.loads(files[".tool/config.json"])
    assert config == {"url": runtime.proxy, "context": 1000, "compact": 800}
    assert json.loads(resumed.answer)[0] == ["resume", "more"]


async def test_each_run_has_a_home_of_its_own(seen: Installed) -> None:
    runtimes, homes = Runtimes(), set()
    for _ in range(2):
        async with runtimes.running("local", Spec()) as runtime:
            homes.add(json.loads((await run_harness(seen, runtime, ACCESS, "x", Budget(60))).answer)[2]["HOME"])
    assert len(homes) == 2
    assert not any(os.path.exists(home) for home in homes)  # noqa: PTH110, ASYNC240


def shell(end: End) -> Installed:
    harness = find_harnesses()["shell"]
    changed = Harness(msgspec.structs.replace(harness.recipe, end=end), harness.file)
    return install(changed, Path("unused"))


@pytest.mark.parametrize(
    ("command", "end", "status", "problem", "answer"),
    [
        ("echo a; echo b", End(), "completed", "", "a\nb"),
        ("echo a; echo b", End(answer="last_line"), "completed", "", "b"),
        ("echo a", End(answer="none"), "completed", "", ""),
        ("echo a; echo why >&2; exit 3", End(), "agent_error", "exit code 3: why", "a"),
        ("exit 3", End(exit_codes=(3,)), "completed", "", ""),
        ("exit 0", End(exit_codes=(3,)), "agent_error", "exit code 0: ", ""),
        ("echo API Error >&2", End(failures=("API Error",)), "agent_error", "its output has 'API Error'", ""),
        ("kill -SEGV $$", End(), "agent_error", "exit code 139: ", ""),
        ("sleep 60", End(), "timeout", "it was still running after 1 s", ""),
    ],
)
async def test_its_end_is_read_by_its_recipe(command: str, end: End, status: str, problem: str, answer: str) -> None:
    budget = Budget(1.0 if "sleep" in command else 60.0)
    async with Runtimes().running("local", Spec()) as runtime:
        outcome = await run_harness(shell(end), runtime, ACCESS, command, budget)
    assert (outcome.status, outcome.problem, outcome.answer) == (SessionStatus(status), problem, answer)


async def test_a_recipe_without_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('format = 1\nname = "rules"\nversion = "1"\n')
    rules = install(find_harnesses(tmp_path)["rules"], tmp_path)
    async with Runtimes().running("local", Spec()) as runtime:
        with pytest.raises(BadSettings, match=r"no \[start\]"):
            await run_harness(rules, runtime, ACCESS, "x", Budget(1))
        with pytest.raises(BadSettings, match="resumed"):
            await run_harness(shell(End()), runtime, ACCESS, "x", Budget(1), resume=True)
