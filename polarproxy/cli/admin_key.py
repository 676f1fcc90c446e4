"""`polarproxy admin-key`: what opens the control routes, for the one who may read the signing key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polarproxy.cli.config import load
from polarproxy.cli.opening import Db
from polarproxy.cli.secrets import key_path, read_key
from polarproxy.proxy.keys import Signer


def admin_key(
    db: Db = None,
    key_file: Annotated[str | None, typer.Option(help="File with the key that signs session keys.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings file; default: ./polarproxy.toml if there is one.")
    ] = None,
) -> None:
    """Print the admin key of the proxy that records to this database; `polarproxy serve` must have run once.

    Example: curl -H "Authorization: Bearer $(polarproxy admin-key)" http://127.0.0.1:8700/api/stats
    """
    settings = load({"db": db, "key_file": key_file}, config)
    typer.echo(settings.admin_key or Signer(read_key(key_path(settings))).admin_key)
