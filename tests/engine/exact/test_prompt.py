"""The exact prompt, or the reason why there is none, over toy templates of which every token can be seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from polarproxy.engine.exact.conversation import rendered_ids
from polarproxy.engine.exact.prompt import Exact, Fallback, Plan, Recorded, Renderings, exact, plan
from polarproxy.errors import BadReply
from polarproxy.model import FallbackReason, FinishReason, TokenIds
from tests.engine.exact.toys import CALLS, MARKS, PLAIN, TEMPLATES, looped, proxy_of
from tests.fakes.rendering.renderer import render, toy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engine.exact.proxying import Asked, Proxy
    from tests.fakes.rendering.renderer import Templated

Json = dict[str, Any]

ASK: Json = {"role": "user", "content": "ask"}
NEXT: Json = {"role": "user", "content": "next"}
SYSTEM: Json = {"role": "system", "content": "be"}
BEGINS = TokenIds.of(toy(PLAIN, MARKS).encode("<s>assistant:"))
"""What a recorded prompt ends with."""


def call(*ids: str, arguments: str = '{"a":1}') -> Json:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id: str = "c1", content: str = "done") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def say(content: str = "said") -> Json:
    return {"role": "assistant", "content": content}


class Session:
    """A session over a toy template, one turn after the other."""

    def __init__(self, template: str, *, tools: bool = False) -> None:
        self.renderer: Templated
        self.proxy: Proxy
        self.renderer, self.proxy = proxy_of(template, tools=tools)
        self.given: Json = {"tools": [{"type": "function", "function": {"name": "f"}}]} if tools else {}

    def sampled(
        self,
        text: str,
        *before: Json,
        reply: Json,
        finish: FinishReason | None = FinishReason.STOP,
        stop_reason: str | None = None,
        prompt: str | None = None,
    ) -> Recorded:
        """The model said `text` after these messages, which is told to the harness as `reply`. `prompt`: as if rendered so."""
        ids = self.renderer.encode
        rendered = render(self.renderer, json.dumps(self._body(before)).encode()) if prompt is None else ids(prompt)
        recorded = Recorded(TokenIds.of(rendered), TokenIds.of(ids(text)), finish, stop_reason)
        self.proxy.answered(self._body(before), [reply], [recorded])
        return recorded

    def _body(self, messages: tuple[Json, ...], **members: Any) -> Json:
        return {"model": "m", "messages": list(messages)} | self.given | members

    def ask(self, *messages: Json, **members: Any) -> Asked:
        return self.proxy.ask(self._body(messages, **members))

    def text(self, asked: Asked) -> str:
        """What follows the recorded tokens."""
        assert isinstance(asked.outcome, Exact), asked.outcome
        return self.renderer.decode(list(asked.outcome.prompt.cut(asked.outcome.kept)))


def reason(asked: Asked) -> FallbackReason:
    assert isinstance(asked.outcome, Fallback)
    return asked.outcome.reason


def test_the_prompt_is_what_was_sampled_and_what_follows_it() -> None:
    session = Session(PLAIN)
    recorded = session.sampled("so id<e>", ASK, reply=say("so id"))
    asked = session.ask(ASK, say(" so id\n"), NEXT)
    assert isinstance(asked.outcome, Exact)
    assert asked.outcome.prompt.startswith(recorded.prompt + recorded.completion)
    assert asked.outcome.kept == len(recorded.prompt) + len(recorded.completion)
    assert session.text(asked) == "\n<s>user:next<e>\n<s>assistant:"


@pytest.mark.parametrize(
    ("sampled", "finish", "stop_reason"),
    [
        ("cut he", FinishReason.LENGTH, None),
        ("cut he", FinishReason.ABORT, None),
        ("cut he", None, None),
        ("said STOP", FinishReason.STOP, "STOP"),
    ],
)
def test_a_turn_that_did_not_end_is_ended_as_the_template_ends_it(
    sampled: str, finish: FinishReason | None, stop_reason: str | None
) -> None:
    session = Session(PLAIN)
    session.sampled(sampled, ASK, reply=say(), finish=finish, stop_reason=stop_reason)
    assert session.text(session.ask(ASK, say(), NEXT)) == "<e>\n<s>user:next<e>\n<s>assistant:"


def test_a_turn_that_was_cut_after_its_end_is_not_ended_twice() -> None:
    session = Session(PLAIN)
    session.sampled("said<e>", ASK, reply=say(), finish=FinishReason.LENGTH)
    assert session.text(session.ask(ASK, say(), NEXT)) == "\n<s>user:next<e>\n<s>assistant:"


@pytest.mark.parametrize(("sampled", "stop_reason"), [("said<x>", None), ("said.", "46"), ("said<x>", "258")])
def test_a_turn_that_ended_with_another_token_falls_back(sampled: str, stop_reason: str | None) -> None:
    session = Session(PLAIN)
    recorded = session.sampled(sampled, ASK, reply=say())
    last = str(list(recorded.completion)[-1])
    session = Session(PLAIN)
    session.sampled(sampled, ASK, reply=say(), stop_reason=stop_reason and last)
    assert reason(session.ask(ASK, say(), NEXT)) is FallbackReason.CLOSE_DIFFERS


def test_a_turn_is_not_ended_by_a_token_that_stands_after_its_end() -> None:
    """A client's own stop token may be one that the template writes elsewhere."""
    session = Session(PLAIN)
    colon = session.renderer.encode(":")[0]
    session.sampled("said:", ASK, reply=say(), stop_reason=str(colon))
    assert reason(session.ask(ASK, say(), NEXT)) is FallbackReason.CLOSE_DIFFERS


