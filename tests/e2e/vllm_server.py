"""A real vLLM server (CPU build) for the tests that need an engine's true behaviour.

`POLARPROXY_TEST_VLLM_PYTHON` names the interpreter of a venv with vLLM, `POLARPROXY_TEST_MODELS` the folder with the
models; `.ci/setup-vllm` makes both and prints them. vLLM's own pins keep it out of the test venv.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

START_SECONDS = 240
STOP_SECONDS = 20
LOG_TAIL = 4_000
SERVE = Path(__file__).parent / "vllm" / "serve_fork.py"
MODEL_NAME = "tiny"
HOW_TO_GET_IT = "needs a real vLLM; run: export $(.ci/setup-vllm)"

ENVIRONMENT = {
    # Without it the first request for logprobs compiles for seconds.
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
FLAGS = (
    *("--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--enforce-eager", "--dtype", "float32"),
    # Without a size it asks for nearly all memory and aborts.
    *("--kv-cache-memory-bytes", "128M", "--max-model-len", "2048"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"),
    *("--enable-scale-out", "--enable-request-id-headers", "--enable-prompt-tokens-details"),
    *("--logprobs-mode", "processed_logprobs"),
)


@dataclass(frozen=True)
class VllmInstall:
    python: Path
    models: Path

    @classmethod
    def from_environment(cls) -> Self | None:
        """None when this machine has no vLLM for the tests."""
        python, models = os.environ.get("POLARPROXY_TEST_VLLM_PYTHON"), os.environ.get("POLARPROXY_TEST_MODELS")
        return cls(Path(python), Path(models)) if python and models else None


@dataclass(frozen=True)
class VllmServer:
    url: str
    model: str
    log: Path

    def log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]


class VllmDidNotStart(Exception):
    """Shows the end of the server's log."""


@contextmanager
def vllm_server(install: VllmInstall, model: str, folder: Path, more: Sequence[str] = ()) -> Iterator[VllmServer]:
    """Serve `install.models / model` on a free port; the log goes to `folder`. `more` flags overrule those above.

    Raises `VllmDidNotStart` when the server ends or is not healthy within `START_SECONDS`.
    """
    port, log = _free_port(), folder / "vllm.log"
    command = [str(install.python), str(SERVE), "--model", str(install.models / model), "--port", str(port), *FLAGS]
    command += more
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=os.environ | ENVIRONMENT,
            start_new_session=True,
        )
    server = VllmServer(f"http://127.0.0.1:{port}", MODEL_NAME, log)
    try:
        _wait_until_healthy(server, process)
        yield server
    finally:
        _stop(process)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _wait_until_healthy(server: VllmServer, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while not _healthy(server.url):
        if process.poll() is not None:
            raise VllmDidNotStart(f"ended with {process.returncode}:\n{server.log_tail()}")
        if time.monotonic() > end:
            raise VllmDidNotStart(f"not healthy after {START_SECONDS} s:\n{server.log_tail()}")
        time.sleep(0.25)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, then end what is left of its session, its engine process included."""
    if process.poll() is None:
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
