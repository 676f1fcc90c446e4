"""Chat streams: read as engines send them, written as the OpenAI SDK reads them, and the same story as a whole reply."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.chat.reply import decode_reply, encode_reply
from polarproxy.wire.chat.stream import Encoder, PieceReader, decode_stream
from polarproxy.wire.chat.unfold import unfold
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Envelope,
    Final,
    Finished,
    Piece,
    Reply,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
    pieces,
)
from polarproxy.wire.neutral.request import Request, ToolUse
from polarproxy.wire.sse import DONE, EventSplitter, event_data
from tests.wire.chat.strategies import CHAT_REPLIES, SDK_REPLIES
from tests.wire.neutral.strategies import cut_pieces, envelope, replies

RECORDED = Path(__file__).parents[2] / "fixtures" / "vllm"
WITH_USAGE = envelope(Request("m", (), stream=True, stream_usage=True))


def streams() -> list[str]:
    """The recordings that have a stream of chunks."""
    every = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDED.glob("*.json"))}
    return [name for name, content in every.items() if content.get("stream", {}).get("status") == 200]


def chunk(delta: dict[str, Any] | None = None, index: int = 0, **members: Any) -> bytes:
    return json.dumps({"choices": [{"index": index, "delta": delta or {}, "finish_reason": None, **members}]}).encode()


def tool(index: int = 0, **members: Any) -> bytes:
    """A delta of one tool call; `name` and `arguments` are its function's."""
    function = {name: members.pop(name) for name in ("name", "arguments") if name in members}
    return chunk({"tool_calls": [{"index": index, **members, "function": function}]})


def read(*chunks: bytes) -> list[Piece]:
    """What the chunks say after the beginning."""
    reader = PieceReader()
    assert reader.feed(chunk({"role": "assistant", "content": ""})) == [Begin()]
    return [piece for each in chunks for piece in reader.feed(each)]


def recorded(name: str) -> list[bytes]:
    body = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["stream"]["body"]
    return EventSplitter().feed(body.encode())


def written(stream: list[Piece], around: Envelope = WITH_USAGE) -> list[bytes]:
    encoder = Encoder(around)
    out = EventSplitter().feed(b"".join(encoder.feed(piece) for piece in stream))
    assert encoder.losses == []
    return out


