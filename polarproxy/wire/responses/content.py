"""Content parts of messages and of tool results, both ways.

Source: OpenAI API reference, Responses, `input_text`, `input_image`, `input_file`, `input_audio`, `output_text`, `refusal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.neutral.request import Media, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}
_MIMES = {format: mime for mime, format in _FORMATS.items()}
_UNKNOWN_MIME = "application/octet-stream"


class Audio(msgspec.Struct):
    """The sound of an `input_audio`."""

    data: str
    format: str


class Part(msgspec.Struct):
    """A content part of any type, as it is read."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    input_audio: Audio | None = None


def read_content(content: str | Sequence[Part] | None, where: str, losses: list[Loss]) -> tuple[Text | Media, ...]:
    """Text and media; empty texts are passed over, and what cannot be carried is reported."""
    if content is None or isinstance(content, str):
        return (Text(content),) if content else ()
    parts: list[Text | Media] = []
    for place, part in enumerate(content):
        value = _read_text(part) or _read_media(part)
        if value == Text(""):
            continue
        if value is not None:
            parts.append(value)
            if part.type == "refusal" and len(content) > 1:
                losses.append(Loss(f"{where}[{place}]", "a refusal beside other content; carried as text like that"))
        else:
            held = "is held by the provider" if part.file_id is not None else "is not understood"
            losses.append(Loss(f"{where}[{place}]", f"content of type {part.type!r} that {held}; left out"))
    return tuple(parts)


def _read_text(part: Part) -> Text | None:
    match part.type:
        case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
            return Text(part.text or "")
        case "refusal":
            return Text(part.refusal or "")
    return None


def _read_media(part: Part) -> Media | None:
    match part:
        case Part(type="input_image", image_url=str(url)):
            return Media(_mime_of(url, "image/*"), url, detail=part.detail)
        case Part(type="input_file", file_data=str(data)):
            url = data if data.startswith("data:") else f"data:{_UNKNOWN_MIME};base64,{data}"
            return Media(_mime_of(url, _UNKNOWN_MIME), url, part.filename, part.detail)
        case Part(type="input_file", file_url=str(url)):
            return Media(_UNKNOWN_MIME, url, part.filename, part.detail)
        case Part(type="input_audio", input_audio=Audio(data=data, format=format)):
            mime = _MIMES.get(format, f"audio/{format}")
            return Media(mime, f"data:{mime};base64,{data}")
    return None


def _mime_of(url: str, otherwise: str) -> str:
    if not url.startswith("data:"):
        return otherwise
    return url[5 : 5 + 200].split(",", 1)[0].split(";", 1)[0] or _UNKNOWN_MIME


class InputText(msgspec.Struct, tag_field="type", tag="input_text"):
    """Text that the model is to read."""

    text: str


class OutputText(msgspec.Struct, tag_field="type", tag="output_text", kw_only=True):
    """Text that the model said."""

    annotations: list[str] = []
    logprobs: list[str] | msgspec.UnsetType = msgspec.UNSET
    text: str


class InputImage(msgspec.Struct, tag_field="type", tag="input_image", omit_defaults=True):
    """An image, by data URL or address."""

    image_url: str
    detail: str | None = None


class InputFile(msgspec.Struct, tag_field="type", tag="input_file", omit_defaults=True):
    """A document, by data URL or address."""

    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: str | None = None


class InputAudio(msgspec.Struct, tag_field="type", tag="input_audio"):
    """A sound."""

    input_audio: Audio


def write_part(part: Text | Media, where: str, losses: list[Loss]) -> InputText | InputImage | InputFile | InputAudio:
    """A part of an input; what cannot be said is reported."""
    if isinstance(part, Text):
        return InputText(part.text)
    inline = part.url.startswith("data:")
    head, _, data = part.url.partition(",")
    if part.mime.startswith("image/"):
        if part.name is not None:
            losses.append(Loss(where, "an image has no name here; the name is left out"))
        return InputImage(part.url, part.detail)
    if inline and part.mime in _FORMATS and head.endswith(";base64"):
        return InputAudio(Audio(data, _FORMATS[part.mime]))
    if inline:
        return InputFile(file_data=part.url, filename=part.name, detail=part.detail)
    losses.append(Loss(where, f"the type {part.mime} of a file at an address has no place here; left out"))
    return InputFile(file_url=part.url, filename=part.name, detail=part.detail)
