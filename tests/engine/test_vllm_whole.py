"""Reading a whole reply in one pass gives what reading it twice gives, or nothing at all."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.engine import vllm_whole
from polarproxy.engine.vllm import Asked, Reader
from polarproxy.engine.vllm_whole import read_whole
from polarproxy.errors import BadReply
from polarproxy.model import TokenIds

TEXT = st.text(max_size=6)
VALUE = st.one_of(st.none(), st.floats(-20, 0, width=32), st.integers(-5, 0))
TOP = st.lists(st.fixed_dictionaries({"token": TEXT, "logprob": VALUE, "bytes": st.none()}), max_size=2)
USUAL = ["index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids"]


@st.composite
def entries(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(
        st.sampled_from(
            [["token", "logprob", "bytes", "top_logprobs"]] * 3 + [["top_logprobs", "logprob"], ["logprob"]]
        )
    )
    made = {"token": TEXT, "logprob": VALUE, "bytes": st.none(), "top_logprobs": TOP}
    return [{name: draw(made[name]) for name in names} for _ in range(draw(st.integers(0, 3)))]


@st.composite
def choice(draw: st.DrawFn, index: int) -> dict[str, Any]:
    """A choice; three of four have their members as vLLM has them."""
    ids = draw(st.lists(st.integers(0, 2**31 - 1), max_size=3))
    logprobs = {"content": draw(entries())}
    members = {
        "index": index,
        "message": {"content": draw(TEXT), "logprobs": None},
        "logprobs": draw(
            st.sampled_from([logprobs, logprobs, logprobs, None, {"content": None}, {**logprobs, "refusal": [1]}])
        ),
        "finish_reason": draw(st.sampled_from(["stop", "length", None])),
        "stop_reason": None,
        "token_ids": draw(st.sampled_from([ids, None])),
        "extra": {"content": [{"top_logprobs": []}]},
    }
    if draw(st.integers(0, 3)):
        return {name: members[name] for name in USUAL}
    return {name: members[name] for name in draw(st.permutations(sorted(members)))[: draw(st.integers(2, 7))]}


@st.composite
def replies(draw: st.DrawFn) -> bytes:
    body = {
        "id": "x",
        "choices": [draw(choice(index)) for index in range(draw(st.integers(0, 2)))],
        "model": "m",
        "prompt_token_ids": draw(st.sampled_from([[1, 2], [1, 2], [], None, "]", ["]"], [[1], 2], {"a": [1]}])),
    }
    if draw(st.booleans()):
        # Not the prompt's ids, though they look like them.
        elsewhere = draw(st.sampled_from(["a", "messages", "prompt_token_ids"]))
        body[elsewhere] = {"prompt_token_ids": [3]} if draw(st.booleans()) else '"prompt_token_ids":[3]'
        body = dict(draw(st.permutations(list(body.items()))))
    separators = draw(st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), (",", ":\n ")]))
    return json.dumps(body, separators=separators, ensure_ascii=draw(st.booleans())).encode()


def read(data: bytes, asked: Asked) -> tuple[object, ...]:
    made = Reader(asked)
    try:
        view: object = made.body(data)
    except BadReply as error:
        # The ids of a prompt that are none are told in other words when they were cut out first.
        view = type(error)
    capture = made.capture
    try:
        done: object = [
            (one.index, one.token_ids, one.logprobs and one.logprobs.raw, one.finish_reason)
            for one in capture.completions()
        ]
    except BadReply as error:
        done = str(error)
    ids = (
        {token_id for one in capture.choices.values() for token_id in one.token_ids()} if isinstance(done, list) else ()
    )
    texts = capture.token_texts(ids) if ids else None
    return view, done, capture.prompt, capture.model, texts


@given(replies(), st.builds(Asked, prompt_ids=st.booleans(), token_ids=st.booleans()))
def test_one_pass_or_two(data: bytes, asked: Asked) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "_cut_in_one_pass", lambda _self, _data: None)
        twice = read(data, asked)
    assert read(data, asked) == twice


def whole(
    logprobs: str = '{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]}', more: str = ""
) -> bytes:
    choice = (
        f'{{"index":0,"message":{{"content":"a"}},"logprobs":{logprobs},{more}"finish_reason":"stop","token_ids":[7]}}'
    )
    return f'{{"choices":[{choice}]}}'.encode()


def test_a_reply_as_vllm_writes_it_is_read_in_one_pass() -> None:
    found = read_whole(whole(), cut_prompt=False, cut_sampled=False)
    assert found is not None
    assert (json.loads(bytes(found.logprobs))["content"][0]["token"], found.numbers) == ("a", [-0.5])
    assert json.loads(Reader(Asked()).body(whole()))["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("more", ['"x":1,', '"x":{"content":[{"top_logprobs":[]}]},', '"x":[{"a":[{}]}],'])
def test_with_another_member_in_between_nothing_is_guessed(more: str) -> None:
    assert read_whole(whole(more=more), cut_prompt=True, cut_sampled=True) is None
    cut = json.loads(Reader(Asked()).body(whole(more=more)))["choices"][0]
    assert (cut["logprobs"], "x" in cut) == (None, True)


def test_prompt_ids_are_cut_out_before() -> None:
    found = read_whole(whole()[:-1] + b',"prompt_token_ids":[1,2],"x":[3]}', cut_prompt=True, cut_sampled=True)
    assert found is not None
    left = whole("null").replace(b"[7]", b"null")
    assert (bytes(found.prompt), found.sampled, found.view) == (
        b"[1,2]",
        TokenIds.of([7]),
        left[:-1] + b',"prompt_token_ids":null,"x":[3]}',
    )


def test_of_several_choices_none_is_cut_out_before() -> None:
    two = whole()[:-2] + whole().removeprefix(b'{"choices":[').replace(b'"index":0', b'"index":1').join((b",", b""))
    assert read_whole(two, cut_prompt=True, cut_sampled=True) is None
    assert [choice["logprobs"] for choice in json.loads(Reader(Asked()).body(two))["choices"]] == [None, None]


def test_logprobs_of_something_else_stay() -> None:
    """Inside the message stands what the choice's own would look like."""
    own = '"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]},"finish_reason":"x"'
    data = f'{{"choices":[{{"index":0,"message":{{"content":"a",{own}}},"logprobs":null,"token_ids":[7]}}]}}'.encode()
    assert read_whole(data, cut_prompt=True, cut_sampled=True) is None
    assert json.loads(Reader(Asked()).body(data))["choices"][0]["message"]["logprobs"]["content"][0]["token"] == "a"