def test_results_follow_calls() -> None:
    session = Session(PLAIN, tools=True)
    session.sampled('<call>f {"a" :1}</call><e>', ASK, reply=call("c1", "c2"), finish=FinishReason.TOOL_CALLS)
    asked = session.ask(ASK, call("x", "y", arguments='{"a": 1.0}'), result("y", "two"), result("x", "one"), NEXT)
    assert session.text(asked) == "\n<s>tool:two<e>\n<s>tool:one<e>\n<s>user:next<e>\n<s>assistant:"


@pytest.mark.parametrize("word", ["zebra", "quick", "zebra quick"])
def test_a_result_may_say_the_words_of_the_stand_ins(word: str) -> None:
    session = Session(PLAIN, tools=True)
    session.sampled("<call>f {}</call><e>", ASK, reply=call("c1"), finish=FinishReason.TOOL_CALLS)
    asked = session.ask(ASK, call("c1"), result(content=word))
    assert session.text(asked) == f"\n<s>tool:{word}<e>\n<s>assistant:"


def test_calls_may_end_with_a_token_of_their_own() -> None:
    session = Session(TEMPLATES["calls end otherwise"])
    session.sampled("<call>f</call><c>", ASK, reply=call("c1"), finish=FinishReason.TOOL_CALLS)
    asked = session.ask(ASK, call("c1"), result())
    # The template shows other arguments for those that are no JSON, so that its end of calls is not known.
    assert reason(asked) is FallbackReason.NO_BOUNDARY


