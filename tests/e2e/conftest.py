"""Fixtures of the end-to-end tests: one real vLLM for the whole run."""

from collections.abc import Generator, Iterator

import pytest

from tests.e2e.vllm_server import HOW_TO_GET_IT, VllmInstall, VllmServer, vllm_server


@pytest.fixture(scope="session")
def vllm_chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """The chat model of `tests.models.train_tiny_chat`, which thinks and calls tools at temperature 0."""
    install = VllmInstall.from_environment()
    if install is None:
        pytest.skip(HOW_TO_GET_IT)
    with vllm_server(install, "tiny-chat", tmp_path_factory.mktemp("vllm")) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the server's log under a failed test that used it."""
    report = yield
    server = getattr(item, "funcargs", {}).get("vllm_chat")
    if report.failed and isinstance(server, VllmServer):
        report.sections.append(("vLLM log", server.log_tail()))
    return report
