"""The admin key is printed by a command of its own, and never by `serve`, whose output lands in logs."""

import shlex

import pytest

from polarproxy.cli.runner import running_proxy
from polarproxy.cli.secrets import signing_key
from polarproxy.cli.serve import _announce
from polarproxy.proxy.keys import Signer
from polarproxy.settings import Settings
from tests.cli.command import Command


def test_the_admin_key_of_a_database_is_printed(polarproxy: Command) -> None:
    expected = Signer(signing_key(Settings(db="sqlite:///made.db"))).admin_key
    for arguments in (("--db", "sqlite:///made.db"), ("--key-file", "made.db.key")):
        done = polarproxy("admin-key", *arguments)
        assert (done.code, done.out, done.err) == (0, f"{expected}\n", "")


def test_one_that_was_set_is_printed(polarproxy: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARPROXY_ADMIN_KEY", "open")
    assert polarproxy("admin-key").out == "open\n"


def test_without_a_signing_key_there_is_none_and_none_is_made(polarproxy: Command) -> None:
    for _ in range(2):
        done = polarproxy("admin-key", "--db", "sqlite:///none.db")
        assert (done.code, done.out) == (2, "")
        assert "there is no signing key at none.db.key" in done.err


@pytest.mark.parametrize("admin_key", [None, "open sesame"])
async def test_serving_names_the_command_and_not_the_key(
    polarproxy: Command, capsys: pytest.CaptureFixture[str], admin_key: str | None
) -> None:
    settings = Settings(port=0, auth="required", upstream="http://127.0.0.1:9", admin_key=admin_key)
    async with running_proxy(settings) as (base, parts):
        _announce(settings, base)
    out = capsys.readouterr().out
    assert parts.signer.admin_key not in out
    assert "control routes take the admin key" in out
    if admin_key is None:
        _, *arguments = shlex.split(out.split("prints: ")[1].splitlines()[0])
        assert polarproxy(*arguments).out == f"{parts.signer.admin_key}\n"
