"""A short run of the crash test, and proof that its comparison would notice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.crash.check import compare
from tests.crash.kill_proxy import run, stored_calls

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_no_reply_is_lost_when_the_proxy_is_killed(tmp_path: Path) -> None:
    outcome = await run(6, tmp_path, seed=20_261_130, clients=16)

    assert not outcome.refused, outcome.refused[:5]
    assert not outcome.wrong, [str(wrong) for wrong in outcome.wrong[:5]]
    assert outcome.verify_status == 0, outcome.verify_output
    assert {seen.streamed for seen in outcome.seen} == {True, False}
    assert len({len(seen.prompt_token_ids) for seen in outcome.seen}) > 1

    stored = stored_calls(f"sqlite:///{tmp_path}/polar.db")
    first = outcome.seen[0]
    unstored = [replace(first, serial=10**6)]
    other_prompt = [replace(first, prompt_token_ids=first.prompt_token_ids[:-1])]
    other_session = [replace(first, session_id="another")]
    for ledger in (unstored, other_prompt, other_session):
        assert list(compare(ledger, stored)), "the comparison must notice a planted difference"
    assert list(compare([first], stored + stored)), "the comparison must notice a reply that is stored twice"
