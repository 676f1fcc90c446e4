"""`polarproxy upstreams`: the engines of a proxy that runs, looked at and changed through its control routes."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
import typer

from polarproxy.cli.config import load
from polarproxy.cli.direct import direct
from polarproxy.cli.opening import Db, Json
from polarproxy.cli.output import errors, print_json, print_table
from polarproxy.cli.secrets import key_path, read_key
from polarproxy.errors import UNREADABLE, BadSettings, NotFound, PolarproxyError, ProxyRefused
from polarproxy.proxy.keys import Signer
from polarproxy.settings import Settings, read_base_url

app = typer.Typer(
    no_args_is_help=True, help="The engines of a proxy that runs: look at them, add, drain and remove them."
)

Proxy = Annotated[str | None, typer.Option("--proxy", help="URL of the proxy; default: that of the settings here.")]
Key = Annotated[
    str | None,
    typer.Option("--admin-key", help="Key of the control routes; default: as `polarproxy admin-key` prints."),
]
Which = Annotated[str, typer.Argument(metavar="UPSTREAM", help="Its id or its URL, as `upstreams list` shows them.")]
_TIMEOUT_S = 60.0
_REDIRECTS = range(300, 400)


class _Upstream(msgspec.Struct):
    id: str
    url: str
    state: str
    healthy: bool
    trouble: str | None
    engine: str | None
    models: list[str]
    logprobs_mode: str | None
    in_flight: int
    calls: int
    sessions: int


class _Upstreams(msgspec.Struct):
    upstreams: list[_Upstream]
    warnings: list[str]
    processes: int


class _Error(msgspec.Struct):
    message: str


class _Refused(msgspec.Struct):
    error: _Error


@app.command("list")
def list_upstreams(proxy: Proxy = None, admin_key: Key = None, db: Db = None, as_json: Json = False) -> None:
    """Show every engine: whether it is well, what it serves, and how busy it is with calls of all processes."""
    _show(_Control(proxy, admin_key, db)("GET", ""), as_json)


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="Base URL of the engine, without /v1.")],
    force: Annotated[bool, typer.Option("--force", help="Also when it does not answer.")] = False,
    proxy: Proxy = None,
    admin_key: Key = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Give an engine its share of the sessions, or take one that drains back into service.

    It lasts as long as a proxy of this database runs; what is to last longer belongs into the settings.
    """
    control = _Control(proxy, admin_key, db)
    _show(control("POST", "", {"url": url}, force=force), as_json)


@app.command()
def drain(
    upstream: Which,
    force: Annotated[bool, typer.Option("--force", help="Also when nothing else serves its models.")] = False,
    proxy: Proxy = None,
    admin_key: Key = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Send new calls elsewhere, also those of its sessions; calls under way finish."""
    control = _Control(proxy, admin_key, db)
    _show(control("POST", f"/{control.id_of(upstream)}/drain", force=force), as_json)


@app.command()
def remove(
    upstream: Which,
    force: Annotated[bool, typer.Option("--force", help="At once, and break off what it is busy with.")] = False,
    proxy: Proxy = None,
    admin_key: Key = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Take out an engine that has drained."""
    control = _Control(proxy, admin_key, db)
    _show(control("DELETE", f"/{control.id_of(upstream)}", force=force), as_json)


class _Control:
    """The control routes of one proxy."""

    def __init__(self, proxy: str | None, admin_key: str | None, db: str | None) -> None:
        settings = load({"db": db, "admin_key": admin_key}, None)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._proxy = read_base_url(proxy or f"http://{host}:{settings.port}", "--proxy")
        self._key = settings.admin_key or _derived_key(settings)

    def __call__(self, method: str, path: str, body: Any = None, *, force: bool = False) -> _Upstreams:
        url = f"{self._proxy}/api/upstreams{path}" + ("?" + urlencode({"force": "true"}) if force else "")
        request = urllib.request.Request(url, method=method, data=None if body is None else msgspec.json.encode(body))
        if self._key is not None:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with direct().open(request, timeout=_TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read(), type=_Upstreams)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _REDIRECTS:
                    raise ProxyRefused(
                        f"{self._proxy} answers {error.code}, go to {error.headers.get('Location')}; the key is not taken"
                        " there: name the proxy itself with --proxy"
                    ) from error
                raise _refusal(error.code, error.read()) from error
        except (urllib.error.URLError, OSError) as error:
            raise ProxyRefused(f"no proxy answers at {self._proxy}: {getattr(error, 'reason', error)}") from error
        except msgspec.DecodeError as error:
            raise BadSettings(f"what answers at {self._proxy} is no polarproxy: {error}") from error

    def id_of(self, upstream: str) -> str:
        """Raises `NotFound`."""
        known = self("GET", "").upstreams
        for one in known:
            if upstream.rstrip("/") in (one.id, one.url):
                return one.id
        raise NotFound(f"there is no upstream {upstream}; there are {', '.join(one.url for one in known)}")


def _derived_key(settings: Settings) -> str | None:
    """None: there is no signing key here, and on a loopback address none is needed."""
    try:
        return Signer(read_key(key_path(settings))).admin_key
    except BadSettings:
        return None


def _refusal(status: int, body: bytes) -> PolarproxyError:
    try:
        message = msgspec.json.decode(body, type=_Refused).error.message
    except UNREADABLE:
        message = f"the answer is {status}, and not polarproxy's"
    # The routes say how to insist over HTTP; here that is a flag.
    message = message.replace("?force=true", "--force")
    match status:
        case 401 | 403:
            return BadSettings(f"{message}; give --admin-key")
        case 400:
            return BadSettings(message)
        case 404:
            return NotFound(message)
        case _:
            return ProxyRefused(message)


def _show(found: _Upstreams, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    columns = ("id", "url", "state", "health", "engine", "models", "logprobs", "in flight", "calls", "sessions")
    rows = [
        (
            one.id,
            one.url,
            one.state,
            one.trouble or "well",
            one.engine,
            ", ".join(one.models),
            one.logprobs_mode,
            one.in_flight,
            one.calls,
            one.sessions,
        )
        for one in found.upstreams
    ]
    title = "upstreams" if found.processes == 1 else f"upstreams, as {found.processes} processes see them"
    print_table(title, columns, rows, spare=("id", "logprobs", "engine"))
    for warning in found.warnings:
        errors.print(warning, style="yellow", markup=False)
