"""The key that signs session keys: a small file, made once, readable by its owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from polarproxy.errors import BadSettings
from polarproxy.store.database import sqlite_file

if TYPE_CHECKING:
    from polarproxy.settings import Settings

_BYTES = 32


def key_path(settings: Settings) -> Path:
    """Where the signing key lies; raises `BadSettings` when nobody said and the database is no file."""
    if settings.key_file is not None:
        return Path(settings.key_file)
    database = sqlite_file(settings.db)
    if database is None:
        raise BadSettings("key_file must be set for a database that is not a file, so that all proxies sign alike")
    return database.with_name(database.name + ".key")


def signing_key(settings: Settings) -> bytes:
    """Reads the signing key, or makes it."""
    path = key_path(settings)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_key(path)
    except OSError as error:
        raise BadSettings(f"the signing key cannot be written to {path}: {error.strerror}") from error
    key = secrets.token_hex(_BYTES).encode()
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    return key


def read_key(path: Path) -> bytes:
    """A signing key that was made earlier; raises `BadSettings` when there is none."""
    try:
        key = path.read_bytes().strip()
    except FileNotFoundError as error:
        raise BadSettings(
            f"there is no signing key at {path}: the first `polarproxy serve` makes it; --db or --key-file say whose it is"
        ) from error
    except OSError as error:
        raise BadSettings(f"the signing key {path} cannot be read: {error.strerror}") from error
    if len(key) < _BYTES:
        raise BadSettings(f"{path} is too short for a signing key; delete it to have a new one made")
    return key
