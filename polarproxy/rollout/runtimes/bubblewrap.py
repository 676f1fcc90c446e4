"""Bubblewrap: a sandbox that needs no daemon, no image and no root.

What runs inside has namespaces of its own for processes, network, IPC and mounts. It sees the system's programs read-only, the
folders of the harness, its own three folders, and nothing else of this machine; its network is a loopback with one port,
which leads to the proxy. Where polarproxy itself runs as root, programs inside are a user that owns nothing else.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from polarproxy.errors import RuntimeFailed
from polarproxy.rollout.runtimes import shim
from polarproxy.rollout.runtimes.gate import Gate
from polarproxy.rollout.runtimes.hosted import KEEPERS, HostedRuntime
from polarproxy.rollout.runtimes.process import Launch, Settings, shimmed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polarproxy.rollout.runtimes.census import Census
    from polarproxy.rollout.runtimes.protocol import Spec

_SEEN = {"home": "/home/agent", "work": "/workspace", "tmp": "/tmp"}
_OURS = "/run/polarproxy"
_FIRST_USER = 0x70000000
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    *(
        "alternatives",
        "ca-certificates",
        "fonts",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "localtime",
        "mime.types",
    ),
    *("pki/ca-trust", "pki/tls/certs", "ssl/certs", "ssl/openssl.cnf", "terminfo"),
)
"""What programs need of /etc to start. None of it is anybody's secret."""
_MADE = ("/etc", "/etc/pki", "/etc/pki/tls", "/etc/ssl", "/home", "/run", _OURS)
_SHARED_MB = 256
_TRIAL_S = 20.0


class BubblewrapRuntime(HostedRuntime):
    """See the module. Raises `RuntimeFailed` from `start` as others do."""

    kind = "bubblewrap"

    def __init__(self, spec: Spec, census: Census) -> None:
        super().__init__(spec, census)
        self._owner = _FIRST_USER + secrets.randbelow(1 << 24) if os.geteuid() == 0 else None
        self._gate: Gate | None = None
        if spec.proxy is not None:
            self._port = urlsplit(spec.proxy).port or 80
            self.proxy = f"http://127.0.0.1:{max(self._port, 1024)}"

    @staticmethod
    def why_not() -> str | None:
        """Why it does not work here. None: it does."""
        try:
            trial = subprocess.run(
                [*_command(None, 1), "--", "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TRIAL_S,
                check=False,
            )
        except FileNotFoundError:
            return "bubblewrap is not installed: install your system's package bubblewrap"
        except subprocess.TimeoutExpired:
            return f"bwrap did not start within {_TRIAL_S:g} s"
        return None if trial.returncode == 0 else f"bwrap does not work here: {trial.stderr.strip()[-300:]}"

    def seen(self, name: str) -> str:
        return _SEEN[name]

    @property
    def base_seen(self) -> str:
        return f"{_OURS}/base"

    @property
    def owner(self) -> int | None:
        return self._owner

    async def start(self) -> None:
        await super().start()
        try:
            _write_etc(self.folder / "etc", self._owner if self._owner is not None else os.getuid())
            if self.spec.proxy is not None:
                self._gate = Gate(self.folder / "proxy.sock", self.spec.proxy)
                await self._gate.start()
        except OSError as error:
            await self.stop()
            raise RuntimeFailed(f"the sandbox in {self.folder} cannot be made: {error}") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        await super().stop()
        if self._gate is not None:
            await self._gate.stop()

    def wrapped(self, command: Sequence[str], env: Mapping[str, str], stdin: bytes, base: Path | None) -> Launch:
        limits = self.spec.limits
        settings = Settings(
            memory_mb=limits.memory_mb,
            file_mb=limits.file_mb,
            processes=limits.processes + KEEPERS,
            user=self._owner,
            # Root without its rights cannot enter what belongs to the user that the shim becomes.
            folder=self.work,
            relay=None if self._gate is None else (max(self._port, 1024), f"{_OURS}/proxy.sock"),
        )
        inside = shimmed(settings, command, f"{_OURS}/shim.py")
        bind = [*_command(self._owner, min(_SHARED_MB, limits.memory_mb)), *self._folder_arguments(base), "--", *inside]
        return Launch(bind, env, self.folder, stdin, limits.output_mb, ends_with_child=True)

    def _folder_arguments(self, base: Path | None) -> Iterator[str]:
        for name, folder in self._folders.items():
            yield from ("--bind", str(folder), self.seen(name))
        folders = [path for path in (*self.spec.programs, Path(sys.base_prefix)) if not path.is_relative_to("/usr")]
        for above in sorted({parent for path in folders for parent in path.parents[:-1]}):
            yield from ("--perms", "0755", "--dir", str(above))
        for folder in dict.fromkeys(folders):
            yield from ("--ro-bind", str(folder), str(folder))
        for file in sorted((self.folder / "etc").iterdir()):
            yield from ("--ro-bind", str(file), f"/etc/{file.name}")
        yield from ("--ro-bind", shim.__file__, f"{_OURS}/shim.py")
        if self._gate is not None:
            yield from ("--ro-bind", str(self.folder / "proxy.sock"), f"{_OURS}/proxy.sock")
        if base is not None:
            yield from ("--ro-bind", str(base), self.base_seen)
        # The tmpfs below everything is memory that no limit counts.
        yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/")


def _command(owner: int | None, shared_mb: int) -> Iterator[str]:
    """Bubblewrap with what every sandbox has: namespaces, and the system read-only."""
    yield from ("bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--die-with-parent", "--new-session", "--hostname", "sandbox")
    if owner is None and os.geteuid() != 0:
        yield from ("--unshare-user", "--disable-userns")
    else:
        # As root: the right to become another user, which the shim does first of all, and no other.
        yield from ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    for place in _SYSTEM:
        path = Path(place)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), place)
        elif path.is_dir():
            yield from ("--ro-bind", place, place)
    # Folders that bubblewrap makes on its own are for their owner alone.
    for place in _MADE:
        yield from ("--perms", "0755", "--dir", place)
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from (
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--perms",
        "1777",
        "--size",
        str(shared_mb << 20),
        "--tmpfs",
        "/dev/shm",
    )


def _write_etc(folder: Path, user: int) -> None:
    """The few files by which programs ask who they are and where hosts are; names are looked up nowhere else."""
    folder.mkdir(mode=0o755)
    home = _SEEN["home"]
    for name, text in (
        ("passwd", f"root:x:0:0:root:/nonexistent:/bin/sh\nagent:x:{user}:{user}:agent:{home}:/bin/sh\n"),
        ("group", f"root:x:0:\nagent:x:{user}:\n"),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ("resolv.conf", ""),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
