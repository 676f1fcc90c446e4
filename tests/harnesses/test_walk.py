"""The guide `what-is-trained` says what its recording rebuilds into; the recording holds nothing that was not ours."""

import json

from tests.harnesses.kept import TOOLS
from tests.harnesses.story import Story, tell_story
from tests.harnesses.walk import PAGE, page, recorded


def test_the_guide_is_made_of_the_recording() -> None:
    assert PAGE.read_text() == page(), "python -m tests.harnesses.walk writes it anew"


def test_the_recorded_session_rebuilds_into_its_tree() -> None:
    calls = recorded()
    kinds = {"compaction": 1, "main": 6, "subagent": 1}
    assert tell_story(calls) == Story(kinds, {"failed": 1, "rejected": 1, "side_call": 1}, (1,))


def test_the_recording_has_no_prose_of_the_harness() -> None:
    """Every system prompt and tool description was replaced by made-up text."""
    for captured in recorded():
        body = json.loads(captured.call.request_body)
        said = [block["text"] for block in body["system"]] + [tool["description"] for tool in body["tools"]]
        assert all(text.startswith(("Text ", "name_", "x-anthropic-billing-header")) for text in said), said
        assert {tool["name"] for tool in body["tools"]} <= TOOLS
