"""A real inference engine that comes from the package index: llama.cpp's server, by `xllamacpp`, on a loopback port."""

import contextlib
import importlib.util
import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from polarproxy.errors import EmbeddedEngineError

GGUF_MAGIC = b"GGUF"
CHILD = Path(__file__).with_name("embedded_child.py")


class EmbeddedEngine:
    """Runs a GGUF model while the `with` block lasts.

    `alias` is the name under which the engine serves the model, `slots` the number of requests decoded at once, and
    `context` the most tokens (prompt and completion) of one request. Entering takes about a second with a small model
    and raises EmbeddedEngineError when `xllamacpp` is not installed, the file is not a GGUF, or the engine does not
    answer within `start_timeout_s` seconds.
    """

    def __init__(
        self,
        model: Path,
        *,
        alias: str = "demo",
        slots: int = 4,
        context: int = 1024,
        start_timeout_s: float = 60.0,
    ) -> None:
        self.model = model
        self.alias = alias
        self._slots = slots
        self._context = context
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._base_url: str | None = None

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT`, without `/v1`; only inside the `with` block."""
        if self._base_url is None:
            raise EmbeddedEngineError("The embedded engine is not running: use it as a context manager.")
        return self._base_url

    @property
    def pid(self) -> int:
        """Process id of the engine; only inside the `with` block."""
        if self._process is None:
            raise EmbeddedEngineError("The embedded engine is not running: use it as a context manager.")
        return self._process.pid

    def __enter__(self) -> Self:
        check_installed()
        check_gguf(self.model)
        deadline = time.monotonic() + self._start_timeout_s
        self._log = tempfile.TemporaryFile()
        settings = [str(self.model), self.alias, str(self._slots), str(self._context)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CHILD), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is ours to handle: requests may still have to be finished
        )
        try:
            url = self._read_address(self._process, deadline)
            _wait_healthy(url, deadline)
        except BaseException:
            self._stop()
            raise
        self._base_url = url
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _read_address(self, process: subprocess.Popen[bytes], deadline: float) -> str:
        """The line the child prints when its model is loaded and it listens."""
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise EmbeddedEngineError(
                    f"The embedded engine did not start within {self._start_timeout_s:g} s.{self._last_words()}"
                )
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                raise EmbeddedEngineError(f"The embedded engine could not load {self.model}.{self._last_words()}")
            line += piece
        return line.decode().strip()

    def _last_words(self) -> str:
        """The end of the engine's log, to be put behind an error message."""
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return "\n" + "\n".join(lines[-8:]) if lines else ""

    def _stop(self) -> None:
        process, self._process, self._base_url = self._process, None, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=5.0)
            process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None


def check_installed() -> None:
    """Raises EmbeddedEngineError, with the line that installs it, when `xllamacpp` is missing."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise EmbeddedEngineError(
            "The embedded engine needs xllamacpp, which is not installed: pip install 'polarproxy[demo]'"
        )


def check_gguf(path: Path) -> None:
    """Raises EmbeddedEngineError when the file cannot be read or does not begin as a GGUF does."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise EmbeddedEngineError(f"The model file {path} cannot be read: {error.strerror}") from error
    if magic != GGUF_MAGIC:
        raise EmbeddedEngineError(f"{path} is not a GGUF file: it begins with {magic!r}, not with {GGUF_MAGIC!r}")


def _wait_healthy(url: str, deadline: float) -> None:
    # Whatever HTTP proxy the user has configured is not for loopback.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with direct.open(f"{url}/health", timeout=5.0) as reply:
                if reply.status == 200:
                    return
        except urllib.error.URLError as error:
            last = str(error)
        else:
            last = f"status {reply.status}"
        if time.monotonic() > deadline:
            raise EmbeddedEngineError(f"The embedded engine at {url} is not healthy: {last}")
        time.sleep(0.05)
