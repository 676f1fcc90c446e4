"""llama.cpp: ids of its verbose reply, the prompt's ids of its tokenizer, and values only where every token has one."""

import json
import math
from typing import Any

import pytest

from polarproxy.engine.llamacpp import Reader, plan
from polarproxy.engine.plan import FollowUp
from polarproxy.errors import BadReply
from polarproxy.model import FinishReason, LogprobsMode, Sampling
from polarproxy.trajectory.eligibility import Reason, untrainable_tokens
from polarproxy.wire.chat.fields import read_request

NEUTRAL = {
    "seed": 7,
    "temperature": 1.0,
    "dynatemp_range": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "adaptive_target": -1.0,
    "max_tokens": 60,
    "grammar": "",
    "logit_bias": [],
}


def entry(token: int, value: float = -0.5) -> dict[str, Any]:
    return {"id": token, "token": "x", "bytes": [120], "logprob": value, "top_logprobs": []}


def choice(index: int = 0, tokens: tuple[int, ...] = (5, 6), finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": "hi", "reasoning_content": "hm"}
    logprobs = {"content": [entry(token) for token in tokens]}
    return {"finish_reason": finish, "index": index, "message": message, "logprobs": logprobs}


def answered(*choices: dict[str, Any], tokens: tuple[int, ...] = (5, 6), **settings: Any) -> dict[str, Any]:
    verbose = {"tokens": list(tokens), "prompt": "<|im_start|>user", "tokens_evaluated": 3}
    return {
        "choices": list(choices or (choice(),)),
        "created": 1,
        "model": "calc",
        "system_fingerprint": "b1",
        "object": "chat.completion",
        "usage": {"completion_tokens": 2, "prompt_tokens": 3, "total_tokens": 5},
        "id": "chatcmpl-1",
        "__verbose": {**verbose, "generation_settings": NEUTRAL | settings},
        "timings": {"prompt_n": 3},
    }


def read(reply: dict[str, Any], *, logprobs: bool = False) -> tuple[Reader, dict[str, Any]]:
    reader = Reader(logprobs=logprobs)
    return reader, json.loads(reader.body(json.dumps(reply).encode()))


def test_ids_logprobs_and_all_the_rest() -> None:
    reader, _ = read(answered())
    (completion,) = reader.capture.completions()
    assert list(completion.token_ids) == [5, 6]
    assert list(completion.logprobs or ()) == [-0.5, -0.5]
    assert completion.finish_reason is FinishReason.STOP
    assert (reader.capture.model, reader.capture.request_id) == ("calc", "chatcmpl-1")
    assert reader.capture.usage is not None
    assert reader.capture.usage.completion_tokens == 2


def test_the_client_does_not_see_what_it_did_not_ask_for() -> None:
    expected = answered()
    del expected["__verbose"], expected["choices"][0]["logprobs"]
    assert read(answered())[1] == expected


def test_a_client_that_asked_for_logprobs_sees_them() -> None:
    expected = answered()
    del expected["__verbose"]
    assert read(answered(), logprobs=True)[1] == expected


@pytest.mark.parametrize(
    "entries",
    [[entry(5)], [entry(5), entry(7)], [entry(6), entry(5)], [], [entry(5), entry(6), entry(6)]],
    ids=["one_lost", "another", "order", "all_lost", "one_more"],
)
def test_entries_that_are_not_those_of_the_ids_make_every_value_missing(entries: list[dict[str, Any]]) -> None:
    """Parts of a cut character and matched stop strings lose their entries, and it is not told which."""
    reader, _ = read(answered(choice() | {"logprobs": {"content": entries}}))
    (completion,) = reader.capture.completions()
    assert list(completion.token_ids) == [5, 6]
    assert [math.isnan(value) for value in completion.logprobs or ()] == [True, True]
    assert untrainable_tokens(completion) is Reason.BAD_LOGPROB


def test_a_reply_without_logprobs_has_none() -> None:
    bare = choice()
    del bare["logprobs"]
    (completion,) = read(answered(bare))[0].capture.completions()
    assert untrainable_tokens(completion) is Reason.BAD_LOGPROB


def test_of_several_choices_only_the_first_has_ids() -> None:
    reader, _ = read(answered(choice(0), choice(1, (8, 9))))
    first, second = reader.capture.completions()
    assert list(first.token_ids) == [5, 6]
    assert (list(second.token_ids), second.logprobs, second.index) == ([], None, 1)
    assert second.finish_reason is FinishReason.STOP


def tokenized(*ids: int) -> bytes:
    return json.dumps({"tokens": [{"id": token, "piece": "p"} for token in ids]}).encode()


def test_the_prompt_is_asked_of_the_servers_own_tokenizer() -> None:
    reader, _ = read(answered())
    follow_up = reader.follow_up()
    assert follow_up is not None
    assert follow_up.path == "/tokenize"
    asked = {"content": "<|im_start|>user", "add_special": True, "parse_special": True, "with_pieces": True}
    assert json.loads(follow_up.body) == asked
    reader.answer(tokenized(1, 2, 3))
    assert list(reader.capture.prompt or ()) == [1, 2, 3]


@pytest.mark.parametrize("ids", [(), (1, 2), (1, 2, 3, 4)])
def test_another_length_is_another_prompt_and_stays_unknown(ids: tuple[int, ...]) -> None:
    reader, _ = read(answered())
    reader.answer(tokenized(*ids))
    assert reader.capture.prompt is None
    assert reader.capture.prompt_texts == {}


def test_pieces_that_are_no_text_are_bytes() -> None:
    reader, _ = read(answered())
    reader.answer(b'{"tokens":[{"id":1,"piece":"\xc3\xbc"},{"id":2,"piece":[240,159]},{"id":3,"piece":""}]}')
    assert reader.capture.prompt_texts == {1: "ü".encode(), 2: b"\xf0\x9f", 3: b""}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"tokens": [1]}', b'{"tokens": [{"id": -1, "piece": ""}]}', b'{"error": {}}']
)
def test_a_tokenizer_that_answers_something_else_is_refused(data: bytes) -> None:
    reader, _ = read(answered())
    with pytest.raises(BadReply, match="tokenizer answered something else"):
        reader.answer(data)
    assert reader.capture.prompt is None