class TestReading:
    @pytest.mark.parametrize("name", streams())
    def test_a_stream_of_vllm_begins_once_and_ends_once(self, name: str) -> None:
        kinds = [type(piece) for piece in decode_stream(recorded(name))]
        assert (kinds[0], kinds[-1]) == (Begin, Final)
        assert (kinds.count(Begin), kinds.count(Final)) == (1, 1)
        assert kinds.count(Finished) == (2 if name.startswith("two") else 1)

    @pytest.mark.parametrize("name", ["emoji", "hi", "hi_cut", "hi_hidden", "hi_plain", "hi_stop", "hi_stop_token"])
    def test_a_stream_of_vllm_says_what_its_whole_reply_says(self, name: str) -> None:
        whole = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["whole"]["body"]
        assert fold(decode_stream(recorded(name))).choices == decode_reply(whole.encode()).choices

    def test_arguments_are_those_that_were_sampled(self) -> None:
        uses = [part for part in fold(decode_stream(recorded("tools"))).choices[0].parts if isinstance(part, ToolUse)]
        assert [(use.name, use.arguments) for use in uses] == [
            ("get_weather", '{"unit":"C", "city":"Paris"}'),
            ("get_weather", '{"city": "Lyon"}'),
        ]
        assert len({use.id for use in uses}) == 2

    def test_a_call_that_was_cut_is_still_a_call(self) -> None:
        choice = fold(decode_stream(recorded("tool_cut"))).choices[0]
        use = choice.parts[-1]
        assert isinstance(use, ToolUse)
        assert (use.arguments, choice.finish) == ('{"unit', "length")

    def test_a_stop_string_is_told(self) -> None:
        choice = fold(decode_stream(recorded("hi_stop"))).choices[0]
        assert (choice.finish, choice.stop_sequence) == ("stop_sequence", "help you")
        assert fold(decode_stream(recorded("hi_stop_token"))).choices[0].finish == "stop"

    def test_usage_is_told_at_the_end(self) -> None:
        assert decode_stream(recorded("tool_usage"))[-1] == Final(Usage(161, 30, cached_tokens=128, reasoning_tokens=6))
        assert decode_stream(recorded("tool"))[-1] == Final(None)
        assert [type(piece) for piece in decode_stream(recorded("hi_continuous"))].count(Final) == 1

    def test_nothing_is_held_back(self) -> None:
        assert read(chunk({"content": "a"}), chunk({"reasoning_content": "b"}, 1)) == [
            TextPiece("a"),
            ThinkingPiece("b", 1),
        ]
        assert read(chunk({"reasoning": "t", "content": "c"})) == [ThinkingPiece("t"), TextPiece("c")]
        assert read(chunk({"refusal": "no"})) == [TextPiece("no")]

    def test_what_says_nothing_gives_nothing(self) -> None:
        assert read(chunk({"content": None}), chunk({"content": ""}), b'{"choices":[]}', b'{"error":{}}', b"{}") == []

    def test_a_call_begins_with_its_name(self) -> None:
        assert read(tool(id="a", name="f"), tool(arguments="{"), tool(arguments="}")) == [
            ToolBegin(0, "a", "f"),
            ArgumentsPiece(0, "{"),
            ArgumentsPiece(0, "}"),
        ]

    def test_a_call_in_one_piece_is_a_beginning_and_arguments(self) -> None:
        assert read(tool(id="a", name="f", arguments="{}"), tool(1, id="b", name="g", arguments="")) == [
            ToolBegin(0, "a", "f"),
            ArgumentsPiece(0, "{}"),
            ToolBegin(1, "b", "g"),
        ]

    def test_arguments_wait_for_the_name(self) -> None:
        assert read(tool(id="a"), tool(arguments="{"), tool(arguments='"x"'), tool(name="f", arguments=":1}")) == [
            ToolBegin(0, "a", "f"),
            ArgumentsPiece(0, '{"x":1}'),
        ]

    def test_a_name_waits_for_the_id_but_not_for_ever(self) -> None:
        assert read(tool(name="f"), tool(id="a"), tool(arguments="{}")) == [
            ToolBegin(0, "a", "f"),
            ArgumentsPiece(0, "{}"),
        ]
        assert read(tool(name="f"), tool(arguments="{}")) == [ToolBegin(0, "", "f"), ArgumentsPiece(0, "{}")]
        assert read(tool(name="f"), chunk(finish_reason="stop")) == [ToolBegin(0, "", "f"), Finished("tool_calls")]

    @pytest.mark.parametrize("said", [{"arguments": "{}"}, {"id": "a"}, {"id": "a", "name": "", "arguments": "{}"}])
    def test_a_call_without_a_name_is_no_reply(self, said: dict[str, Any]) -> None:
        with pytest.raises(BadReply, match="without saying its name"):
            read(tool(**said), chunk(finish_reason="tool_calls"))
        call = {"id": "a", "function": {"name": "", "arguments": "{}"}}
        with pytest.raises(BadReply, match="without saying its name"):
            decode_reply(json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode())

    def test_calls_of_an_engine_without_ids_get_some_of_the_reply(self) -> None:
        calls = [{"index": place, "function": {"name": "f", "arguments": "{}"}} for place in range(2)]
        first = json.dumps({"id": "chatcmpl-7", "choices": [{"index": 1, "delta": {"tool_calls": calls}}]}).encode()
        begun = [piece for piece in PieceReader().feed(first) if isinstance(piece, ToolBegin)]
        assert begun == [ToolBegin(0, "chatcmpl-7-1-0", "f", 1), ToolBegin(1, "chatcmpl-7-1-1", "f", 1)]

    def test_a_name_that_is_said_again_is_the_same_name(self) -> None:
        assert read(tool(id="a", name="f"), tool(id="a", name="f", arguments="{}")) == [
            ToolBegin(0, "a", "f"),
            ArgumentsPiece(0, "{}"),
        ]

    def test_another_id_under_the_same_index_is_another_call(self) -> None:
        assert read(
            tool(id="a", name="f", arguments="1"), tool(id="b", name="g", arguments="2"), tool(arguments="3")
        ) == [
            ToolBegin(0, "a", "f"),
            ArgumentsPiece(0, "1"),
            ToolBegin(1, "b", "g"),
            ArgumentsPiece(1, "2"),
            ArgumentsPiece(1, "3"),
        ]

    def test_calls_are_numbered_from_0_in_each_choice(self) -> None:
        call = {"tool_calls": [{"index": 5, "id": "a", "function": {"name": "f"}}]}
        assert read(chunk(call, 0), chunk(call, 1)) == [ToolBegin(0, "a", "f", 0), ToolBegin(0, "a", "f", 1)]

    @pytest.mark.parametrize("stop_reason", [None, 151645, "END"])
    def test_a_call_that_was_forced_by_name_ends_as_a_call(self, stop_reason: Any) -> None:
        ended = chunk(finish_reason="stop", stop_reason=stop_reason)
        assert read(tool(id="a", name="f"), ended)[-1] == Finished("tool_calls")

    @pytest.mark.parametrize("data", [b"", b"x", b"[]", b'"\xff"', b'{"choices":{}}', b'{"choices":[{"delta":1}]}'])
    def test_what_is_no_chunk_is_refused(self, data: bytes) -> None:
        with pytest.raises(BadReply, match="not a chunk"):
            PieceReader().feed(data)


