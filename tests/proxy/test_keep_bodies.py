"""Requests are stored as they were sent, or only where something went wrong, or not at all; tokens always are."""

import pytest

from tests.fakes import Faults, always, compose
from tests.proxy.rig import Starter

KEPT = [("full", True, True), ("errors", False, True), ("none", False, False)]


@pytest.mark.parametrize(("setting", "of_completed", "of_failed"), KEPT)
async def test_which_bodies_are_kept(start: Starter, setting: str, of_completed: bool, of_failed: bool) -> None:
    for session, faults, kept in (("fine", Faults(), of_completed), ("failed", Faults(status=400), of_failed)):
        rig = await start(always(compose("one two"), faults=faults), keep_bodies=setting)
        await rig.ask(prefix=f"/s/{session}")
        call = (await rig.call(session)).call
        assert bool(call.request_body) is kept
        assert call.shape is not None
        assert call.shape.messages == 1
        assert bool(call.completions) is (session == "fine")
        assert (call.prompt_token_ids is not None) is (session == "fine")
