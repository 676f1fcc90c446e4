"""Settings come from flags, the environment and a file, in this order; a key nobody knows is an error that helps."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from polarproxy.cli.config import load
from polarproxy.cli.secrets import key_path, signing_key
from polarproxy.errors import BadSettings
from polarproxy.settings import Settings
from tests.cli.command import Command


def toml(text: str, name: str = "polarproxy.toml") -> Path:
    file = Path(name)
    file.write_text(text)
    return file


def test_without_anything_the_defaults_hold() -> None:
    assert load({}, None, {}) == Settings()


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    toml('upstream = "http://file"\nport = 1\ndb = "sqlite:///file.db"')
    environment = {"POLARPROXY_UPSTREAM": "http://env", "POLARPROXY_PORT": "2"}
    settings = load({"upstream": "http://flag", "port": None}, None, environment)
    assert (settings.upstream, settings.port, settings.db) == ("http://flag", 2, "sqlite:///file.db")


def test_a_file_may_list_the_upstreams() -> None:
    assert load({}, toml('upstream = ["http://a", "http://b"]'), {}).upstreams == ("http://a", "http://b")


def test_a_file_that_is_named_is_read_instead_of_the_one_that_lies_there() -> None:
    toml("port = 1")
    assert load({}, toml("queue_size = 7", "other.toml"), {}) == Settings(queue_size=7)


def test_text_is_read_as_the_number_that_it_spells() -> None:
    environment = {"POLARPROXY_PORT": "0", "POLARPROXY_READ_TIMEOUT": "1.5", "POLARPROXY_POLICY_VERSION": "3"}
    assert load({}, None, environment) == Settings(port=0, read_timeout=1.5, policy_version=3)


def test_other_programs_variables_are_none_of_ours() -> None:
    assert load({}, None, {"PATH": "/bin", "POLARPROXY": "x", "POLARPROXY_TEST_VLLM": "x"}) == Settings()


@pytest.mark.parametrize(("text", "nearest"), [('upstrem = "x"', "upstream"), ("ports = 1", "port")])
def test_an_unknown_key_of_the_file_names_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(BadSettings, match=rf"polarproxy\.toml: there is no setting .* did you mean '{nearest}"):
        load({}, toml(text), {})


def test_settings_stand_in_no_section() -> None:
    """To name the nearest setting would lead nobody on."""
    with pytest.raises(
        BadSettings, match=r"polarproxy\.toml: there is no section \[serve\]; settings stand at the top"
    ):
        load({}, toml('[serve]\nupstream = "http://x"'), {})


def test_an_unknown_variable_names_the_nearest() -> None:
    with pytest.raises(BadSettings, match=r"no setting 'POLARPROXY_UPSTREM'; did you mean 'POLARPROXY_UPSTREAM'"):
        load({}, None, {"POLARPROXY_UPSTREM": "x"})


@pytest.mark.parametrize(
    "values",
    [
        {"port": "many"},
        {"port": 70000},
        {"port": -1},
        {"upstream": "127.0.0.1:8000"},
        {"auth": "maybe"},
        {"engine": "triton"},
        {"read_timeout": 0},
        {"queue_size": -5},
        {"store_timeout": "nan?"},
        {"max_body_mb": 0},
    ],
    ids=str,
)
def test_a_value_that_cannot_be_used_is_an_error(values: dict[str, object]) -> None:
    with pytest.raises(BadSettings):
        load(values, None, {})


WRONG_IN_FILES = {
    'port = "many"': "polarproxy.toml: port must be a whole number, not 'many'",
    "port = 1.5": "polarproxy.toml: port must be a whole number, not 1.5",
    "port = 70000": "polarproxy.toml: port must lie in 0..65535, not 70000",
    'read_timeout = "long"': "polarproxy.toml: read_timeout must be a number, not 'long'",
    "websocket = 7": "polarproxy.toml: websocket must be true or false, not 7",
    "db = 1": "polarproxy.toml: db must be text, not 1",
    "spool = []": "polarproxy.toml: spool must be text, not []",
    'prompts = "x"': "polarproxy.toml: prompts must be one of template, exact, not 'x'",
    "upstream_key = 77": "polarproxy.toml: upstream_key must be text",
    'delegate_requests = "a"\ndelegate_responses = "b"': "a delegate runs rollouts: set rollouts to how many at once",
}
"""What is said of each; of what is wrong with several values together, no place."""


@pytest.mark.parametrize("text", WRONG_IN_FILES)
def test_a_value_of_a_file_is_refused_with_its_place(text: str) -> None:
    toml(text)
    with pytest.raises(BadSettings) as error:
        load({"health_interval": 1.0}, None, {"POLARPROXY_WORKERS": "2"})
    assert str(error.value) == WRONG_IN_FILES[text]


def test_a_value_is_refused_where_it_was_set_last() -> None:
    toml('port = "many"\nqueue_size = 0')
    with pytest.raises(BadSettings, match=r"^environment variable POLARPROXY_PORT must be a whole number, not 'x'$"):
        load({}, None, {"POLARPROXY_PORT": "x"})
    with pytest.raises(BadSettings, match=r"^environment variable POLARPROXY_QUEUE_SIZE: queue_size must be greater"):
        load({"port": 1}, None, {"POLARPROXY_QUEUE_SIZE": "-1"})
    with pytest.raises(BadSettings, match=r"^--queue-size: queue_size must be greater than 0, not -2$"):
        load({"port": 1, "queue_size": -2}, None, {"POLARPROXY_QUEUE_SIZE": "-1"})


@pytest.mark.parametrize(
    "content",
    [b"port = ", b"\xff\xfe", b"port = 1\nport = 2", b"port = " + b"[" * 5000],
    ids=["cut", "bytes", "twice", "deep"],
)
def test_a_file_that_is_not_toml_is_an_error(content: bytes) -> None:
    Path("bad.toml").write_bytes(content)
    with pytest.raises(BadSettings, match=r"bad\.toml is not TOML"):
        load({}, Path("bad.toml"), {})


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        load({}, Path("none.toml"), {})


@pytest.mark.parametrize("arguments", [("serve", "--config", "bad.toml"), ("serve", "--upstream", "nowhere")])
def test_the_command_line_says_so_in_a_sentence(polarproxy: Command, arguments: tuple[str, ...]) -> None:
    toml("prot = 1", "bad.toml")
    done = polarproxy(*arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.out == ""


def test_every_command_reads_the_database_from_the_settings(polarproxy: Command, db: str) -> None:
    toml(f'db = "{db}"')
    assert len(polarproxy("sessions", "list", "--json").json) == 2


def flag(name: str, value: object) -> tuple[object, ...]:
    spelled = name.replace("_", "-")
    if isinstance(value, bool):
        return (f"--{spelled}",) if value else (f"--no-{spelled}",)
    return f"--{spelled}", value


def test_every_setting_has_a_flag(polarproxy: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Settings(upstream_key="u", admin_key="a", key_file="k", spool="s", harnesses="h", rollouts=1)
    values = asdict(replace(places, delegate_requests="in", delegate_responses="out"))
    given: dict[str, object] = {}

    def note(flags: dict[str, object], _file: Path | None) -> Settings:
        given.update(flags)
        raise BadSettings("enough")

    monkeypatch.setattr("polarproxy.cli.serve.load", note)
    flags = [text for name, value in values.items() for text in flag(name, value)]
    assert polarproxy("serve", *flags).err == "error: enough\n"
    assert given == values


# The key that signs


def settings_in(folder: Path) -> Settings:
    return Settings(db=f"sqlite:///{folder}/polar.db")


def test_the_signing_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    made = signing_key(settings_in(tmp_path))
    assert signing_key(settings_in(tmp_path)) == made
    file = tmp_path / "polar.db.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(made) == 64
    (tmp_path / "other").mkdir()
    assert signing_key(settings_in(tmp_path / "other")) != made


def test_a_key_that_is_too_short_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "polar.db.key").write_text("short")
    with pytest.raises(BadSettings, match="too short"):
        signing_key(settings_in(tmp_path))


def test_a_key_that_cannot_be_written_or_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be written"):
        signing_key(Settings(key_file=str(tmp_path / "none" / "key")))
    with pytest.raises(BadSettings, match="cannot be read"):
        signing_key(Settings(key_file=str(tmp_path)))


def test_a_database_that_is_no_file_needs_a_key_file() -> None:
    with pytest.raises(BadSettings, match="key_file must be set"):
        key_path(Settings(db="postgresql://user@host/name"))
