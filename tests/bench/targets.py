"""What is compared: the bare engine, nginx twice, a bare aiohttp pass-through, and polarproxy recording durably."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from tests.bench.process import Child, Cores, free_port, start, wait_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

# Buffers that take most replies whole: with the default of one page nginx relays 8k prompts at up to three times the CPU,
# so that every ratio to it flatters us. What most people run is shown beside it.
_LARGE_BUFFERS = "proxy_buffer_size 64k; proxy_buffers 8 64k;"
_DEFAULT_BUFFERS = ""
_NGINX_CONF = """
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.err warn; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 1000000;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; {buffers}
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Running:
    """A started target. `child` is None for the engine itself, whose cost is not a proxy's.

    `api_keys(count)` gives the keys of at least `count` new sessions; where the target knows no sessions, one key
    without end, so that all requests are of the same length.
    """

    name: str
    port: int
    child: Child | None
    api_keys: Callable[[int], Iterable[str]]
    # How many sampled tokens are stored with their logprobs; None where nothing is recorded.
    recorded_tokens: Callable[[], int] | None = None


@dataclass(frozen=True)
class Target:
    name: str
    start: Callable[[Path, int, Cores], Running]
    # Why it cannot run on this machine; None when it can.
    missing: str | None


def _dummy_keys(_: int) -> Iterable[str]:
    return repeat("sk-polar-0123456789abcdef0123456789abcdef-0123456789abcdef")


def _direct(work: Path, upstream: int, cores: Cores) -> Running:
    return Running("direct", upstream, None, _dummy_keys)


def _nginx(name: str, buffers: str, work: Path, upstream: int, cores: Cores) -> Running:
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    conf = work / "nginx.conf"
    conf.write_text(_NGINX_CONF.format(dir=work, user=user, upstream=upstream, port=port, buffers=buffers))
    executable = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") or "nginx"
    child, _ = start([executable, "-p", str(work), "-c", str(conf)], cores.target, work / "nginx.log")
    wait_ready(child, f"http://127.0.0.1:{port}/v1/models")
    return Running(name, port, child, _dummy_keys)


def _aiohttp(work: Path, upstream: int, cores: Cores) -> Running:
    command = [sys.executable, "-m", "tests.bench.passthrough", f"http://127.0.0.1:{upstream}"]
    child, port = start(command, cores.target, work / "aiohttp.log", read_port=True)
    return Running("aiohttp", port, child, _dummy_keys)


def serve_command(upstream: int, port: int, database: Path) -> list[str]:
    """`polarproxy serve` in front of an engine on loopback, recording to an SQLite file."""
    command = [sys.executable, "-m", "polarproxy", "serve", "--upstream", f"http://127.0.0.1:{upstream}"]
    return [*command, "--host", "127.0.0.1", "--port", str(port), "--db", f"sqlite:///{database}", "--engine", "vllm"]


def _polarproxy(work: Path, upstream: int, cores: Cores) -> Running:
    port = free_port()
    command = serve_command(upstream, port, work / "polar.db")
    child, _ = start(command, cores.target, work / "polarproxy.log")
    wait_ready(child, f"http://127.0.0.1:{port}/readyz")

    def new_key(_: int) -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/sessions", data=b"{}", method="POST")
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as reply:
            key: str = json.load(reply)["api_key"]
            return key

    def keys(count: int) -> Iterable[str]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(new_key, range(count)))

    def recorded_tokens() -> int:
        query = (
            "SELECT coalesce(sum(k.length), 0) FROM calls c JOIN completions k USING (call_id)"
            " WHERE c.status = 'completed' AND c.token_source = 'engine' AND length(k.logprobs) = 4 * k.length"
        )
        with closing(sqlite3.connect(f"file:{work}/polar.db?mode=ro", uri=True)) as connection:
            count: int = connection.execute(query).fetchone()[0]
            return count

    return Running("polarproxy", port, child, keys, recorded_tokens)


def _polarproxy_missing() -> str | None:
    try:
        found = subprocess.run(
            [sys.executable, "-m", "polarproxy", "serve", "--help"], capture_output=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return "`python -m polarproxy serve --help` hangs"
    return None if found.returncode == 0 else "`python -m polarproxy serve` is not available: pip install -e ."


def _nginx_missing() -> str | None:
    found = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    return None if found else "nginx is not installed: apt-get install nginx-light"


def all_targets() -> tuple[Target, ...]:
    return (
        Target("direct", _direct, None),
        Target("nginx", partial(_nginx, "nginx", _LARGE_BUFFERS), _nginx_missing()),
        Target("nginx-default", partial(_nginx, "nginx-default", _DEFAULT_BUFFERS), _nginx_missing()),
        Target("aiohttp", _aiohttp, None),
        Target("polarproxy", _polarproxy, _polarproxy_missing()),
    )


@contextmanager
def running(target: Target, work: Path, upstream: int, cores: Cores) -> Iterator[Running]:
    work.mkdir(parents=True)
    started = target.start(work, upstream, cores)
    try:
        yield started
    finally:
        if started.child:
            started.child.stop()
