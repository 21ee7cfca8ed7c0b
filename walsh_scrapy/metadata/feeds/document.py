"""An XML body, taken apart into the elements of a feed."""

import io
import re
import sys
import xml.sax
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.sax.handler import feature_external_ges, feature_namespaces
from xml.sax.xmlreader import InputSource

from feedparser.sanitizer import replace_doctype

from walsh_scrapy.metadata.encoding import to_utf8
from walsh_scrapy.metadata.feeds.parsers import (
    MOST_ELEMENTS,
    LooseParser,
    StrictParser,
    TooManyElements,
)
from walsh_scrapy.metadata.feeds.sniff import not_a_feed

#: An element by feedparser's names, as a plain dict: the `get` of its own dicts answers `updated`
#: with `published`, and a warning.
Element: TypeAlias = Mapping[str, object]

_REFERENCE: Final = re.compile(rb"&#(?:x([0-9a-fA-F]{1,8})|([0-9]{1,8}));")
_REFERENCES: Final = re.compile(rb"(?:&#(?:x[0-9a-fA-F]{1,8}|[0-9]{1,8});)+")
_UNKNOWN: Final = "\ufffd"
# What may quote another document; one that never ends goes on to the end of this one.
_QUOTED: Final = re.compile(rb"<!--(?:.*?-->|.*)|<!\[CDATA\[(?:.*?\]\]>|.*)", re.DOTALL)
_ROOT: Final = re.compile(rb"<((?:[\w.-]+:)?(rss|rdf|feed))[\s>]", re.IGNORECASE)
_OPENED: Final = re.compile(rb"<(?:item|entry)[\s>]")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed feed document."""

    is_atom: bool
    channel: Element  #: what stands outside the entries
    entries: tuple[Element, ...]
    breaks_off: bool  #: it ends inside its last entry
    is_whole: bool  #: it is closed: nothing of it was lost on its way


def parse(body: bytes, *, url: str, content_type: str | None) -> Document:
    """Return the elements of an XML feed; raise NotAFeed if it is none.

    Links are resolved if the document has an `xml:base`, against `url` as its outermost one. They
    are as published if it has none, which spares two joined URLs an element.
    """
    body = to_utf8(body, content_type).lstrip()  # with blank lines before `<?xml` it is no XML
    try:
        version, parser = _read(body, url if b"xml:base" in body else "")
    except TooManyElements:
        raise not_a_feed(f"XML of more than {MOST_ELEMENTS} elements", content_type) from None
    if not version:
        raise not_a_feed("XML of another kind", content_type)
    is_strict = isinstance(parser, StrictParser)
    written = b"" if is_strict else _QUOTED.sub(b"", body)
    return Document(
        is_atom=version.startswith("atom"),
        channel=dict(parser.feeddata),
        entries=tuple(dict(entry) for entry in parser.entries),
        breaks_off=_breaks_off(written),
        is_whole=is_strict or _is_closed(written),
    )


def _read(body: bytes, base: str) -> tuple[str, StrictParser | LooseParser]:
    """Return the kind of feed, "" if it is none, and the first parser that got through it."""
    for mend in (False, True):
        version, data, entities = replace_doctype(_mended(body) if mend else body)
        for attempt in (_strict, _loose):
            try:
                parser = attempt(data, base, entities)
            except TooManyElements:
                raise
            except Exception:  # noqa: BLE001, S112 - they raise whatever they trip over
                continue
            return version or parser.version, parser
    return "", LooseParser(base)


def _strict(data: bytes, base: str, _entities: dict[str, str]) -> StrictParser:
    parser = StrictParser(base, None, "utf-8")
    reader = xml.sax.make_parser()  # noqa: S317 - no entities: see replace_doctype and below
    reader.setFeature(feature_namespaces, True)
    reader.setFeature(feature_external_ges, False)
    reader.setContentHandler(parser)
    reader.setErrorHandler(parser)
    source = InputSource()
    source.setByteStream(io.BytesIO(data))
    source.setEncoding("utf-8")  # whatever the XML declaration says: we decoded it
    reader.parse(source)
    return parser


def _loose(data: bytes, base: str, entities: dict[str, str]) -> LooseParser:
    parser = LooseParser(base, None, "utf-8", entities)
    parser.feed(data.decode())
    return parser


def _mended(body: bytes) -> bytes:
    """Return the body without references that no XML may have; two halves make an emoji."""
    return _REFERENCES.sub(_possible, body)


def _possible(run: re.Match[bytes]) -> bytes:
    codes = (int(hexa, 16) if hexa else int(digits) for hexa, digits in _REFERENCE.findall(run[0]))
    wide = "".join(chr(code) if code <= sys.maxunicode else _UNKNOWN for code in codes)
    whole = wide.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = (char if char >= " " or char in "\t\n\r" else _UNKNOWN for char in whole)
    return b"".join(b"&#%d;" % ord(char) for char in text)


def _breaks_off(written: bytes) -> bool:
    """Tell whether the last entry that opens never closes: it was cut off on its way."""
    closed = max(written.rfind(b"</item>"), written.rfind(b"</entry>"))
    return _OPENED.search(written, closed + 1) is not None


def _is_closed(written: bytes) -> bool:
    """Tell whether the root of a document ends, or in RSS the channel, which holds all there is."""
    root = _ROOT.search(written)
    if root is None:
        return False
    name = re.escape(root[1]) + (rb"|channel" if root[2].lower() == b"rss" else b"")
    return re.search(rb"</(?:%b)\s*>" % name, written, re.IGNORECASE) is not None
