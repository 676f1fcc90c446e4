"""Finding recipes, and filling them in: strictly, and a user's own before ours."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import BadSettings, InvalidValue
from polarproxy.rollout.filling import PLACEHOLDERS, Values, uses
from polarproxy.rollout.recipes import find_harnesses, harnesses_folder, named

HEAD = 'format = 1\nname = "{name}"\nversion = "1"\n[start]\n'
TASK = 'command = ["run", "{instruction}"]\n'
VALUES = {
    "instruction": "do it",
    "base_url": "http://127.0.0.1:8700",
    "api_key": "sk-polar-s-1",
    "model": "org/model-1",
    "session_id": "s-1",
    "context": 1000,
    "compact_at": 800,
    "output": 100,
    "python": "/usr/bin/python3",
    "folder": "/f",
    "home": "/h",
    "work": "/w",
}


def values(**changed: object) -> Values:
    return Values(**(VALUES | changed))  # type: ignore[arg-type]


def put(folder: Path, path: str, text: str, name: str = "mine") -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEAD.replace("{name}", name) + text)
    return file


def test_a_recipe_of_the_user_s_takes_the_place_of_ours(tmp_path: Path) -> None:
    own = put(tmp_path, "codex.toml", TASK, "codex")
    other = put(tmp_path, "mine/recipe.toml", TASK)
    known = find_harnesses(tmp_path)
    assert known["codex"].file == own
    assert known["mine"].folder == other.parent
    assert known["aider"] == find_harnesses()["aider"]
    assert list(known) == sorted(known)
    assert known["codex"].recipe.install is None
    assert find_harnesses()["codex"].recipe.install is not None


def test_a_name_that_nobody_has_is_told_the_nearest() -> None:
    with pytest.raises(BadSettings, match=r"'codec'; did you mean 'codex'\?"):
        named(find_harnesses(), "codec")


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="is no folder of recipes"):
        find_harnesses(tmp_path / "none")
    assert find_harnesses(tmp_path) == find_harnesses()


@pytest.mark.parametrize(
    ("path", "name", "text", "what"),
    [
        ("mine.toml", "other", TASK, "its name must be the file's, 'mine'"),
        ("mine.toml", "mine", 'command = ["run"]\n', "never see its task"),
        ("mine.toml", "mine", 'command = ["{instructions}"]\n', r"command\[0\] has {instructions}"),
        ("mine.toml", "mine", TASK + 'environment = {URL = "{url}"}', "environment.URL has {url}"),
        ("mine.toml", "mine", TASK + '[start.files]\n"a.json" = "{modle}"', "files.a.json has {modle}"),
        ("mine.toml", "mine", TASK + 'resume = ["{prompt}"]', r"resume\[0\] has {prompt}"),
        ("mine.toml", "mine", TASK + "x = = 1", "is not a recipe: Invalid value"),
        ("mine.toml", "mine", TASK + "x = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("mine.toml", "mine", TASK + 'enviroment = {A = "x"}', r"at `\$\.start`; did you mean `environment`\?"),
        ("mine.toml", "mine", TASK + "stdin = 1", r"Expected `str`, got `int` - at `\$\.start\.stdin`"),
        ("mine.toml", "mine", 'resume = ["{instruction}"]', "missing required field `command`"),
        ("mine.toml", "mine", "command = []", "`command` is empty"),
        ("mine.toml", "mine", TASK + 'environment = {"A=B" = "x"}', "'A=B', which no environment can hold"),
        ("mine.toml", "mine", 'command = ["{instruction}\\u0000"]', "no command line can hold"),
        ("mine.toml", "mine", TASK + '[start.files]\n"." = "x"', "inside the harness's home, not '.'"),
        ("mine.toml", "mine", TASK + '[end]\nanswer = "last"', "it is one of last_line, none, stdout"),
        ("mine.toml", "mine", TASK + '[install]\nprograms = {"../x" = "x"}', "names commands, and '../x' is none"),
        ("mine.toml", "mine", TASK + '[install]\nnpm = ["x"]', "packages at exact versions"),
    ],
)
def test_what_could_not_be_run_is_refused_when_read(tmp_path: Path, path: str, name: str, text: str, what: str) -> None:
    put(tmp_path, path, text, name)
    with pytest.raises(BadSettings, match=what):
        find_harnesses(tmp_path)


def test_two_recipes_of_one_name_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "mine.toml", TASK)
    put(tmp_path, "mine/recipe.toml", TASK)
    with pytest.raises(BadSettings, match="are both for the harness 'mine'"):
        find_harnesses(tmp_path)


def test_placeholders_are_filled_in_and_other_braces_stay() -> None:
    text = '{"a": {"{model}": {context}}, "b": ${HOME}, "c": {}} {{instruction}} {instruction}'
    assert values().fill(text) == ('{"a": {"org/model-1": 1000}, "b": ${HOME}, "c": {}} {instruction} do it')


@given(st.text())
def test_what_is_filled_in_is_not_filled_in_again(instruction: str) -> None:
    assert values(instruction=instruction).fill("<{instruction}>") == f"<{instruction}>"
    assert values(instruction="{api_key}").fill("{instruction}") == "{api_key}"


@given(st.text(st.characters(codec="ascii"), max_size=40))
def test_a_value_is_the_same_in_json_and_toml_or_refused(text: str) -> None:
    try:
        filled = values(model=text).fill('{"model": "{model}"}')
    except InvalidValue:
        assert json.dumps(text) != f'"{text}"' or "\x7f" in text
        return
    assert json.loads(filled) == {"model": text}
    assert tomllib.loads(values(model=text).fill('model = "{model}"')) == {"model": text}


@pytest.mark.parametrize("name", ["base_url", "api_key", "model", "session_id"])
def test_a_value_that_would_break_a_configuration_file_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match=name):
        values(**{name: 'a", "evil": "'})


@pytest.mark.parametrize("name", find_harnesses())
def test_the_files_of_our_recipes_are_what_they_say(name: str) -> None:
    recipe = find_harnesses()[name].recipe
    assert recipe.about
    assert recipe.start is not None
    assert recipe.check is not None
    for path, text in recipe.start.files.items():
        filled = values().fill(text)
        assert (json.loads if path.endswith(".json") else tomllib.loads)(filled)
    everything = (recipe.start.command, tuple(recipe.start.environment.values()), tuple(recipe.start.files.values()))
    told = " ".join(part for parts in everything for part in parts)
    assert "{base_url}" in told
    assert "{api_key}" in told
    assert "{model}" in told
    assert uses(recipe, "base_url")


def test_our_recipes_pin_every_package() -> None:
    for harness in find_harnesses().values():
        wanted = harness.recipe.install
        if wanted is not None and wanted.requirements is not None:
            lines = (harness.folder / wanted.requirements).read_text().splitlines()
            pins = [line for line in lines if line and not line.startswith("#")]
            assert pins
            assert [line for line in pins if "==" not in line] == []
            assert f"=={harness.recipe.version}" in "\n".join(pins)


def test_the_guide_names_every_placeholder() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "add-a-harness.md").read_text()
    assert [name for name in PLACEHOLDERS if f"`{{{name}}}`" not in guide] == []


def test_recipes_lie_where_they_are_found() -> None:
    assert all(harness.file.is_relative_to(harnesses_folder()) for harness in find_harnesses().values())
