"""The next request of a conversation is gone through from where the one before it ended, on its way through the proxy.

What is counted is the bytes of requests that are gone through: with each turn the history grows, what is read of it does not.
"""

import json
from typing import Any

import pytest

from polarproxy.wire.chat import begun, fields
from tests.proxy.rig import BODY, Rig, Starter

HISTORY = 20_000
TURN = 500
TURNS = 4


class Read:
    """How many bytes of each chat request were gone through. Stands in for the decoders that do it, and does as they do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        for module in (fields, begun):
            monkeypatch.setattr(module, "_fields", self._watched(module._fields))

    def _watched(self, decoder: Any) -> Any:
        read = self

        class Watched:
            def decode(self, body: bytes) -> Any:
                read.sizes.append(len(body))
                return decoder.decode(body)

        return Watched()


def conversation(turns: int, *, name: str = "x", **more: Any) -> dict[str, Any]:
    """A long beginning, and so many short turns."""
    said = [{"role": "user", "content": name + "h" * HISTORY}]
    for turn in range(turns):
        said += [{"role": "assistant", "content": f"{turn}" * TURN}, {"role": "user", "content": "go on"}]
    return {**BODY, "messages": said, **more}


async def served(rig: Rig, read: Read, turns: int, prefix: str = "/s/s1", **more: Any) -> int:
    """Bytes that were gone through for this request, which reaches the engine whole."""
    read.sizes.clear()
    asked = conversation(turns, **more)
    assert (await rig.ask(asked, prefix=prefix)).status == 200
    assert json.loads(rig.engine.requests[-1].body)["messages"] == asked["messages"]
    return sum(read.sizes)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    return Read(monkeypatch)


async def test_of_each_further_request_only_what_is_new_is_read(start: Starter, read: Read) -> None:
    rig = await start()
    first, *others = [await served(rig, read, turns) for turns in range(TURNS)]
    assert first > HISTORY
    assert max(others) < 3 * TURN
    bodies = [json.loads(captured.call.request_body) for captured in await rig.recorded(TURNS)]
    assert bodies == [conversation(turns) for turns in range(TURNS)]


async def test_sessions_go_on_each_from_its_own(start: Starter, read: Read) -> None:
    rig = await start()
    for turns, names in enumerate(("ab", "ba")):
        sizes = [await served(rig, read, turns, f"/s/{name}", name=name) for name in names]
        assert [size > HISTORY for size in sizes] == [turns == 0] * 2


async def test_a_request_that_begins_otherwise_is_read_whole_and_the_next_goes_on_from_it(
    start: Starter, read: Read
) -> None:
    rig = await start()
    assert await served(rig, read, 0) > HISTORY
    assert await served(rig, read, 1, name="another") > HISTORY
    assert await served(rig, read, 2, name="another") < 3 * TURN


async def test_a_request_that_names_no_session_is_read_whole(start: Starter, read: Read) -> None:
    """Nobody knows which one it follows before it was read."""
    rig = await start()
    assert [await served(rig, read, turns, "") > HISTORY for turns in range(2)] == [True] * 2