@pytest.mark.parametrize(
    "more", ['"x":{"prompt_token_ids":[1,2]}', '"prompt_token_ids":null,"x":{"prompt_token_ids":[1]}']
)
def test_prompt_ids_of_something_else_stay(more: str) -> None:
    data = whole()[:-1] + f",{more}}}".encode()
    assert read_whole(data, cut_prompt=True, cut_sampled=True) is None
    made = Reader(Asked())
    assert (json.loads(made.body(data))["x"], made.capture.prompt) == (json.loads(f"{{{more}}}")["x"], None)


@pytest.mark.parametrize("name", ['"prompt_token_ids": ', '"prompt_token_ids" :', '"prompt_token_id\\u0073":'])
@pytest.mark.parametrize("asked", [Asked(), Asked(token_ids=True)], ids=["nothing", "its own ids"])
def test_prompt_ids_are_kept_from_the_client_however_they_are_written(name: str, asked: Asked) -> None:
    reader = Reader(asked)
    view = json.loads(reader.body(whole().replace(b"{", f"{{{name}[1,2],".encode(), 1)))
    assert view["prompt_token_ids"] is None
    assert list(reader.capture.prompt or ()) == [1, 2]


def test_a_reply_that_is_nested_too_deeply_cannot_be_read() -> None:
    deep = whole(more=f'"x":{"[" * 5000}{"]" * 5000},')
    with pytest.raises(BadReply):
        Reader(Asked()).body(deep)
    with pytest.raises(BadReply):
        Reader(Asked()).event(deep)


@pytest.mark.parametrize("ids", ["[7", "[7,x]", "[7}8]", "[7 8]", "[7,]", "[7, ]", "[ ,7]", "[007]"])
@pytest.mark.parametrize("member", ['"token_ids":[7]', '"prompt_token_ids":[1]'])
def test_what_is_cut_out_must_be_ids_or_the_reply_is_none(ids: str, member: str) -> None:
    """Cut out, what is broken would look whole to the client."""
    data = whole()[:-1] + b',"prompt_token_ids":[1]}'
    name = member.partition(":")[0]
    with pytest.raises(BadReply):
        Reader(Asked()).body(data.replace(member.encode(), f"{name}:{ids}".encode()))


def test_a_mark_that_the_reply_has_of_its_own_tells_nothing() -> None:
    """Of two members of one name the later counts: here that is a number, and no logprobs."""
    again = whole().replace(b'"token_ids"', b'"logprobs":%b,"token_ids"' % vllm_whole._LOGPROBS_CUT)
    assert read_whole(again, cut_prompt=True, cut_sampled=True) is None
