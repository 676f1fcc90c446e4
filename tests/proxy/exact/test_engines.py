"""What is found out of an engine, how long it is true, and an engine that is late is not waited for again and again."""

from pathlib import Path
from typing import Any

import pytest

from polarproxy.proxy.exact import engines, prompts
from tests.fakes import toy_tokenizer
from tests.fakes.toy_tokenizer import encode
from tests.proxy.exact.talk import Talk, exact_rig, forced, renders
from tests.proxy.rig import Rig


async def begun(rig: Rig, turns: int = 2) -> Talk:
    talk = Talk(rig)
    await talk.turns(turns)
    return talk


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_engine_that_is_at_fault_when_it_is_tried_out_is_asked_again(tmp_path: Path, status: int) -> None:
    async with exact_rig(tmp_path) as rig:
        rig.engine.render_status = status
        talk = await begun(rig, 1)
        assert f"answers {status}" in (talk.promptings()[0].detail or "")
        rig.engine.render_status = 200
        await talk.turns(3)
        assert talk.outcomes() == ["fallback: render_failed", "fallback: not_recorded", "exact", "exact"]


async def test_an_engine_that_is_late_twice_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        monkeypatch.setattr(prompts, "PATIENCE_S", 0.1)
        rig.engine.holds_renders = True
        await talk.turns(2)
        asked = len(renders(rig))
        await talk.turns(2)
        assert len(renders(rig)) == asked
        assert talk.outcomes()[2:] == ["fallback: render_failed"] * 4
        assert "asked again" in (talk.promptings()[-1].detail or "")
        # A conversation that begins meanwhile is one to go on from.
        other = Talk(rig, "s2")
        await other.turn()
        assert other.outcomes() == ["first"]
        rig.engine.holds_renders = False
        rig.engine.release()
        monkeypatch.setattr(prompts, "PATIENCE_S", 5.0)
        monkeypatch.setattr(engines.EngineState, "rests", False)
        await talk.turn()
        await other.turn()
        assert (talk.outcomes()[-1], other.outcomes()[-1]) == ("exact", "exact")


async def test_nothing_is_known_of_a_hung_engine_and_it_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with exact_rig(tmp_path) as rig:
        monkeypatch.setattr(prompts, "PATIENCE_S", 0.1)
        await rig.parts.fleet.members[0].facts()
        rig.engine.holds_renders = True
        talk = await begun(rig)
        asked = len(renders(rig))
        await talk.turns(2)
        assert len(renders(rig)) == asked
        assert talk.outcomes() == ["fallback: render_failed"] * 4


async def test_an_engine_that_was_replaced_between_two_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = toy_tokenizer.prompt_ids

    def thinking(messages: Any, tools: Any = None, *, begun: bool = True) -> list[int]:
        return real(messages, tools, begun=begun) + (encode("<think>") if begun else [])

    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig, 3)
        monkeypatch.setattr(toy_tokenizer, "prompt_ids", thinking)
        monkeypatch.setattr(engines, "LOOK_S", 0.0)
        life = rig.parts.fleet.members[0].life
        await talk.turns(3)
        assert rig.parts.fleet.members[0].life == life + 1
        assert talk.outcomes()[3:] == ["fallback: template_changed", "exact", "exact"]


async def test_a_reasoning_parser_that_finds_the_thoughts_of_earlier_turns(tmp_path: Path) -> None:
    """With such an engine the new turn's thoughts would be text in a stream, and a grammar would hold at once."""
    async with exact_rig(tmp_path) as rig:
        rig.engine.finds_old_thoughts = True
        talk = await begun(rig)
        assert talk.outcomes() == ["fallback: engine_unable"] * 2
        assert "--reasoning-parser" in (talk.promptings()[0].detail or "")
        assert forced(rig) == []
        assert "--reasoning-parser" in (await rig.parts.exact.refusal(rig.parts.fleet.members[0]) or "")
