"""The whole of it: twenty tasks four times, by a real coding agent in a sandbox, killed in the middle and gone on with.

`python -m tests.rollout.jobs.show` does the same with any harness.
"""

import os
from pathlib import Path

import pytest

from polarproxy.rollout.runtimes.bubblewrap import BubblewrapRuntime
from tests.rollout.jobs.katas import KATAS
from tests.rollout.jobs.show import Show, play

INSTALLED = os.environ.get("POLARPROXY_TEST_HARNESSES", "")


@pytest.mark.slow
@pytest.mark.skipif(BubblewrapRuntime.why_not() is not None, reason=str(BubblewrapRuntime.why_not()))
@pytest.mark.skipif(
    not any(Path(INSTALLED or "none").glob("claude-code-*/complete")), reason="needs: export $(.ci/setup-harnesses)"
)
async def test_claude_code_is_killed_in_the_middle_and_nothing_is_lost_or_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARPROXY_CACHE", str(Path(INSTALLED).parent))
    show = Show(tmp_path, ("claude-code",), len(KATAS), 4, rollouts=4, runtime="bubblewrap")
    assert show.wanted == 80
    assert await play(show, kill=True) == []
