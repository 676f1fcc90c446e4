"""Images, sounds, films and documents: a format and a source here, a mime type and a URL in the neutral form.

A document that is text becomes text, since engines take no documents; its name and context go before it.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import TYPE_CHECKING

from polarproxy.model import Loss
from polarproxy.wire.bedrock.shapes import MediaBlock, MediaSource, S3Location, raw_json
from polarproxy.wire.neutral.request import Media, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    import msgspec

    from polarproxy.wire.bedrock.reading import Reader

AS_TEXT = "written into the prompt as plain text"
KINDS = ("image", "document", "video", "audio")
_OFFICE = "application/vnd.openxmlformats-officedocument."
_FORMATS = (
    ("image", "png", "image/png"),
    ("image", "jpeg", "image/jpeg"),
    ("image", "gif", "image/gif"),
    ("image", "webp", "image/webp"),
    ("document", "pdf", "application/pdf"),
    ("document", "csv", "text/csv"),
    ("document", "doc", "application/msword"),
    ("document", "docx", _OFFICE + "wordprocessingml.document"),
    ("document", "xls", "application/vnd.ms-excel"),
    ("document", "xlsx", _OFFICE + "spreadsheetml.sheet"),
    ("document", "html", "text/html"),
    ("document", "txt", "text/plain"),
    ("document", "md", "text/markdown"),
    ("video", "mkv", "video/x-matroska"),
    ("video", "mov", "video/quicktime"),
    ("video", "mp4", "video/mp4"),
    ("video", "webm", "video/webm"),
    ("video", "flv", "video/x-flv"),
    ("video", "mpeg", "video/mpeg"),
    ("video", "mpg", "video/mpeg"),
    ("video", "wmv", "video/x-ms-wmv"),
    ("video", "three_gp", "video/3gpp"),
    ("audio", "mp3", "audio/mpeg"),
    ("audio", "mpeg", "audio/mpeg"),
    ("audio", "mpga", "audio/mpeg"),
    ("audio", "opus", "audio/opus"),
    ("audio", "wav", "audio/wav"),
    ("audio", "aac", "audio/aac"),
    ("audio", "x-aac", "audio/x-aac"),
    ("audio", "flac", "audio/flac"),
    ("audio", "mp4", "audio/mp4"),
    ("audio", "m4a", "audio/x-m4a"),
    ("audio", "ogg", "audio/ogg"),
    ("audio", "mkv", "audio/x-matroska"),
    ("audio", "mka", "audio/x-matroska"),
    ("audio", "pcm", "audio/pcm"),
    ("audio", "webm", "audio/webm"),
)
"""Kind of block, format, mime type. Of several formats of one mime type, the first is written."""
_MIMES = {(kind, name): mime for kind, name, mime in _FORMATS}
_NAMES = {mime: (kind, name) for kind, name, mime in reversed(_FORMATS)}
_DATA = re.compile(r"data:[^;,]*;base64,")
_NO_NAME = "document"
"""A document must be named."""


def read_media(reader: Reader, kind: str, raw: msgspec.Raw, where: str) -> list[Text | Media]:
    """A block of one of `KINDS`; empty when its source is missing or unknown, which is a loss."""
    block = reader.read(raw, MediaBlock, where)
    source = reader.read(block.source, MediaSource, f"{where}.source")
    mime = _MIMES.get((kind, block.format), f"{kind}/{block.format}") if block.format else "application/octet-stream"
    texts = _texts(source, mime)
    if texts is not None:
        reader.lose(where, f"a document; {AS_TEXT}")
        return [*under((block.name, block.context), texts)]
    context = under((block.context,), ())
    if source.bytes is not None:
        return [*context, Media(mime, f"data:{mime};base64,{source.bytes}", block.name)]
    if source.s3_location is not None:
        return [*context, Media(mime, source.s3_location.uri, block.name)]
    reader.lose(f"{where}.source", "no known kind of source; left out")
    return []


def _texts(source: MediaSource, mime: str) -> list[str] | None:
    """What a source of text says. None: it is no text."""
    if source.text is not None:
        return [source.text]
    if source.content is not None:
        return [part.text for part in source.content]
    if source.bytes is None or not mime.startswith("text/"):
        return None
    try:
        return [b64decode(source.bytes).decode()]
    except (binascii.Error, ValueError):
        return None


def under(heads: Iterable[str | None], texts: Iterable[str]) -> list[Text]:
    """Texts under the lines of a heading, which is a text of its own."""
    head = "".join(f"{line}\n" for line in heads if line)
    return [Text(text) for text in ([head, *texts] if head else texts)]


def write_media(part: Media, where: str, losses: list[Loss]) -> dict[str, MediaBlock]:
    """The block of a medium; empty when this API has none for it, which is a loss."""
    if part.detail is not None:
        losses.append(Loss(where, "this API has no `detail` of an image; left out"))
    source, known = _source(part.url), _NAMES.get(part.mime)
    if source is None or known is None:
        why = f"its address {part.url[:80]!r}" if known is not None else f"the type {part.mime!r}"
        losses.append(Loss(where, f"this API cannot carry {why}; left out"))
        return {}
    kind, name = known
    if kind != "document" and part.name is not None:
        losses.append(Loss(where, "only documents have a name in this API; left out"))
    return {kind: MediaBlock(raw_json(source), name, (part.name or _NO_NAME) if kind == "document" else None)}


def _source(url: str) -> MediaSource | None:
    if url.startswith("s3://"):
        return MediaSource(s3_location=S3Location(url))
    data = _DATA.match(url)
    return MediaSource(bytes=url[data.end() :]) if data else None
