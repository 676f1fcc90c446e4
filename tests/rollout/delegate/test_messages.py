"""Messages come back as they were sent, in the characters that SQS carries."""

import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.rollout.delegate.messages import GenerateRequest, encode, read_request, refusal

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SENT = re.compile("[\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200), TEXTS)
def test_any_text_is_carried_and_comes_back(name: str, text: str) -> None:
    request = GenerateRequest(
        version="v0", id=name + "\ufffe"[len(name) // 200 :], session_id="s", messages=[{"content": text + "\uffff"}]
    )
    sent = encode(request)
    assert SENT.fullmatch(sent)
    assert read_request(sent) == request
    assert refusal(sent, text).id == request.id


@given(st.text())
def test_whatever_comes_is_answered(text: str) -> None:
    answer = refusal(text, text)
    assert SENT.fullmatch(encode(answer))
    assert msgspec.json.decode(encode(answer))["type"] == "error"
    assert len(answer.error) <= 2000