@pytest.mark.parametrize("length", [2, 6])
def test_where_turns_are_numbered_the_whole_conversation_is_rendered(length: int) -> None:
    session = Session(TEMPLATES["numbered turns"])
    head = [message for _ in range(length // 2 - 1) for message in (ASK, say("old"))] + [ASK]
    session.sampled("said<e>", *head, reply=say())
    number = len(head) + 2
    expected = f"\n<s>{number} user:next<e>\n<s>assistant:"
    assert session.text(session.ask(*head, say(), NEXT)) == expected


def test_turns_that_are_not_recorded_are_rendered_as_they_were_sent() -> None:
    session = Session(PLAIN)
    session.sampled("said<e>", ASK, reply=say())
    asked = session.ask(ASK, say(), NEXT, say("edited"), NEXT)
    assert asked.turn == 1
    assert session.text(asked) == "\n<s>user:next<e>\n<s>assistant:edited<e>\n<s>user:next<e>\n<s>assistant:"


def test_turns_that_are_not_recorded_need_the_whole_conversation() -> None:
    _, proxy = proxy_of(PLAIN)
    messages = [msgspec.Raw(json.dumps(each).encode()) for each in (SYSTEM, ASK, say(), NEXT, say("edited"), NEXT)]
    planned = plan({}, messages, 2, proxy.facts, BEGINS, same_ids=True)
    assert isinstance(planned, Plan)
    assert not planned.reusable
    assert b'"be"' in planned.head


def test_the_longest_recorded_history_is_continued() -> None:
    session = Session(PLAIN)
    session.sampled("one<e>", ASK, reply=say("one"))
    longer = session.sampled("two<e>", ASK, say("one"), NEXT, reply=say("two"))
    fork = session.sampled("three<e>", ASK, say("one"), ASK, reply=say("three"))
    assert session.ask(ASK, say("one"), NEXT, say("two"), NEXT).recorded == longer
    assert session.ask(ASK, say("one"), ASK, say("three"), NEXT).recorded == fork
    assert session.ask(ASK, say("one"), ASK, say("two"), NEXT).turn == 1


def test_only_the_rest_of_a_conversation_is_rendered() -> None:
    """However long the conversation before it is, and however its turns were called, nothing of it is asked again."""

    def bodies(length: int, id: str) -> tuple[bytes, ...]:
        messages = [ASK, call(id), result(id)] * length
        planned = plan(
            {"model": msgspec.Raw(b'"m"')},
            [msgspec.Raw(json.dumps(each).encode()) for each in messages],
            len(messages) - 2,
            proxy.facts,
            BEGINS,
            same_ids=True,
        )
        assert isinstance(planned, Plan)
        assert planned.reusable
        return planned.head, planned.anchor, planned.other, planned.whole

    _, proxy = proxy_of(PLAIN)
    assert bodies(1, "call_a") == bodies(50, "call_b")


def test_renderings_are_kept() -> None:
    session = Session(PLAIN)
    session.sampled("one<e>", ASK, reply=say("one"))
    session.sampled("two<e>", ASK, say("one"), NEXT, reply=say("two"))
    session.ask(ASK, say("one"), NEXT)
    before = session.proxy.rendered
    session.ask(ASK, say("one"), NEXT, say("two"), ASK)
    assert session.proxy.rendered == before + 1


def begun(condition: str, before: str = "") -> str:
    """A template that begins a turn with a mark more where the condition holds."""
    after = (
        "{% if add_generation_prompt %}" + before + "<s>assistant:{% if " + condition + " %}<x>{% endif %}{% endif %}"
    )
    return looped("<s>{{ m.role }}:{{ m.content }}" + CALLS + "<e>\n", after=after)


OF_ANY_USER = (
    "{% set seen = namespace(it=false) %}{% for m in messages %}"
    "{% if m.role == 'user' and 'WORD' in m.content %}{% set seen.it = true %}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("word", ["/no_think", "hush"])
@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("long", [False, True])
def test_a_word_in_the_beginning_may_tell_how_turns_begin(word: str, role: str, long: bool) -> None:
    """One that the probe says, and one that it cannot know; in a system prompt that is rendered as it is, or a long one."""
    condition = f"'{word}' in messages[0].content" if role == "system" else "seen.it"
    session = Session(begun(condition, OF_ANY_USER.replace("WORD", word)))
    first = {"role": role, "content": ("be " * 2000 if long else "be ") + word}
    session.sampled("so<e>", first, ASK, reply=say("so"))
    assert session.text(session.ask(first, ASK, say("so"), NEXT)) == "\n<s>user:next<e>\n<s>assistant:<x>"


def test_a_word_after_a_turn_that_tells_how_the_next_one_begins_is_not_trusted() -> None:
    session = Session(begun("'hush' in messages[-1].content"))
    session.sampled("so<e>", ASK, reply=say("so"))
    hush = {"role": "user", "content": "hush"}
    assert reason(session.ask(ASK, say("so"), hush)) is FallbackReason.NO_BOUNDARY
    assert session.text(session.ask(ASK, say("so"), NEXT)) == "\n<s>user:next<e>\n<s>assistant:"


def test_a_long_conversation_may_begin_its_turns_otherwise() -> None:
    session = Session(begun("messages | length > 12"))
    history = [message for _ in range(8) for message in (ASK, say("old"))]
    session.sampled("so<e>", *history, ASK, reply=say("so"))
    assert session.text(session.ask(*history, ASK, say("so"), NEXT)) == "\n<s>user:next<e>\n<s>assistant:<x>"


def test_turns_after_results_may_begin_otherwise_and_need_no_whole_conversation() -> None:
    session = Session(begun("messages[-1].role == 'tool'"), tools=True)
    session.sampled("<call>f {}</call><e>", ASK, reply=call("c1"), finish=FinishReason.TOOL_CALLS)
    assert session.text(session.ask(ASK, call("c1"), result())) == "\n<s>tool:done<e>\n<s>assistant:<x>"
    session.sampled("so<e>", ASK, call("c1"), result(), reply=say("so"))
    assert session.text(session.ask(ASK, call("c1"), result(), say("so"), NEXT)) == "\n<s>user:next<e>\n<s>assistant:"
    session.sampled("so<e>", ASK, call("c1"), result(), say("so"), NEXT, reply=say("so"))
    before = session.proxy.rendered
    session.ask(ASK, call("c1"), result(), say("so"), NEXT, say("so"), ASK)
    assert session.proxy.rendered == before + 1


def test_small_system_prompts_are_rendered_as_they_are() -> None:
    def head(size: int) -> bytes:
        system = {"role": "system", "content": "b" * size}
        messages = [msgspec.Raw(json.dumps(each).encode()) for each in (system, ASK, say(), NEXT)]
        planned = plan({}, messages, 2, proxy_of(PLAIN)[1].facts, BEGINS, same_ids=True)
        assert isinstance(planned, Plan)
        assert planned.reusable
        return planned.head

    assert b"bbb" in head(4000)
    assert b"bbb" not in head(5000)


def test_ids_that_the_template_shows_must_be_those_that_were_recorded() -> None:
    session = Session(TEMPLATES["ids of calls"])
    session.sampled("<call>c1 f</call>{}<e>", ASK, reply=call("c1"), finish=FinishReason.TOOL_CALLS)
    assert session.text(session.ask(ASK, call("c1"), result("c1"))) == "\n<s>tool[c1]:done<e>\n<s>assistant:"
    assert reason(session.ask(ASK, call("own"), result("own"))) is FallbackReason.CALL_IDS


def test_what_changes_the_beginning_falls_back() -> None:
    session = Session(TEMPLATES["system in front"])
    session.sampled("said<e>", ASK, reply=say())
    assert reason(session.ask(ASK, say(), SYSTEM, NEXT)) is FallbackReason.TEMPLATE_REFUSED
    moved = Session(TEMPLATES["tools before the last question"], tools=True)
    moved.sampled("<call>f {}</call><e>", ASK, reply=call("c1"), finish=FinishReason.TOOL_CALLS)
    assert moved.text(moved.ask(ASK, call("c1"), result())) == "\n<s>tool:done<e>\n<s>assistant:"
    moved.sampled("said<e>", ASK, reply=say())
    assert reason(moved.ask(ASK, call("c1"), result(), NEXT)) is FallbackReason.HEAD_CHANGES
    assert reason(moved.ask(ASK, say(), NEXT)) is FallbackReason.TEMPLATE_REFUSED


def test_a_cut_before_the_text_cannot_be_ended() -> None:
    def cut(sampled: str) -> Asked:
        session = Session(TEMPLATES["a header before the text"])
        session.sampled(sampled, ASK, reply=say(), finish=FinishReason.LENGTH)
        return session.ask(ASK, say(), NEXT)

    assert reason(cut("<x>")) is FallbackReason.CUT_IN_HEADER
    assert reason(cut("<x>:told<e><s>assistant<x>")) is FallbackReason.CUT_IN_HEADER
    assert isinstance(cut("<x>:sai").outcome, Exact)


MESSAGES: tuple[tuple[str, Callable[[Session], Asked], FallbackReason], ...] = (
    ("edited", lambda session: session.ask(ASK, say("other"), NEXT), FallbackReason.NOT_RECORDED),
    ("another question", lambda session: session.ask(NEXT, say(), NEXT), FallbackReason.NOT_RECORDED),
    ("prefill", lambda session: session.ask(ASK, say()), FallbackReason.PREFILL),
    ("prefill later", lambda session: session.ask(ASK, say(), NEXT, say("I")), FallbackReason.PREFILL),
    (
        "media",
        lambda session: session.ask(
            ASK, say(), {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
        ),
        FallbackReason.MEDIA,
    ),
    ("a result without a call", lambda session: session.ask(ASK, say(), result()), FallbackReason.TEMPLATE_REFUSED),
)


@pytest.mark.parametrize(("how", "asked", "expected"), MESSAGES, ids=[how for how, *_ in MESSAGES])
def test_conversations_that_fall_back(how: str, asked: Callable[[Session], Asked], expected: FallbackReason) -> None:
    session = Session(TEMPLATES["no tools at all"])
    session.sampled("said<e>", ASK, reply=say())
    assert reason(asked(session)) is expected


@pytest.mark.parametrize(
    "members",
    [
        {"add_generation_prompt": False},
        {"continue_final_message": True, "add_generation_prompt": False},
        {"echo": True},
        {"use_beam_search": True},
        {"truncate_prompt_tokens": 10},
        {"kv_transfer_params": {"do_remote_decode": True}},
    ],
)
def test_requests_for_another_prompt_fall_back(members: Json) -> None:
    session = Session(PLAIN)
    session.sampled("said<e>", ASK, reply=say())
    assert reason(session.ask(ASK, say(), NEXT, **members)) is FallbackReason.UNFIT_REQUEST


@pytest.mark.parametrize("name", ["add_generation_prompt", "continue_final_message"])
def test_what_a_template_is_told_may_not_change_the_kind_of_prompt(name: str) -> None:
    session = Session(PLAIN)
    renderer, body = session.renderer, {"model": "m", "messages": [ASK], "chat_template_kwargs": {name: False}}
    prompt = TokenIds.of(renderer.encode("<s>"))
    session.proxy.answered(body, [say()], [Recorded(prompt, prompt, None, None)])
    asked = session.proxy.ask(body | {"messages": [ASK, say(), NEXT]})
    assert reason(asked) is FallbackReason.UNFIT_REQUEST


@pytest.mark.parametrize(
    "members", [{"echo": False}, {"truncate_prompt_tokens": None}, {"add_generation_prompt": True}]
)
def test_what_changes_nothing_is_no_reason(members: Json) -> None:
    session = Session(PLAIN)
    session.sampled("said<e>", ASK, reply=say())
    assert isinstance(session.ask(ASK, say(), NEXT, **members).outcome, Exact)


def test_what_a_template_may_read_is_rendered_and_nothing_else_is_said() -> None:
    _, proxy = proxy_of(PLAIN)
    read = ("model", "tools", "tool_choice", "response_format", "chat_template_kwargs", "reasoning_effort", "documents")
    fields = {name: msgspec.Raw(b'"x"') for name in (*read, "max_tokens", "stream", "temperature", "metadata")}
    messages = [msgspec.Raw(json.dumps(each).encode()) for each in (ASK, say(), NEXT)]
    planned = plan(fields, messages, 1, proxy.facts, BEGINS, same_ids=True)
    assert isinstance(planned, Plan)
    for body in (planned.anchor, planned.other, planned.whole):
        assert json.loads(body).keys() == {*read, "messages"}
    assert json.loads(planned.head).keys() == {*read, "messages", "add_generation_prompt"}


def test_a_conversation_without_a_turn_has_nothing_to_go_on_from() -> None:
    assert Session(PLAIN).ask(SYSTEM, ASK).outcome is None


DEVELOPER: Json = {"role": "developer", "content": "be"}


def test_system_messages_that_the_engine_would_move_are_not_left_where_they_are() -> None:
    """vLLM moves every system message to the front of a conversation with one of a developer."""
    session = Session(PLAIN)
    session.sampled("said<e>", DEVELOPER, ASK, reply=say())
    messages = [msgspec.Raw(json.dumps(each).encode()) for each in (DEVELOPER, ASK, say(), SYSTEM, NEXT)]
    planned = plan({}, messages, 2, session.proxy.facts, BEGINS, same_ids=True)
    assert isinstance(planned, Plan)
    assert not planned.reusable
    assert b"developer" in planned.whole
    assert isinstance(session.ask(DEVELOPER, ASK, say(), NEXT).outcome, Exact)


def test_a_message_that_cannot_be_read_falls_back() -> None:
    _, proxy = proxy_of(PLAIN)
    outcome = plan({}, [msgspec.Raw(b'{"role":"user"}'), msgspec.Raw(b"[1]")], 0, proxy.facts, BEGINS, same_ids=True)
    assert isinstance(outcome, Fallback)
    assert outcome.reason is FallbackReason.UNREADABLE


@pytest.mark.parametrize("empty", ["prompt", "completion"])
def test_a_turn_without_tokens_falls_back(empty: str) -> None:
    session = Session(PLAIN)
    recorded = session.sampled("said<e>", ASK, reply=say())
    messages = [msgspec.Raw(json.dumps(each).encode()) for each in (ASK, say(), NEXT)]
    planned = plan({}, messages, 1, session.proxy.facts, BEGINS, same_ids=True)
    assert isinstance(planned, Plan)
    rendered = Renderings(
        *(render(session.renderer, body) for body in (planned.head, planned.anchor, planned.other, planned.whole))
    )
    assert isinstance(exact(planned, rendered, recorded), Exact)
    without = Recorded(
        TokenIds() if empty == "prompt" else recorded.prompt,
        TokenIds() if empty == "completion" else recorded.completion,
        FinishReason.STOP,
        None,
    )
    outcome = exact(planned, rendered, without)
    assert isinstance(outcome, Fallback)
    assert outcome.reason is FallbackReason.NO_TOKENS


@pytest.mark.parametrize("body", [b"{}", b'{"token_ids": "no"}', b"[", b'{"token_ids": [1.5]}', b"\xff"])
def test_an_answer_that_is_no_rendering_is_an_error(body: bytes) -> None:
    with pytest.raises(BadReply):
        rendered_ids(body)


def test_every_reason_has_a_sentence() -> None:
    sentences = {member.sentence for member in FallbackReason}
    assert len(sentences) == len(FallbackReason)
    assert all(len(sentence.split()) > 5 for sentence in sentences)
