"""Two adapters of one engine in one session, asked the same: each goes on from its own turns."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fakes import compose, side_routes
from tests.fakes import engine as engine_module
from tests.proxy.exact.talk import Talk, exact_rig


async def test_an_adapter_goes_on_from_its_own_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def models(_: Any, __: web.Request) -> web.Response:
        named = [("fake", None), ("lora-a", "fake"), ("lora-b", "fake")]
        cards = [
            {
                "id": name,
                "object": "model",
                "owned_by": "vllm",
                "root": "fake",
                "parent": parent,
                "max_model_len": 30000,
            }
            for name, parent in named
        ]
        return web.json_response({"object": "list", "data": cards})

    monkeypatch.setattr(engine_module, "check_chat", lambda *_: None)
    monkeypatch.setattr(side_routes.SideRoutes, "_models", models)
    said = iter(range(100))
    async with exact_rig(tmp_path, lambda _: compose("Answer.", reasoning=f"Thought {next(said)}.")) as rig:
        one, two = Talk(rig, extra={"model": "lora-a"}), Talk(rig, extra={"model": "lora-b"})
        for talk in (one, two, one, two):
            await talk.turn()
        calls = [captured.call for captured in one.calls()]
        model_of = {call.call_id: call.served_model for call in calls}
        assert [call.served_model for call in calls] == ["lora-a", "lora-b", "lora-a", "lora-b"]
        for call in calls[2:]:
            assert call.prompting is not None
            assert call.prompting.continued is not None
            assert model_of[call.prompting.continued.call_id] == call.served_model
