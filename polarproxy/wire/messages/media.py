"""Images and documents, in both directions.

A plain-text document or a search result becomes text, since engines take no such blocks; its title goes before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.model import Loss
from polarproxy.wire.messages.blocks import Base64Source, DocumentBlock, ImageBlock, TextBlock, UrlSource
from polarproxy.wire.messages.members import TEXT, TEXT_OR_RAWS, Members, Reading
from polarproxy.wire.neutral.request import Media, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

PDF = "application/pdf"
_ANY_IMAGE = "image/*"
_AS_TEXT = "written into the prompt as plain text"


def read_image(block: Members, reading: Reading) -> tuple[Media, ...]:
    """The image of a block; empty when its bytes are not at hand."""
    source = block.need_object("source")
    media = _read_source(source, reading, _ANY_IMAGE, None)
    reading.lose_rest(source)
    return media


def read_document(block: Members, reading: Reading) -> tuple[Text | Media, ...]:
    """What a document holds: a file, or text after the document's title and context."""
    title = block.get("title", TEXT)
    context = block.get("context", TEXT)
    source = block.need_object("source")
    citations = block.object("citations")
    if citations is not None and citations.raw("enabled") == b"true":
        reading.lose(citations.where, "the engine cites nothing")
    match source.need("type", TEXT):
        case "text":
            source.ignore("media_type")
            content: tuple[Text | Media, ...] = (Text(source.need("data", TEXT)),)
        case "content":
            content = _read_content(source, reading)
        case _:
            media = _read_source(source, reading, PDF, title)
            reading.lose_rest(source)
            return (Text(context), *media) if context else media
    reading.lose_rest(source)
    reading.lose(block.where, f"document {_AS_TEXT}")
    return _under((title, context), content)


def read_search_result(block: Members, reading: Reading) -> tuple[Text | Media, ...]:
    """The texts of a search result, after its title and source."""
    heads = (block.get("title", TEXT), block.get("source", TEXT))
    block.ignore("citations")
    content = _read_content(block, reading)
    reading.lose(block.where, f"search result {_AS_TEXT}")
    return _under(heads, content)


def _under(heads: Iterable[str | None], content: tuple[Text | Media, ...]) -> tuple[Text | Media, ...]:
    head = "".join(f"{line}\n" for line in heads if line)
    return (Text(head), *content) if head else content


def _read_source(source: Members, reading: Reading, mime: str, name: str | None) -> tuple[Media, ...]:
    match source.need("type", TEXT):
        case "base64":
            mime = source.need("media_type", TEXT)
            return (Media(mime, f"data:{mime};base64,{source.need('data', TEXT)}", name),)
        case "url":
            url = source.need("url", TEXT)
            return (Media(_mime(url) or mime, url, name),)
        case kind:
            reading.lose(source.where, f"left out: its bytes are with the provider (source of type {kind})")
            source.ignore("file_id")
            return ()


def _read_content(members: Members, reading: Reading) -> tuple[Text | Media, ...]:
    content = members.need("content", TEXT_OR_RAWS)
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts: list[Text | Media] = []
    for place, raw in enumerate(content):
        block = Members(raw, f"{members.path('content')}[{place}]")
        block.ignore("cache_control")
        match block.need("type", TEXT):
            case "text":
                parts.append(Text(block.need("text", TEXT)))
            case "image":
                parts.extend(read_image(block, reading))
            case kind:
                reading.lose(block.where, f"left out: a block of type {kind} is not known here")
                continue
        reading.lose_rest(block)
    return tuple(parts)


def _mime(url: str) -> str | None:
    """The media type of a data URL; None for an address."""
    if not url.startswith("data:"):
        return None
    return url[5:].partition(",")[0].partition(";")[0] or None


def write_content(part: Text | Media, where: str, losses: list[Loss]) -> TextBlock | ImageBlock | DocumentBlock | None:
    """The block of a text, an image or a PDF; None for other media, which the dialect does not have."""
    if isinstance(part, Text):
        return TextBlock(part.text)
    if part.detail is not None:
        losses.append(Loss(where, "an image has no `detail` in this dialect"))
    if part.mime == PDF:
        return DocumentBlock(_write_source(part), part.name)
    if not part.mime.startswith("image/"):
        losses.append(Loss(where, f"left out: this dialect has no media of the type {part.mime}"))
        return None
    if part.name is not None:
        losses.append(Loss(where, "an image has no name in this dialect"))
    if part.mime != (_mime(part.url) or _ANY_IMAGE):
        losses.append(Loss(where, f"an address has no type in this dialect: {part.mime} is left out"))
    return ImageBlock(_write_source(part))


def _write_source(part: Media) -> Base64Source | UrlSource:
    head, comma, data = part.url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Base64Source(_mime(part.url) or part.mime, data)
    return UrlSource(part.url)
