"""Containers, where no engine runs: the exact command lines, and a run against an engine that the tests wrote.

The stand-in keeps no container; it writes down how it was called, and runs what is to run inside in this machine's shell.
"""

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from polarproxy.errors import RuntimeFailed
from polarproxy.rollout.runtimes.apptainer import ApptainerRuntime
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.census import Census
from polarproxy.rollout.runtimes.containers import ContainerRuntime, DockerRuntime, PodmanRuntime
from polarproxy.rollout.runtimes.opening import best_runtime
from polarproxy.rollout.runtimes.protocol import Image, Limits, Spec, StoppedBy

ENGINE = r"""#!/bin/sh
python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@" >> "$ENGINE_LOG"
case $1 in
  create) echo made-1 ;;
  cp) echo original > "$3/from-image" ;;
  run) test -z "$ENGINE_FAILS" || { echo "no such image" >&2; exit 125; }; echo started-1 ;;
  exec)
    test "$3" = sh && exit 137
    file=$4; set -a; . "$file"; set +a; shift 7; exec "$@" ;;
esac
"""
LIMITS = Limits(memory_mb=100, processes=7, file_mb=3)
SPEC = Spec(limits=LIMITS, programs=(Path("/opt/tool"),), proxy="http://127.0.0.1:8700", image="img:1", network="inner")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """How the engine was called so far."""
    folder = tmp_path / "engine"
    folder.mkdir()
    for name in ("docker", "podman"):
        (folder / name).write_text(ENGINE)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("ENGINE_LOG", str(folder / "log"))
    return lambda: [json.loads(line) for line in (folder / "log").read_text().splitlines()]


@pytest.fixture(params=[DockerRuntime, PodmanRuntime], ids=["docker", "podman"])
async def made(request: pytest.FixtureRequest, log: object) -> AsyncIterator[Callable[[Spec], ContainerRuntime]]:
    runtimes: list[ContainerRuntime] = []

    def make(spec: Spec) -> ContainerRuntime:
        runtimes.append(request.param(spec, Census()))
        return runtimes[-1]

    yield make
    for runtime in runtimes:
        await runtime.stop()


async def test_the_container_is_started_with_its_limits(
    made: Callable[[Spec], ContainerRuntime], log: Callable[[], list[list[str]]]
) -> None:
    runtime = made(SPEC)
    await runtime.start()
    (started,) = log()
    user = ["--user", f"{os.getuid()}:{os.getgid()}"] if runtime.kind == "docker" else ["--userns", "keep-id"]
    folder = runtime.folder
    assert started == [
        *("run", "--detach", "--rm", "--init", "--name", runtime.name, *user),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "7"),
        *("--memory", "100m", "--memory-swap", "100m", "--ulimit", "fsize=3145728", "--network", "inner"),
        *("--add-host", "polarproxy.host:host-gateway"),
        *("--volume", f"{folder}/home:/home/agent", "--volume", f"{folder}/work:/workspace"),
        *("--volume", f"{folder}/tmp:/tmp", "--volume", f"{folder}/base:/polarproxy/base:ro"),
        *("--volume", "/opt/tool:/opt/tool:ro", "--workdir", "/workspace", "img:1", "sleep", "infinity"),
    ]
    assert runtime.proxy == "http://polarproxy.host:8700"
    assert (runtime.home, runtime.work, runtime.temporary) == ("/home/agent", "/workspace", "/tmp")


async def test_without_a_proxy_there_is_no_network(made: Callable[[Spec], ContainerRuntime]) -> None:
    runtime = made(Spec())
    arguments = runtime.run_arguments()
    assert arguments[arguments.index("--network") + 1] == "none"
    assert "--add-host" not in arguments
    assert runtime.proxy is None


async def test_a_command_runs_in_it_and_takes_all_with_it(
    made: Callable[[Spec], ContainerRuntime], log: Callable[[], list[list[str]]]
) -> None:
    runtime = made(SPEC)
    await runtime.start()
    command = ["sh", "-c", "cat; echo $KEY; exit 3"]
    ended = await runtime.exec(command, env={"KEY": "secret"}, budget=Budget(60), stdin=b"in ")
    assert (ended.exit_code, ended.stdout) == (3, "in secret\n"), ended
    ran, swept = log()[1:]
    file = runtime.folder / "environment"
    inside = ["--workdir", "/workspace", runtime.name]
    assert ran == ["exec", "--interactive", "--env-file", str(file), *inside, *command]
    assert swept == ["exec", runtime.name, "sh", "-c", "kill -KILL -1"]
    assert "secret" not in json.dumps(log())
    assert file.stat().st_mode & 0o077 == 0
    assert "KEY=secret" in file.read_text().splitlines()
    ended = await runtime.exec(["sleep", "60"], env={}, budget=Budget(1))
    assert ended.stopped_by is StoppedBy.TIME
    assert log()[-1] == swept
    with pytest.raises(RuntimeFailed, match="several lines"):
        await runtime.exec(["true"], env={"A": "1\nB=2"}, budget=Budget(1))
    await runtime.stop()
    assert log()[-1] == ["rm", "--force", runtime.name]
    assert not runtime.folder.exists()


async def test_the_working_copy_can_be_the_image_s(
    made: Callable[[Spec], ContainerRuntime], log: Callable[[], list[list[str]]]
) -> None:
    runtime = made(Spec(source=Image("/testbed"), image="img:1"))
    await runtime.start()
    assert await runtime.get("from-image") == b"original\n"
    assert [call[0] for call in log()] == ["create", "cp", "rm", "run"]
    assert log()[1] == ["cp", "made-1:/testbed/.", str(runtime.folder / "work")]


async def test_an_engine_that_fails_leaves_nothing(
    made: Callable[[Spec], ContainerRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_FAILS", "1")
    runtime = made(SPEC)
    with pytest.raises(RuntimeFailed, match="run failed: no such image"):
        await runtime.start()
    assert not runtime.folder.exists()


async def test_apptainer_s_command_line() -> None:
    runtime = ApptainerRuntime(SPEC, Census())
    launch = runtime.wrapped(["tool", "-p", "x"], {"KEY": "secret"}, b"", runtime.folder / "base")
    folder = runtime.folder
    assert list(launch.command)[list(launch.command).index("apptainer") :] == [
        *("apptainer", "--quiet", "exec", "--containall", "--no-home", "--writable-tmpfs"),
        *(
            "--bind",
            f"{folder}/home:/home/agent",
            "--bind",
            f"{folder}/work:/workspace",
            "--bind",
            f"{folder}/tmp:/tmp",
        ),
        *("--bind", "/opt/tool:/opt/tool:ro", "--bind", f"{folder}/base:/polarproxy/base:ro"),
        *("--pwd", "/workspace", "img:1", "tool", "-p", "x"),
    ]
    assert launch.env["APPTAINERENV_KEY"] == "secret"
    assert "secret" not in " ".join(launch.command)
    assert runtime.proxy == "http://127.0.0.1:8700"
    await runtime.stop()


@pytest.mark.parametrize("kind", [DockerRuntime, PodmanRuntime, ApptainerRuntime])
def test_what_is_missing_says_so(
    kind: type[DockerRuntime | PodmanRuntime | ApptainerRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert kind.why_not() == f"{kind.kind} is not installed"
    assert best_runtime() == "local"
