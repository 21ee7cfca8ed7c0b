"""Subscriptions as feed readers export them: OPML, well-formed or nearly so.

Entities are never expanded beyond XML's and HTML's own, and nothing is fetched (defusedxml).
"""

import html
import re
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.ElementTree import DefusedXMLParser  # type: ignore[import-untyped]

_DECLARED: Final = re.compile(rb"""^.{0,40}?encoding\s*=\s*["']([A-Za-z0-9._-]+)""", re.DOTALL)
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE: Final = re.compile(r"&(#[0-9]+;|#[xX][0-9a-fA-F]+;|[A-Za-z][A-Za-z0-9]*;)?")
_XML_NAMES: Final = frozenset({"amp;", "lt;", "gt;", "quot;", "apos;"})
_VALUE: Final = re.compile(r'="[^"<]*<[^"]*"')
_FEED_TYPES: Final = frozenset({"rss", "atom", "feed", "llms"})


class OpmlError(ValueError):
    """A document that is no OPML; the message is the reason."""


@dataclass(slots=True)
class Outline:
    """One subscription: its attributes by lower-case name, and the folders it lies in."""

    number: int
    attributes: dict[str, str]
    folders: tuple[str, ...]
    children: int = field(default=0, repr=False)

    @property
    def name(self) -> str | None:
        """What the reader called it."""
        return self.attributes.get("title") or self.attributes.get("text") or None

    @property
    def tags(self) -> tuple[str, ...]:
        """Its folders from the outside in, then its own categories (OPML 2.0)."""
        listed = self.attributes.get("category", "").split(",")
        own = (category.strip().strip("/") for category in listed)
        return tuple(dict.fromkeys((*self.folders, *filter(None, own))))


def read_opml(body: bytes) -> list[Outline]:
    """Return the subscriptions of an OPML document, in its order. Raises OpmlError.

    What readers are known to get wrong (a bare `&`, `&nbsp;`, control characters, a wrong
    encoding, blank lines at the top) is mended first.
    """
    try:
        return _parse(body)
    except DefusedXmlException as error:
        raise OpmlError("it declares entities of its own, which are never expanded") from error
    except (ParseError, LookupError, ValueError):
        pass
    try:
        return _parse(_mended(body))
    except ParseError as error:
        raise OpmlError(f"it is not XML: {error}") from error
    except ValueError as error:
        raise OpmlError(str(error)) from error


class _Collector:
    """The parser's target: keeps subscriptions and forgets the tree."""

    def __init__(self) -> None:
        self.found: list[Outline] = []
        self._open: list[Outline] = []
        self._root = ""
        self._count = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2].lower()
        if not self._root:
            self._root = name
            if name != "opml":
                raise OpmlError(f"it is no OPML, its outermost element is <{name[:40]}>")
        if name == "outline":
            self._count += 1
            lowered = {key.lower(): value.strip() for key, value in attributes.items()}
            if self._open:
                self._open[-1].children += 1
            self._open.append(Outline(self._count, lowered, self._folders()))

    def end(self, tag: str) -> None:
        if tag.rpartition("}")[2].lower() != "outline":
            return
        outline = self._open.pop()
        declared = outline.attributes.get("type", "").lower() in _FEED_TYPES
        if "xmlurl" in outline.attributes or (declared and not outline.children):
            self.found.append(outline)

    def data(self, text: str) -> None:
        """Ignore text: OPML says everything in attributes."""

    def close(self) -> list[Outline]:
        return sorted(self.found, key=lambda outline: outline.number)

    def _folders(self) -> tuple[str, ...]:
        folders = (each for each in self._open if "xmlurl" not in each.attributes)
        names = (each.attributes.get("text") or each.attributes.get("title") for each in folders)
        return tuple(name for name in names if name)


def _parse(document: bytes | str) -> list[Outline]:
    parser = DefusedXMLParser(target=_Collector())
    parser.feed(document)
    found: list[Outline] = parser.close()
    return found


def _mended(body: bytes) -> str:
    text = _ILLEGAL.sub("", _decoded(body))
    text = text[max(text.find("<"), 0) :]
    text = _VALUE.sub(lambda value: value[0].replace("<", "&lt;"), text)
    return _REFERENCE.sub(_reference, text)


def _decoded(body: bytes) -> str:
    declared = _DECLARED.match(body)
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    else:
        encodings = ["utf-8-sig", *([declared[1].decode("ascii")] if declared else [])]
    for encoding in encodings:
        try:
            return body.decode(encoding)
        except (LookupError, ValueError):
            continue
    return body.decode("cp1252", errors="replace")


def _reference(found: re.Match[str]) -> str:
    inner: str | None = found[1]
    if inner is None:
        return "&amp;"
    if inner in _XML_NAMES:
        return found[0]
    character = html.unescape(found[0])
    if character == found[0] and not inner.startswith("#"):
        return "&amp;" + inner
    return html.escape(_ILLEGAL.sub("", character))
