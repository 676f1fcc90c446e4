"""Whether a real vLLM's reasoning parser is misled by the thoughts that exact prompts keep is found out before any is sent."""

from collections.abc import Iterator

import msgspec
import pytest

from polarproxy.proxy.exact.renders import Renders
from polarproxy.proxy.exact.thoughts import why_thoughts_mislead
from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings
from tests.e2e.vllm_server import HOW_TO_GET_IT, VllmInstall, VllmServer, vllm_server

pytestmark = pytest.mark.vllm
FIELDS = {"model": msgspec.Raw(b'"tiny"')}


@pytest.fixture(scope="module")
def vllm_r1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    install = VllmInstall.from_environment()
    if install is None:
        pytest.skip(HOW_TO_GET_IT)
    more = ("--reasoning-parser", "deepseek_r1")
    with vllm_server(install, "tiny-chat", tmp_path_factory.mktemp("vllm"), more) as server:
        yield server


async def test_deepseek_r1_finds_old_thoughts(vllm_r1: VllmServer) -> None:
    upstream = Upstream(vllm_r1.url, Settings(upstream=vllm_r1.url))
    template = await Renders(upstream).template(FIELDS, upstream.own_head)
    assert "--reasoning-parser" in getattr(template, "detail", "")
    await upstream.close()


async def test_qwen3_stops_at_the_beginning_of_the_turn(vllm_chat: VllmServer) -> None:
    upstream = Upstream(vllm_chat.url, Settings(upstream=vllm_chat.url))
    assert await why_thoughts_mislead(upstream.ask_for, FIELDS, upstream.own_head) is None
    await upstream.close()
