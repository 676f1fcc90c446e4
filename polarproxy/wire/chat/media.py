"""OpenAI Chat Completions: images, sounds, films and documents as parts of a message's content.

Source: OpenAI API reference, "Create chat completion" (`image_url`, `input_audio`, `file`); `audio_url` and `video_url` are
vLLM's. Chat tells no type of what stands behind an address, so such media have a type like `image/*`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from polarproxy.wire.neutral.request import Media

Json: TypeAlias = dict[str, object]

_FORMAT_OF_MIME = {"audio/mpeg": "mp3", "audio/mp3": "mp3"}
_MIME_OF_FORMAT = {"mp3": "audio/mpeg"}
KINDS = frozenset(("image", "audio", "video"))
"""The first words of the types that engines read."""
_UNKNOWN = "application/octet-stream"


class Url(msgspec.Struct):
    """Where an image, a sound or a film is."""

    url: str
    detail: str | None = None


class Audio(msgspec.Struct):
    """A sound as base64."""

    data: str
    format: str


class File(msgspec.Struct):
    """A document; `file_data` is a data URL."""

    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


def data_url(url: str) -> tuple[str, str] | None:
    """Type and base64 of a data URL; None when it is another URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return head.removeprefix("data:").removesuffix(";base64"), data


def from_url(kind: str, place: Url | str) -> Media:
    """An `image_url`, `audio_url` or `video_url`; some clients write the address alone."""
    url, detail = (place, None) if isinstance(place, str) else (place.url, place.detail)
    inline = data_url(url)
    return Media(f"{kind}/*" if inline is None else inline[0], url, detail=detail)


def from_audio(audio: Audio) -> Media:
    """An `input_audio`."""
    mime = _MIME_OF_FORMAT.get(audio.format, f"audio/{audio.format}")
    return Media(mime, f"data:{mime};base64,{audio.data}")


def from_file(file: File) -> Media | None:
    """A `file`; None when it is only named by an id, whose bytes the provider has."""
    if file.file_data is None:
        return None
    inline = data_url(file.file_data)
    return Media(_UNKNOWN if inline is None else inline[0], file.file_data, file.filename)


def shown_type(media: Media) -> str:
    """The type that a reader of its part sees."""
    kind = media.mime.partition("/")[0]
    inline = data_url(media.url)
    if inline is None:
        return f"{kind}/*" if kind in KINDS else _UNKNOWN
    form = _FORMAT_OF_MIME.get(inline[0], "")
    return _MIME_OF_FORMAT.get(form, inline[0])


def to_part(media: Media) -> Json:
    """The part of a content list that says it."""
    kind = media.mime.partition("/")[0]
    match kind:
        case "image":
            detail = {} if media.detail is None else {"detail": media.detail}
            return {"type": "image_url", "image_url": {"url": media.url, **detail}}
        case "audio":
            return _audio_part(media)
        case "video":
            return {"type": "video_url", "video_url": {"url": media.url}}
    name = {} if media.name is None else {"filename": media.name}
    return {"type": "file", "file": {"file_data": media.url, **name}}


def _audio_part(media: Media) -> Json:
    inline = data_url(media.url)
    if inline is None:
        return {"type": "audio_url", "audio_url": {"url": media.url}}
    mime, data = inline
    form = _FORMAT_OF_MIME.get(mime, mime.removeprefix("audio/"))
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