def test_before_a_reply_there_is_nothing_to_ask() -> None:
    assert Reader(logprobs=False).follow_up() is None
    assert isinstance(read(answered())[0].follow_up(), FollowUp)


@pytest.mark.parametrize("missing", ["choices", "__verbose"])
def test_a_reply_without_its_parts_is_refused(missing: str) -> None:
    reply = answered()
    del reply[missing]
    with pytest.raises(BadReply, match="no choices or no verbose part"):
        read(reply)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"error": {}}', b'{"choices": 7, "__verbose": {}}'])
def test_what_is_no_reply_is_refused(data: bytes) -> None:
    with pytest.raises(BadReply):
        Reader(logprobs=False).body(data)


def test_what_the_server_applied_is_known() -> None:
    applied = read(answered(temperature=0.7, top_k=20, top_p=0.95, min_p=0.05))[0].capture.applied
    assert applied == Sampling(
        temperature=0.7,
        top_p=0.95,
        top_k=20,
        min_p=0.05,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        max_tokens=60,
        seed=7,
        logprobs_mode=LogprobsMode.RAW,
    )


def mode(**settings: Any) -> LogprobsMode:
    applied = read(answered(**settings))[0].capture.applied
    assert applied is not None
    return applied.logprobs_mode


def test_with_every_sampler_off_raw_logprobs_are_the_sampling_distribution() -> None:
    assert mode() is LogprobsMode.PROCESSED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.7),
        ("dynatemp_range", 0.5),
        ("top_k", 20),
        ("top_p", 0.9),
        ("min_p", 0.1),
        ("top_n_sigma", 1.0),
        ("typical_p", 0.9),
        ("xtc_probability", 0.1),
        ("repeat_penalty", 1.1),
        ("presence_penalty", 0.1),
        ("frequency_penalty", 0.1),
        ("dry_multiplier", 0.8),
        ("mirostat", 2),
        ("adaptive_target", 0.5),
        ("grammar", "root ::= [0-9]"),
        ("logit_bias", [{"token": 1, "bias": -1.0}]),
    ],
)
def test_any_sampler_makes_them_raw(name: str, value: Any) -> None:
    assert mode(**{name: value}) is LogprobsMode.RAW


def sent(asked: dict[str, Any]) -> dict[str, Any]:
    made = plan(read_request(json.dumps(asked).encode()).fields, stream=True)
    assert not made.stream
    body: dict[str, Any] = json.loads(made.body)
    return body


def test_it_is_never_asked_to_stream() -> None:
    asked = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "x": 1}
    added = {"stream": False, "n_probs": 1, "return_tokens": True, "verbose": True}
    assert sent(asked) == {"model": "m", "x": 1, **added}


@pytest.mark.parametrize(("top", "probs"), [(0, 1), (5, 5), (None, 1), ("x", 1), (-1, 1)])
def test_alternatives_come_as_asked(top: Any, probs: int) -> None:
    assert sent({"logprobs": True, "top_logprobs": top})["n_probs"] == probs
    assert sent({"top_logprobs": top})["n_probs"] == 1


@pytest.mark.parametrize("value", [1, "true", None, []], ids=str)
def test_logprobs_of_the_wrong_type_do_not_raise(value: Any) -> None:
    assert sent({"logprobs": value})["n_probs"] == 1


def test_unknown_members_reach_the_engine_byte_for_byte() -> None:
    odd = b'{"a" :1e3, "b": [0.10], "c":"\\u00fc"}'
    assert odd in plan(read_request(b'{"metadata": %b}' % odd).fields, stream=False).body
