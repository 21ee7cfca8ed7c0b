"""The elements of an XML feed, as feedparser reads them."""

import io
import re
import xml.sax
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.sax.handler import feature_external_ges, feature_namespaces
from xml.sax.xmlreader import InputSource

from feedparser.sanitizer import replace_doctype

from walsh_scrapy.metadata.document import MOST_ENTRIES, OverBudget, to_utf8
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.feeds.dates import date_in_utc
from walsh_scrapy.metadata.feeds.formats import format_of
from walsh_scrapy.metadata.feeds.parsers import FeedParser
from walsh_scrapy.metadata.feeds.repair import WellFormed, well_formed

#: An element under feedparser's names, as a plain dict: in feedparser's own dicts, `get("updated")`
#: returns `published` with a warning.
Element: TypeAlias = Mapping[str, object]

_START: Final = re.compile(rb"<\w")
_BLANKS: Final = re.compile(rb"\s{2,}")
# For the order of the entries only.
_ENTRY: Final = re.compile(rb"<(?:[\w.-]+:)?(?:item|entry)(?=[\s/>])")
_DATE: Final = re.compile(
    rb"<(?:[\w.-]+:)?(?:pubDate|published|updated|date)\b[^<>]*>([^<]{1,100})<"
)
_END: Final = 65_536  # bytes at the end of the document in which its last date is looked for


@dataclass(frozen=True, slots=True)
class FeedElements:
    """The elements of a feed, and whether the document was cut off in transit."""

    format: str  #: feedparser's name of it; ", repaired" follows if it was not well-formed
    channel: Element  #: everything outside the entries
    entries: tuple[Element, ...]
    is_cut_in_entry: bool  #: the document ends inside its last entry
    is_whole: bool  #: its root element is closed, so nothing was cut off
    left_out: int  #: entries beyond the budget, which were not read

    @property
    def is_atom(self) -> bool:
        """Whether it is Atom, and no RSS."""
        return self.format.startswith("atom")


def parse_elements(body: bytes, *, url: str, content_type: str | None) -> FeedElements:
    """Return the elements of an XML feed; raise NotAFeed if the XML is no feed.

    Links are resolved only if the document has an `xml:base`, with `url` as the outermost base.
    Without one they are as published, which saves feedparser two joins of URLs per element.
    """
    body = to_utf8(body, content_type).lstrip()  # XML must not begin with blank lines
    if format_of(body, content_type) != "xml":  # a charset such as EBCDIC makes other text of it
        raise NotAFeed.but("text in an encoding that feeds do not have", content_type)
    try:
        version, parser, repaired = _read(body, url if b"xml:base" in body else "")
    except OverBudget as error:
        raise NotAFeed.but(str(error), content_type) from None
    if not version:
        raise NotAFeed.but("XML of another kind", content_type)
    return FeedElements(
        format=f"{version}, repaired" if repaired else version,
        channel=dict(parser.feeddata),
        entries=tuple(dict(entry) for entry in parser.entries),
        is_cut_in_entry=repaired is not None and repaired.is_cut_in_entry,
        is_whole=repaired is None or repaired.is_whole,
        left_out=parser.left_out,
    )


def _read(body: bytes, base: str) -> tuple[str, FeedParser, WellFormed | None]:
    """Return feedparser's name of the format ("" for no feed), its parser, and what was repaired.

    The third is None if the body is well-formed as it stands.
    """
    first = _first_entry(body)
    version, data, entities = replace_doctype(_fold(body))
    repaired = None
    for _ in range(2):
        try:
            parser = FeedParser(base, None, "utf-8")
            parser.first_entry, parser.is_repaired = first, repaired is not None
            _parse(repaired.document if repaired else data, parser)
        except (OverBudget, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - they raise any exception
            repaired = repaired or well_formed(data, entities)
        else:
            return version or parser.version, parser, repaired
    return "", FeedParser(base, None, "utf-8"), repaired


def _fold(body: bytes) -> bytes:
    """Return the body with single blanks before its root: feedparser is quadratic in them."""
    root = _START.search(body)
    at = root.start() if root else len(body)
    return _BLANKS.sub(b"\n", body[:at]) + body[at:]


def _first_entry(body: bytes) -> int:
    """Return how many entries at the beginning are beyond the budget: the newest are read.

    That is 0 unless the document has too many and the newest are at its end, by its first date and
    its last.
    """
    beyond = len(_ENTRY.findall(body)) - MOST_ENTRIES
    if beyond <= 0:
        return 0
    opened = _ENTRY.search(body)
    first = _DATE.search(body, opened.start() if opened else 0)
    last = _DATE.findall(body, max(0, len(body) - _END))
    rises = first is not None and bool(last) and _moment(first[1]) < _moment(last[-1])
    return beyond if rises else 0


def _moment(date: bytes) -> str:
    return date_in_utc(date.decode("utf-8", "replace")) or ""


def _parse(data: bytes, parser: FeedParser) -> None:
    reader = xml.sax.make_parser()  # noqa: S317 - no entities: see replace_doctype and below
    reader.setFeature(feature_namespaces, True)
    reader.setFeature(feature_external_ges, False)
    reader.setContentHandler(parser)
    reader.setErrorHandler(parser)
    source = InputSource()
    source.setByteStream(io.BytesIO(data))
    source.setEncoding("utf-8")  # overrides the XML declaration: the data is UTF-8 by now
    reader.parse(source)
