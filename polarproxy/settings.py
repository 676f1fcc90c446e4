"""One frozen settings type for the proxy. Read from TOML, environment and flags by `cli/` only."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal
from urllib.parse import urlsplit

from polarproxy.errors import BadSettings

AuthMode = Literal["auto", "off", "required"]
EngineName = Literal["auto", "vllm", "llamacpp", "plain"]
KeepBodies = Literal["full", "errors", "none"]
Prompts = Literal["template", "exact"]

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


MODEL_MAP_OFF = "off"
_POSITIVE = (
    "workers",
    "connect_timeout",
    "read_timeout",
    "health_interval",
    "store_timeout",
    "queue_size",
    "max_body_mb",
    "pause_limit",
)


def read_model_map(text: str) -> dict[str, str]:
    """The pairs of a model map; raises `BadSettings` for one that is not of the form `asked=served,…`."""
    if text.strip() in ("", MODEL_MAP_OFF):
        return {}
    pairs = [pair.partition("=") for pair in text.split(",")]
    for asked, equals, served in pairs:
        if not equals or not asked.strip() or not served.strip():
            raise BadSettings(f"model_map must be asked=served pairs with commas between them, or off; not {text!r}")
    return {asked.strip(): served.strip() for asked, _, served in pairs}


def read_upstream(text: str) -> str:
    """The base URL of an engine, without what only clients' base URLs end with; raises `BadSettings`."""
    return read_base_url(text, "upstream").removesuffix("/v1")


def read_base_url(text: str, name: str) -> str:
    """The URL of a server, without a slash at its end; raises `BadSettings`, which calls it by `name`."""
    base = text.strip().rstrip("/")
    try:
        parts = urlsplit(base)
        host, usable = parts.hostname, parts.port != 0
    except ValueError:
        host, usable = None, False
    if not usable or not base.startswith(("http://", "https://")):
        raise BadSettings(f"{name} must be an http:// or https:// URL, not {text.strip()!r}")
    if host is None:
        raise BadSettings(f"{name} names no host: {text.strip()!r}")
    if not _is_one_line(base) or " " in base or "?" in base or "#" in base:
        raise BadSettings(f"{name} must be a URL without spaces, query and fragment, not {text.strip()!r}")
    return base


def _is_one_line(text: str) -> bool:
    return text.isascii() and text.isprintable()


@dataclass(frozen=True, slots=True)
class Settings:
    """How one proxy process runs. Field names are the keys of `polarproxy.toml` and, in capitals after
    `POLARPROXY_`, the names of the environment variables."""

    upstream: str = "http://127.0.0.1:8000"
    """Base URL of the inference engine, without `/v1`; several with commas between them share the sessions."""
    host: str = "127.0.0.1"
    port: int = 8700
    """0 takes any free port."""
    workers: int = 1
    """Processes that serve the port together; more than one need a database that they can share, PostgreSQL."""
    db: str = "sqlite:///polar.db"
    engine: EngineName = "auto"
    """Which engine answers upstream; `auto` asks it at start-up."""
    upstream_key: str | None = None
    """API key sent to the engine. None: the client's own Authorization header is passed on, unless it is a session key."""
    auth: AuthMode = "auto"
    """`required` serves signed session keys only; `auto` is `required` as soon as `host` is not a loopback address, or there
    is a task service."""
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
    health_interval: float = 5.0
    """Seconds between two looks at the engines, when there are several."""
    store_timeout: float = 30.0
    """Seconds to wait for a call to be durably stored before the client is told to come back."""
    queue_size: int = 4096
    """Calls that may wait to be stored before new ones are refused with 503."""
    spool: str | None = None
    """Folder of this proxy's own that takes calls while the database is away. None: they are refused then."""
    max_body_mb: int = 64
    """Largest request body, in MiB, after decompression."""
    keep_bodies: KeepBodies = "full"
    """Which calls are stored with the request as the client sent it: all, those that did not complete, or none. Tokens are
    stored in any case."""
    model_map: str = ""
    """Which model serves a name: `asked=served` pairs with commas between them; `*=served` is for every other name that the
    engine does not know. Names that stand nowhere and that the engine does not know go to its first model; `off` sends
    every name on as it is."""
    keepalive: float = 15.0
    """Seconds of silence in a stream after which the client gets what its dialect has for a sign of life. 0: never."""
    rollouts: int = 0
    """Rollouts that the task service runs at once. 0: there is no task service here."""
    runtime: str = ""
    """Where its harnesses run, unless a task says otherwise. Empty: the best that works here."""
    delegate_requests: str | None = None
    """URL of the SQS queue from which rollouts are taken. None: they are submitted over HTTP only."""
    delegate_responses: str | None = None
    """URL of the SQS queue that gets the answers."""
    pause_limit: float = 600.0
    """Seconds that a request waits while generation is paused, before its client is told to come back."""
    prompts: Prompts = "template"
    """Where the prompts of later turns come from: `template`, the engine renders the conversation anew, as for any client;
    `exact`, they go on from the recorded tokens wherever that can be proved. A session can say otherwise."""
    harnesses: str | None = None
    """Folder of harness recipes of your own; one of them takes the place of ours of the same name. None: only ours."""
    websocket: bool = True
    """Whether the Responses API is served over WebSocket too; without it, clients are told to fall back (426)."""

    def __post_init__(self) -> None:
        if len(set(self.upstreams)) < len(self.upstreams):
            raise BadSettings(f"upstream names an engine twice: {self.upstream}")
        if not 0 <= self.port <= 65535:
            raise BadSettings(f"port must lie in 0..65535, not {self.port}")
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise BadSettings(f"{name} must be greater than 0, not {getattr(self, name)}")
        for name in (*_POSITIVE, "keepalive"):
            if not isfinite(getattr(self, name)):
                raise BadSettings(f"{name} must be a finite number, not {getattr(self, name)}")
        if self.rollouts < 0:
            raise BadSettings(f"rollouts must be 0 or more, not {self.rollouts}")
        if self.keepalive < 0:
            raise BadSettings(f"keepalive must be 0 or more seconds, not {self.keepalive}")
        if not _is_one_line(self.upstream_key or ""):
            raise BadSettings("upstream_key must be one line of ASCII characters, as an HTTP header can hold it")
        if not (self.admin_key or "").isprintable():
            raise BadSettings("admin_key must be one line, as an HTTP header can hold it")
        if self.spool == "":
            raise BadSettings("spool must name a folder; leave it out for none")
        read_model_map(self.model_map)
        self._check_delegate()

    def _check_delegate(self) -> None:
        if (self.delegate_requests is None) != (self.delegate_responses is None):
            raise BadSettings("a delegate needs both queues: set delegate_requests and delegate_responses")
        if self.delegate_requests is not None and not self.rollouts:
            raise BadSettings("a delegate runs rollouts: set rollouts to how many at once")

    @property
    def upstreams(self) -> tuple[str, ...]:
        """The base URLs of the engines, in order."""
        return tuple(map(read_upstream, self.upstream.split(",")))

    @property
    def control_open(self) -> bool:
        """Whether anybody may use the control routes, without a key."""
        return not self.auth_required and self.admin_key is None

    @property
    def auth_required(self) -> bool:
        """Whether only signed session keys are served."""
        # What a harness runs could otherwise reach the sessions of others, and the control routes.
        exposed = self.host not in LOOPBACK_HOSTS or self.rollouts > 0
        return self.auth == "required" or (self.auth == "auto" and exposed)
