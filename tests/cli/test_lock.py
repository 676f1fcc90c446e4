"""One proxy a database file."""

from pathlib import Path

import pytest

from polarproxy.cli.lock import only_proxy
from polarproxy.errors import BadSettings
from polarproxy.settings import Settings


def test_a_second_proxy_is_kept_off_until_the_first_is_gone(tmp_path: Path) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'polar.db'}")
    with only_proxy(settings), pytest.raises(BadSettings, match="another polarproxy records to"), only_proxy(settings):
        raise AssertionError("two proxies on one file")
    with only_proxy(settings):
        assert (tmp_path / "polar.db.lock").exists()


def test_another_file_is_free(tmp_path: Path) -> None:
    with (
        only_proxy(Settings(db=f"sqlite:///{tmp_path / 'a.db'}")),
        only_proxy(Settings(db=f"sqlite:///{tmp_path / 'b.db'}")),
    ):
        assert len(list(tmp_path.iterdir())) == 2
