"""What one proxy recorded, another one over the same database goes on from."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.postgres import Server
from tests.proxy.exact.talk import Talk, exact_rig


async def test_turns_may_go_to_either_proxy(postgres: Server, tmp_path: Path) -> None:
    with postgres.temporary() as url:
        async with AsyncExitStack() as stack:
            settings: dict[str, Any] = {"db": url, "key_file": str(tmp_path / "key")}
            both = [await stack.enter_async_context(exact_rig(tmp_path, **settings)) for _ in range(2)]
            first, second = (Talk(rig) for rig in both)
            second.messages = first.messages
            for turn in range(6):
                await (first, second, second)[turn % 3].turn()
            assert first.outcomes() == ["first"] + ["exact"] * 5
            first.assert_exact()
            made = await both[0].control("POST", "/api/sessions", {"session_id": "as-rendered", "prompts": "template"})
            assert made.status == 201
            other = Talk(both[1], "as-rendered")
            await other.turns(2)
            assert [captured.call.prompting for captured in other.calls()] == [None, None]
