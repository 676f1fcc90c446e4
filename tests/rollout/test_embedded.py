"""The embedded engine: a real llama-server with the demo's model."""

import importlib.util
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from polarproxy.errors import EmbeddedEngineError
from polarproxy.rollout.demo import model_path
from polarproxy.rollout.embedded import EmbeddedEngine, check_installed

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs xllamacpp: pip install 'polarproxy[demo]'"
)
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
BODY: dict[str, Any] = {
    "model": "demo",
    "messages": [
        {"role": "system", "content": "Solve the task with the calculator. End with the number alone."},
        {"role": "user", "content": "Ann has 12 pens and buys 30 more. How many pens does Ann have now?"},
    ],
    "tools": [CALCULATOR],
    "max_tokens": 96,
    "seed": 3,
}


def call(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def runs(pid: int) -> bool:
    """Whether a process runs under the id; an orphan that nobody has reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@needs_engine
def test_it_serves_on_loopback_and_is_gone_afterwards() -> None:
    with EmbeddedEngine(model_path(), alias="calc") as engine:
        assert engine.base_url.startswith("http://127.0.0.1:")
        assert [model["id"] for model in call(f"{engine.base_url}/v1/models")["data"]] == ["calc"]
        url, pid = engine.base_url, engine.pid
    assert not runs(pid)
    with pytest.raises(OSError, match="refused"):
        call(f"{url}/health")
    with pytest.raises(EmbeddedEngineError, match="not running"):
        _ = engine.base_url


@needs_engine
def test_ids_and_logprobs_of_every_sampled_token_and_the_exact_prompt() -> None:
    with EmbeddedEngine(model_path()) as engine:
        reply = call(
            f"{engine.base_url}/v1/chat/completions", BODY | {"n_probs": 1, "return_tokens": True, "verbose": True}
        )
        inner = reply["__verbose"]
        text = {"content": inner["prompt"], "add_special": True, "parse_special": True}
        prompt = call(f"{engine.base_url}/tokenize", text)["tokens"]
    entries = reply["choices"][0]["logprobs"]["content"]
    assert [entry["id"] for entry in entries] == inner["tokens"]
    assert len(inner["tokens"]) == reply["usage"]["completion_tokens"]
    assert len(prompt) == reply["usage"]["prompt_tokens"]
    assert all(entry["logprob"] <= 0 for entry in entries)
    settings = inner["generation_settings"]
    assert (settings["temperature"], settings["top_k"], settings["top_p"], settings["min_p"]) == (1, 0, 1, 0)


@needs_engine
def test_the_model_calls_its_tool_and_the_template_only_appends() -> None:
    with EmbeddedEngine(model_path()) as engine:
        url = f"{engine.base_url}/v1/chat/completions"
        first = call(url, BODY | {"temperature": 0, "return_tokens": True, "verbose": True})
        message = first["choices"][0]["message"]
        (tool_call,) = message["tool_calls"]
        assert tool_call["function"]["name"] == "calculator"
        answered = {"role": "tool", "tool_call_id": tool_call["id"], "content": "42"}
        history = BODY | {"messages": [*BODY["messages"], message, answered], "temperature": 0}
        second = call(url, history | {"return_tokens": True, "verbose": True})
        texts = [(reply["__verbose"]["prompt"], reply["__verbose"]["content"]) for reply in (first, second)]
    assert texts[1][0].startswith(texts[0][0] + texts[0][1] + "<|im_end|>\n<|im_start|>tool\n42<|im_end|>")
    assert second["choices"][0]["finish_reason"] == "stop"
    assert "42" in second["choices"][0]["message"]["content"]


@needs_engine
def test_it_ends_when_its_parent_is_killed() -> None:
    program = (
        "import os, signal\n"
        "from polarproxy.rollout.demo import model_path\n"
        "from polarproxy.rollout.embedded import EmbeddedEngine\n"
        "with EmbeddedEngine(model_path()) as engine:\n"
        "    print(engine.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert parent.returncode == -signal.SIGKILL
    engine = int(parent.stdout)
    for _ in range(500):
        if not runs(engine):
            return
        time.sleep(0.01)
    pytest.fail(f"the engine, process {engine}, outlived its parent by five seconds")


@needs_engine
def test_a_file_that_is_not_gguf(tmp_path: Path) -> None:
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(EmbeddedEngineError, match="not a GGUF"), EmbeddedEngine(other):
        pass


@needs_engine
def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedEngineError, match="cannot be read"), EmbeddedEngine(tmp_path / "none.gguf"):
        pass


@needs_engine
def test_a_damaged_gguf_is_reported_with_the_engine_s_own_words(tmp_path: Path) -> None:
    damaged = tmp_path / "half.gguf"
    damaged.write_bytes(model_path().read_bytes()[:200_000])
    with (
        pytest.raises(EmbeddedEngineError, match=r"could not load(.|\n)*llama\.cpp: Failed"),
        EmbeddedEngine(damaged),
    ):
        pass


def test_without_xllamacpp_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedEngineError, match=r"polarproxy\[demo\]"):
        check_installed()
