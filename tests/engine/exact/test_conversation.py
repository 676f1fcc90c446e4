"""What a message holds, as far as stand-ins and refusals go: a part that is not known to be text is none."""

import json
from typing import Any

import msgspec
import pytest

from polarproxy.engine.exact.conversation import read_message
from polarproxy.errors import BadRequest

TEXT = {"type": "text", "text": "Look:"}


def media(*parts: Any) -> bool:
    return read_message(msgspec.Raw(json.dumps({"role": "user", "content": parts}).encode())).media


@pytest.mark.parametrize(
    "kind", ["image_url", "input_image", "input_audio", "video_url", "image_embeds", "file", "new"]
)
def test_what_is_not_known_to_be_text_is_media(kind: str) -> None:
    assert media(TEXT, {"type": kind, kind: {"url": "data:,"}})
    assert media({"type": kind})


@pytest.mark.parametrize("part", [TEXT, "Look:", {"text": "Look:"}, {"type": "refusal"}, {"type": "thinking"}])
def test_texts_are_none(part: Any) -> None:
    assert not media(part)
    assert not media(part, TEXT)


@pytest.mark.parametrize("said", [b"[]", b'{"content":"x"}', b'{"role":"user","content":[3]}', b'{"role":"user"'])
def test_what_is_no_message_is_refused(said: bytes) -> None:
    with pytest.raises(BadRequest):
        read_message(msgspec.Raw(said))
