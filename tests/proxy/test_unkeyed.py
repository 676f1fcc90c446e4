"""Calls that name no session are kept: each conversation becomes a session of its own, never one bag of everything."""

from typing import Any

import pytest

from polarproxy.proxy.roots import Roots
from tests.fakes import Tool, compose
from tests.fakes.script import Script, Turn
from tests.proxy.rig import BODY, Answer, Rig, Starter

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(answer: Answer) -> Message:
    """The assistant's message, as a harness puts it into its next request."""
    message: Message = answer.json["choices"][0]["message"]
    return {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}


async def ask(rig: Rig, *messages: Message, **more: Any) -> Answer:
    return await rig.ask({**BODY, "messages": list(messages), **more}, prefix="")


def turns_by_session(rig: Rig) -> list[int]:
    """How many calls each session has, oldest session first."""
    repository = rig.parts.repository
    return [len(repository.calls(session_id)) for session_id in repository.session_ids()]


def distinct() -> Script:
    return Script(tuple(Turn((compose(f"reply {number}"),)) for number in range(50)))


async def test_a_conversation_that_goes_on_stays_in_its_session(start: Starter) -> None:
    rig = await start(distinct())
    messages = [user("hi")]
    for number in range(4):
        answer = await ask(rig, *messages)
        messages += [said(answer), user(f"more {number}")]
    assert turns_by_session(rig) == [4]
    (summary,) = rig.parts.repository.sessions()
    assert (summary.session.origin, summary.session.status) == ("root", "open")


async def test_two_interleaved_conversations_are_two_sessions(start: Starter) -> None:
    rig = await start(distinct())
    left, right = [user("left")], [user("right")]
    for number in range(3):
        for messages in (left, right):
            answer = await ask(rig, *messages)
            messages += [said(answer), user(f"more {number}")]
    assert turns_by_session(rig) == [3, 3]
    for session_id in rig.parts.repository.session_ids():
        bodies = {captured.call.request_body.count(b"left") for captured in rig.calls(session_id)}
        assert bodies in ({0}, {1})


async def test_the_same_first_message_twice_is_two_sessions(start: Starter) -> None:
    rig = await start(distinct())
    first, second = await ask(rig, user("hi")), await ask(rig, user("hi"))
    assert turns_by_session(rig) == [1, 1]
    await ask(rig, user("hi"), said(second), user("b"))
    await ask(rig, user("hi"), said(first), user("a"))
    assert turns_by_session(rig) == [2, 2]
    sessions = rig.parts.repository.session_ids()
    assert [rig.calls(session)[1].call.request_body[-5:] for session in sessions] == [b'a"}]}', b'b"}]}']


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_turn_is_recognised_whichever_way_it_was_asked_for(start: Starter, stream: bool) -> None:
    tools = [Tool("f", '{"a":1,  "b":2}')]
    rig = await start(Script((Turn((compose("Hm.", reasoning="I see.", tools=tools),)), Turn((compose("done"),)))))
    await ask(rig, user("hi"), stream=stream)
    # Harnesses write arguments and content anew, and leave the reasoning out.
    call = {"id": "chatcmpl-tool-0000000000000000", "type": "function"}
    reply = {"role": "assistant", "tool_calls": [{**call, "function": {"arguments": '{"a": 1, "b": 2}', "name": "f"}}]}
    parts = [{"type": "text", "text": "Hm."}]
    await ask(rig, user("hi"), {**reply, "content": parts}, {"role": "tool", "tool_call_id": "x", "content": "3"})
    assert turns_by_session(rig) == [2]


async def test_content_in_parts_is_the_same_content(start: Starter) -> None:
    rig = await start(distinct())
    answer = await ask(rig, user("hi"))
    parts = {"content": [{"type": "text", "text": "hi"}], "role": "user"}
    await ask(rig, parts, said(answer), user("more"))
    assert turns_by_session(rig) == [2]


async def test_a_turn_asked_again_stays_in_its_session(start: Starter) -> None:
    rig = await start(distinct())
    answer = await ask(rig, user("hi"))
    for _ in range(2):
        await ask(rig, user("hi"), said(answer), user("more"))
    assert turns_by_session(rig) == [3]


async def test_another_system_prompt_is_another_conversation(start: Starter) -> None:
    rig = await start(distinct())
    for text in ("a", "b"):
        await ask(rig, {"role": "system", "content": text}, user("hi"))
    assert turns_by_session(rig) == [1, 1]


async def test_a_named_session_is_never_a_root(start: Starter) -> None:
    rig = await start(distinct())
    answer = await ask(rig, user("hi"))
    await rig.ask({**BODY, "messages": [user("hi"), said(answer), user("more")]}, prefix="/s/named")
    assert sorted(turns_by_session(rig)) == [1, 1]


async def test_after_a_restart_the_calls_are_kept_all_the_same(start: Starter) -> None:
    first = await start(distinct())
    answer = await ask(first, user("hi"))
    second = await start(distinct())
    await ask(second, user("hi"), said(answer), user("more"))
    assert turns_by_session(second) == [1, 1]


async def test_a_request_that_the_engine_refused_is_kept(start: Starter) -> None:
    rig = await start(distinct())
    await ask(rig, user("hi"), model="nope")
    assert turns_by_session(rig) == [1]


def test_the_memory_of_conversations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polarproxy.proxy.roots._KEPT", 3)
    monkeypatch.setattr("polarproxy.proxy.roots._PER_PREFIX", 2)
    roots = Roots()
    for number in range(10):
        for _ in range(4):
            roots.answered(roots.place([b'{"role":"user","content":"%d"}' % number]), b'{"content":"x"}')
    assert len(roots._answered) == 3
    assert {len(entries) for entries in roots._answered.values()} == {2}
    assert roots.place([b'{"role":"user","content":"0"}', b'{"content":"x"}']).session_id.startswith("r")


@pytest.mark.parametrize("messages", [[], [b"1"], [b"{}", b"null"], [b'{"content":1e999}', b"{}"]], ids=repr)
def test_messages_that_are_none_start_a_session_too(messages: list[bytes]) -> None:
    roots = Roots()
    first, second = roots.place(messages), roots.place(messages)
    assert first.session_id != second.session_id
    roots.answered(first, None)


async def test_siblings_that_cannot_be_told_apart_are_split_rather_than_mixed(start: Starter) -> None:
    """A harness that trims what was said: its next turn could belong to any of the conversations that began alike."""
    rig = await start(distinct())
    for _ in range(4):
        await ask(rig, user("the same task"))
    for number in range(4):
        await ask(rig, user("the same task"), {"role": "assistant", "content": "repl"}, user(f"more {number}"))
    assert turns_by_session(rig) == [1] * 8


async def test_the_one_conversation_that_it_can_be_goes_on_though_trimmed(start: Starter) -> None:
    rig = await start(distinct())
    await ask(rig, user("a task"))
    await ask(rig, user("a task"), {"role": "assistant", "content": "repl"}, user("more"))
    assert turns_by_session(rig) == [2]
