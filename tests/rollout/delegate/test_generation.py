"""Replies that a trainer asks for by messages are calls of their session, with the engine's own ids and logprobs."""

import asyncio
from pathlib import Path

import pytest

from polarproxy.errors import BadRequest
from polarproxy.model import SessionStatus
from polarproxy.rollout.delegate.generation import Generation
from polarproxy.rollout.delegate.messages import GenerateRequest
from tests.fakes import Faults, Received, Turn, always, compose
from tests.redirects import redirecting
from tests.rollout.delegate.desk import PACE, desk, generate

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SAID = Turn((compose("Hello you."),))


class Trouble:
    """The engine fails so many requests with this status."""

    def __init__(self, times: int, status: int = 500) -> None:
        self.left, self._status = times, status

    def __call__(self, request: Received) -> Turn:
        self.left -= 1
        return Turn(SAID.replies, Faults(status=self._status)) if self.left >= 0 else SAID


async def test_a_reply_has_what_was_sampled_and_is_a_call_of_the_session(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        sampling = {"temperature": 0.5, "max_tokens": 64}
        reply = await made.answer_to(generate(session_id="mine", sampling=sampling, tools=[TOOL], tool_choice="auto"))
        await made.worked_off()
        assert (reply["version"], reply["type"], reply["id"]) == ("v0", "generate_response", "g1")
        assert reply["session_id"] == "mine"
        assert reply["message"]["content"] == "Hello you."
        assert reply["finish_reason"] == "stop"
        (captured,) = made.made.rig.calls("mine")
        call = captured.call
        (sampled,) = call.completions
        assert call.prompt_token_ids is not None
        assert sampled.logprobs is not None
        assert reply["prompt_token_ids"] == list(call.prompt_token_ids)
        assert reply["token_ids"] == list(sampled.token_ids)
        assert reply["logprobs"] == list(sampled.logprobs)
        assert len(reply["logprobs"]) == len(reply["token_ids"]) > 1
        (sent,) = made.made.rig.received
        assert (sent.json["temperature"], sent.json["max_tokens"]) == (0.5, 64)
        assert (sent.json["tools"], sent.json["tool_choice"]) == ([TOOL], "auto")


async def test_a_request_that_comes_again_is_not_sampled_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.ask(generate())
        await made.ask(generate())
        first = await made.answer()
        assert await made.answer() == first
        assert await made.answer_to(generate()) == first
        assert len(made.made.rig.calls("s1")) == 1
        other = await made.answer_to(generate(sampling={"temperature": 0.1}))
        assert (other["type"], other["id"]) == ("error", "g1")
        assert len(made.made.rig.calls("s1")) == 1


async def test_what_the_engine_failed_is_tried_again(tmp_path: Path) -> None:
    async with desk(tmp_path, script=Trouble(2)) as made:
        reply = await made.answer_to(generate())
        assert reply["type"] == "generate_response"
        assert ["500" in text for text in made.said] == [True, True]


async def test_and_not_for_ever(tmp_path: Path) -> None:
    trouble = Trouble(1000)
    async with desk(tmp_path, script=trouble) as made:
        reply = await made.answer_to(generate())
        await made.worked_off()
        assert (reply["type"], reply["id"]) == ("error", "g1")
        assert "500" in reply["error"]
        assert len(made.said) == 5
        # Asked for once more by the trainer, it is tried once more.
        trouble.left = 0
        assert (await made.answer_to(generate()))["type"] == "generate_response"


async def test_a_closed_session_takes_no_more(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.made.gateway.open_session("over", {})
        await made.made.gateway.close_session("over", SessionStatus.COMPLETED)
        reply = await made.answer_to(generate(session_id="over"))
        assert reply["type"] == "error"
        assert "closed" in reply["error"]


async def test_an_engine_without_ids_gives_none(tmp_path: Path) -> None:
    bare = always(compose("Hello you."), faults=Faults(no_prompt_ids=True, no_token_ids=True, no_logprobs=True))
    async with desk(tmp_path, script=bare) as made:
        reply = await made.answer_to(generate())
        assert reply["message"]["content"] == "Hello you."
        assert (reply["prompt_token_ids"], reply["token_ids"], reply["logprobs"]) == (None, None, None)


async def test_a_reply_under_way_when_the_delegate_stops_goes_back_to_the_queue(tmp_path: Path) -> None:
    slow = always(compose("Hello you."), faults=Faults(first_byte_delay=1.0))
    async with desk(tmp_path, script=slow, working=False) as made:
        await made.ask(generate())
        async with made.working():
            async with asyncio.timeout(10):
                while not made.made.rig.received:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        async with made.working(PACE):
            assert (await made.answer())["type"] == "generate_response"
            await made.worked_off()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_neither_the_key_nor_what_was_said_goes_where_a_redirect_leads(status: int) -> None:
    request = GenerateRequest(version="v0", id="g1", session_id="s", messages=[{"role": "user", "content": "hello"}])
    with redirecting(status) as there:
        async with Generation(there.url, lambda _: "sk-polar-s") as generation:
            with pytest.raises(BadRequest, match=str(status)):
                await generation.answer(request)
    assert (len(there.asked), there.followed) == (1, False)
