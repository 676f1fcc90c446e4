"""One frozen settings type for the proxy. Read from TOML, environment and flags by `cli/` only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polarproxy.errors import BadSettings

AuthMode = Literal["auto", "off", "required"]
EngineName = Literal["auto", "vllm", "llamacpp", "plain"]

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one proxy process runs. Field names are the keys of `polarproxy.toml` and, in capitals after
    `POLARPROXY_`, the names of the environment variables."""

    upstream: str = "http://127.0.0.1:8000"
    """Base URL of the inference engine, without `/v1`."""
    host: str = "127.0.0.1"
    port: int = 8700
    """0 takes any free port."""
    db: str = "sqlite:///polar.db"
    engine: EngineName = "auto"
    """Which engine answers upstream; `auto` asks it at start-up."""
    upstream_key: str | None = None
    """API key sent to the engine. None: the client's own Authorization header is passed on, unless it is a session key."""
    auth: AuthMode = "auto"
    """`required` serves signed session keys only; `auto` is `required` as soon as `host` is not a loopback address."""
    admin_key: str | None = None
    """Key of the control routes. None: one is derived from the signing key, and asked for when auth is required."""
    key_file: str | None = None
    """File with the signing key of session keys. None: `<database>.key` beside a SQLite database."""
    policy_version: int = 0
    """Version of the weights that sample when the proxy starts; `POST /api/policy` changes it."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection to the engine."""
    read_timeout: float = 600.0
    """Seconds that the engine may be silent."""
    store_timeout: float = 30.0
    """Seconds to wait for a call to be durably stored before the client is told to come back."""
    queue_size: int = 4096
    """Calls that may wait to be stored before new ones are refused with 503."""
    max_body_mb: int = 64
    """Largest request body, in MiB."""

    def __post_init__(self) -> None:
        if not self.upstream.startswith(("http://", "https://")):
            raise BadSettings(f"upstream must be an http:// or https:// URL, not {self.upstream!r}")
        if not 0 <= self.port <= 65535:
            raise BadSettings(f"port must lie in 0..65535, not {self.port}")
        for name in ("connect_timeout", "read_timeout", "store_timeout", "queue_size", "max_body_mb"):
            if getattr(self, name) <= 0:
                raise BadSettings(f"{name} must be greater than 0, not {getattr(self, name)}")

    @property
    def auth_required(self) -> bool:
        """Whether only signed session keys are served."""
        return self.auth == "required" or (self.auth == "auto" and self.host not in LOOPBACK_HOSTS)
