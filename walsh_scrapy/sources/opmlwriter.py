"""Writing OPML: single outlines change, and attributes, order and comments stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lxml.etree import (  # type: ignore[import-untyped]
    Element,
    LxmlError,
    XMLParser,
    fromstring,
    tostring,
)

from walsh_scrapy.sources.readers import UnreadableSources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.sources.writers import Changes

#: What is before the first comment or element, in an encoding that has ASCII.
_XML_HEAD: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?=<)")


def write_opml(body: bytes, changes: Changes) -> bytes:
    """Change outlines of a well-formed document; attributes that are not ours stay."""
    try:
        root = fromstring(body, XMLParser(resolve_entities=False, no_network=True))
    except (LxmlError, ValueError) as error:
        raise UnreadableSources(f"it is not well-formed XML ({error}); export it again") from error
    outlines = dict(enumerate(_outlines(root), 1))
    for number, url in changes.rewritten.items():
        attributes = outlines[number].attrib
        attributes[_url_attribute(attributes)] = url
    for number in changes.removed:
        _remove(outlines[number])
    if changes.added:
        _append(root, changes.added)
    tree = root.getroottree()
    encoding = tree.docinfo.encoding or "UTF-8"
    end = b"\n" if body.endswith(b"\n") else b""
    head = _XML_HEAD.match(body)
    if head is None:  # UTF-16
        written: bytes = tostring(tree, encoding=encoding, xml_declaration=True)
        return written
    written = tostring(tree, encoding=encoding, xml_declaration=False) + end
    if b"\r\n" in body:
        written = written.replace(b"\n", b"\r\n")
    return head[0] + written


def _outlines(root: Any) -> Iterator[Any]:  # noqa: ANN401 - lxml has no types
    """Yield each outline in the order of the document, as ``read_opml`` counts them."""
    inside = False
    for element in root.iter():
        if isinstance(element.tag, str):  # no comment
            name = element.tag.rpartition("}")[2].lower()
            inside |= name == "opml"
            if inside and name == "outline":
                yield element


def _url_attribute(attributes: Any) -> str:  # noqa: ANN401
    names: dict[str, str] = {name.lower(): name for name in attributes}
    return names["xmlurl"] if attributes.get(names.get("xmlurl", "")) else names["url"]


def _remove(outline: Any) -> None:  # noqa: ANN401
    """Remove an outline, but not those within it, and keep the indentation of the others."""
    for child in list(outline):
        outline.addprevious(child)
    parent, before = outline.getparent(), outline.getprevious()
    if outline.getnext() is None:
        if before is not None:
            before.tail = outline.tail
        else:
            parent.text = outline.tail
    parent.remove(outline)


def _append(root: Any, added: list[Source]) -> None:  # noqa: ANN401
    """Add outlines at the end of the body, indented as the others are."""
    body = next((each for each in root if str(each.tag).lower() == "body"), None)
    if body is None:
        raise UnreadableSources("it has no body to add an outline to")
    for source in added:
        name = source.name or source.url
        attributes = {"type": "llms" if source.kind == "llms" else "rss", "text": name}
        outline = Element("outline", attributes | {"title": name, "xmlUrl": source.url})
        if len(body):
            outline.tail, body[-1].tail = body[-1].tail, body.text
        body.append(outline)
