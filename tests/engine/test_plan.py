"""What every engine module offers: a plan, and a reader with a capture."""

import pytest

from polarproxy.engine import llamacpp, plain, vllm
from polarproxy.engine.capture import Capture
from polarproxy.engine.plan import Plan, ReplyReader
from polarproxy.wire.chat.fields import read_request


@pytest.mark.parametrize("engine", [vllm, llamacpp, plain])
@pytest.mark.parametrize("stream", [False, True])
def test_every_engine_plans_every_request(engine: object, stream: bool) -> None:
    made: Plan = engine.plan(read_request(b'{"model":"m"}').fields, stream=stream)  # type: ignore[attr-defined]
    assert made.reader.capture == Capture()
    assert read_request(made.body).model == "m"


def test_a_reader_has_nothing_to_ask_until_it_says_so() -> None:
    reader = ReplyReader(Capture())
    assert reader.follow_up() is None
    reader.answer(b"ignored")
    assert reader.capture == Capture()