class TestLaws:
    @given(st.data())
    def test_folding_the_stream_gives_what_the_whole_reply_says(self, data: st.DataObject) -> None:
        reply = data.draw(CHAT_REPLIES)
        stream = decode_stream(written(data.draw(cut_pieces(reply))))
        assert fold(stream) == decode_reply(encode_reply(reply, WITH_USAGE).body) == reply

    @given(st.data())
    def test_the_pieces_come_through_one_by_one(self, data: st.DataObject) -> None:
        stream = data.draw(cut_pieces(data.draw(replies())))
        assert decode_stream(written(stream)) == [Begin(), *stream[1:]]

    @given(CHAT_REPLIES)
    def test_a_whole_reply_that_was_unfolded_is_read_like_a_stream(self, reply: Reply) -> None:
        body = encode_reply(reply, WITH_USAGE).body
        assert fold(decode_stream(unfold(body, usage=True))) == reply

    @given(st.data())
    def test_the_sdk_puts_the_stream_together_to_the_same_reply(self, data: st.DataObject) -> None:
        reply = data.draw(SDK_REPLIES)
        expected = envelope(Request(None, (), n=len(reply.choices)))
        events = written(data.draw(cut_pieces(reply)), expected)
        state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
        for event in events[:-1]:
            state.handle_chunk(ChatCompletionChunk.model_validate_json(event_data(event) or b""))
        for said, seen in zip(reply.choices, state.current_completion_snapshot.choices, strict=True):
            whole = json.loads(encode_reply(Reply((said,)), WITH_USAGE).body)["choices"][0]["message"]
            assert (seen.message.content or "") == (whole["content"] or "")
            calls = [(call.id, call.function.arguments) for call in seen.message.tool_calls or ()]
            assert calls == [(use.id, use.arguments) for use in said.parts if isinstance(use, ToolUse)]


class TestWriting:
    def test_each_choice_begins_with_its_role(self) -> None:
        first = Encoder(envelope(Request(None, (), n=2))).feed(Begin(5))
        chunks = [json.loads(event_data(event) or b"") for event in EventSplitter().feed(first)]
        assert [each["choices"][0]["index"] for each in chunks] == [0, 1]
        assert {each["choices"][0]["delta"]["role"] for each in chunks} == {"assistant"}

    def test_a_choice_that_was_not_expected_begins_too(self) -> None:
        encoder = Encoder(envelope())
        encoder.feed(Begin())
        assert encoder.feed(TextPiece("x", 1)).count(b"data: ") == 2
        assert encoder.feed(TextPiece("x", 1)).count(b"data: ") == 1

    def test_a_chunk_is_one_as_vllm_writes_it(self) -> None:
        encoder = Encoder(envelope())
        encoder.feed(Begin())
        assert json.loads(event_data(encoder.feed(TextPiece("é\n"))) or b"") == {
            "id": "chatcmpl-0123456789abcdef0123456789abcdef",
            "object": "chat.completion.chunk",
            "created": 1_760_000_000,
            "model": "asked-model",
            "choices": [{"index": 0, "delta": {"content": "é\n"}, "logprobs": None, "finish_reason": None}],
        }

    @pytest.mark.parametrize("usage", [None, Usage(1, 2)])
    def test_usage_is_told_to_those_who_asked(self, usage: Usage | None) -> None:
        silent, asked = Encoder(envelope()).feed(Final(usage)), Encoder(WITH_USAGE).feed(Final(usage))
        assert silent == b"data: [DONE]\n\n"
        assert asked.count(b'"total_tokens":3') == (usage is not None)
        assert asked.endswith(silent)

    def test_an_error_is_an_event_in_the_shape_of_the_dialect(self) -> None:
        event = Encoder(envelope()).error(502, "the engine went away")
        assert json.loads(event_data(event) or b"")["error"]["message"] == "the engine went away"

    @given(replies())
    def test_a_stream_ends_with_its_end(self, reply: Reply) -> None:
        events = written(list(pieces(reply)))
        assert [event_data(event) == DONE for event in events].index(True) == len(events) - 1
