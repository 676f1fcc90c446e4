"""Templates that write the day, or that a word of the conversation tells how turns begin."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import answer, toy_tokenizer
from tests.fakes.toy_tokenizer import decode, encode
from tests.proxy.exact.talk import Talk, exact_rig, forced, renders

Rendered = Callable[..., list[int]]
REAL: Rendered = toy_tokenizer.prompt_ids
Messages = Sequence[Mapping[str, Any]]


def patch(monkeypatch: pytest.MonkeyPatch, before: str = "", after: Callable[[Messages], str] = lambda _: "") -> None:
    """The engine's template writes this before a conversation, and after what begins the assistant's turn."""

    def rendered(messages: Messages, tools: Any = None, *, begun: bool = True) -> list[int]:
        ids = encode(before) + REAL(messages, tools, begun=begun)
        return ids + encode(after(messages)) if begun else ids

    monkeypatch.setattr(toy_tokenizer, "prompt_ids", rendered)
    monkeypatch.setattr(answer, "prompt_ids", rendered)


async def test_a_template_may_write_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch, "Today is 30 Nov.")
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(4)
        patch(monkeypatch, "Today is 1 Dec.")
        await talk.turns(3)
        talk.assert_exact()
        before = len(renders(rig))
        await talk.turns(2)
        assert len(renders(rig)) == before + 2
        other = Talk(rig, "s2")
        await other.turns(4)
        other.assert_exact()
        assert decode(other.calls()[-1].call.prompt_token_ids or ()).count("Today is 1 Dec.") == 1
    patch(monkeypatch, "Today is 2 Dec.")
    async with exact_rig(tmp_path) as rig:
        talk.rig = rig
        await talk.turns(2)
        talk.assert_exact()


async def test_a_word_in_the_system_prompt_tells_how_turns_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thinks_not(messages: Messages) -> str:
        return "<think></think>" if "/no_think" in messages[0]["content"] else ""

    patch(monkeypatch, after=thinks_not)
    async with exact_rig(tmp_path) as rig:
        system = {"role": "system", "content": "Be brief. /no_think"}
        talk = Talk(rig, messages=[system, {"role": "user", "content": "hi"}])
        await talk.turns(3)
        assert talk.outcomes() == ["first", "exact", "exact"]
        assert all(decode(prompt).endswith("<|im_start|>assistant\n<think></think>") for prompt in forced(rig))


async def test_a_template_that_was_exchanged_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(3)
        patch(monkeypatch, after=lambda _: "<think>")
        await talk.turns(1)
        assert talk.outcomes() == ["first", "exact", "exact", "fallback: no_boundary"]
