"""Reasoning of earlier turns belongs to a conversation: with other reasoning it is another one, though it says the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes import Reply, Tool, compose
from tests.fakes.toy_tokenizer import decode
from tests.proxy.exact.talk import Talk, exact_rig, forced

CALL = Tool("weather", '{"city": "Paris"}')


async def keeping(talk: Talk) -> None:
    """One turn of a client that sends reasoning back."""
    at = len(talk.messages)
    said = await talk.turn()
    talk.messages[at]["reasoning"] = said["reasoning"]


async def test_earlier_reasoning_that_was_edited_is_another_conversation(tmp_path: Path) -> None:
    def reply(messages: Sequence[dict[str, Any]]) -> Reply:
        turn = sum(message["role"] == "assistant" for message in messages)
        return compose(None, reasoning=f"Thought {turn}.", tools=[CALL])

    async with exact_rig(tmp_path, reply) as rig:
        talk = Talk(rig)
        for _ in range(3):
            await keeping(talk)
        talk.messages[1]["reasoning"] = "Edited."
        await keeping(talk)
        assert talk.outcomes() == ["first", "exact", "exact", "fallback: reasoning_edited"]
        # From there on the conversation with the edited reasoning is one of its own.
        await keeping(talk)
        assert talk.outcomes()[-1] == "exact"
        assert "Edited." in decode(forced(rig)[-1])


async def test_two_agents_that_differ_in_their_reasoning_alone(tmp_path: Path) -> None:
    said = iter(range(100))

    def reply(messages: Sequence[dict[str, Any]]) -> Reply:
        if len(messages) == 1:
            return compose(None, reasoning=f"Agent {next(said)}.", tools=[CALL])
        return compose("It is 18 degrees.")

    async with exact_rig(tmp_path, reply) as rig:
        agents = [Talk(rig), Talk(rig)]
        for agent in agents:
            await keeping(agent)
        for agent in agents:
            await agent.turn()
        for number, agent in enumerate(agents):
            await agent.turn()
            prompt = decode(forced(rig)[-1])
            assert f"Agent {number}." in prompt
            assert f"Agent {1 - number}." not in prompt
