"""Parse the bytes of a feed into its entries and its hints about updates (R6, R8).

    feed = parse_feed(body, url=response_url, content_type="application/rss+xml", source=declared)
    for entry in feed.entries:
        entry.url, entry.title, entry.published, entry.key

RSS 0.9x to 2.0, RSS 1.0 (RDF), Atom 0.3 and 1.0 are read by feedparser's parser of well-formed XML,
with limits and rules that feedparser lacks; `jsonfeed` reads JSON Feed. No document can make these
parsers read a clock, use the network or open a file, except for a time zone of the tz database.

`feedparser.parse` itself is not called. It decodes with any codec that a document names, and opens
a file or a URL if its input looks like one. Some documents make its parser take a long time or much
memory, so a crawl reads every document in a process with limits (`crawl.reading`).

`policy.freshness` decides by the hints when the feed is due.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from math import isfinite
from typing import Final, TypeAlias
from xml.sax.expatreader import ExpatParser
from xml.sax.xmlreader import InputSource

from feedparser.api import StrictFeedParser
from feedparser.sanitizer import replace_doctype

from walsh_scrapy.feeds.freshness import PERIODS
from walsh_scrapy.feeds.metadata.encoding import to_utf8
from walsh_scrapy.feeds.metadata.entries import Feed, FeedEntry, NotAFeed, with_keys
from walsh_scrapy.feeds.metadata.formats import MAX_ENTRIES, format_of
from walsh_scrapy.feeds.metadata.jsonfeed import parse_json_feed
from walsh_scrapy.feeds.metadata.repair import WellFormed, well_formed
from walsh_scrapy.feeds.metadata.text import (
    date_in_utc,
    distinct_names,
    distinct_tags,
    from_html,
    is_web_url,
    language_tag,
    list_of,
    objects_of,
    person_names,
    title_of,
    web_url,
)
from walsh_scrapy.policy.wording import one_line

#: An element under feedparser's names, as a plain dict: in feedparser's dicts, `get("updated")`
#: returns `published` with a warning.
Element: TypeAlias = Mapping[str, object]

_HOST: Final = re.compile(r"\s*//[^\s/?#]+\.[^\s/?#]")  # a link without its scheme
_PATH: Final = re.compile(r"\s*/(?![/\\])")  # a link that begins with exactly one slash
#: Dates of other vocabularies, by the names under which they are kept. feedparser would overwrite
#: the dates of the feed's own format with them.
_OTHER_DATES: Final = {
    name: name.replace(":", "-")
    for name in (
        "dc:date",
        "dcterms:created",
        "dcterms:date",
        "dcterms:issued",
        "dcterms:modified",
        "prism:modificationdate",
        "prism:publicationdate",
    )
}
# The dates of an entry: those of the format come first. `dc:date` does not say of what it is the
# date, and is the only date of most RDF items.
_PUBLISHED: Final = (
    "published",
    "created",
    "dcterms-issued",
    "dcterms-created",
    "dc-date",
    "dcterms-date",
    "prism-publicationdate",
)
_UPDATED: Final = (
    "updated",
    "dcterms-modified",
    "prism-modificationdate",
    "dc-date",
    "dcterms-date",
)
_RELATIONS: Final = "http://www.iana.org/assignments/relation/"


def parse_feed(body: bytes, *, url: str, content_type: str | None, source: str) -> Feed:
    """Return the feed in a response body, its entries in document order.

    `url` is the final URL of the response: relative links and `xml:base` resolve against it.
    `content_type` is the Content-Type header, None if there was none. `source` is the declared
    URL. It is part of the key of an entry that has neither a link nor an id that is a URI. A feed
    may list an entry twice; both have the same `key`.

    Raises NotAFeed if the body is not a feed.
    """
    parse = parse_json_feed if format_of(body, content_type) == "json" else _parse_xml
    feed = parse(body, url=url, content_type=content_type)
    return replace(feed, entries=with_keys(feed.entries, source))


def _parse_xml(body: bytes, *, url: str, content_type: str | None) -> Feed:
    """Return the feed in an XML document, with entries that have no keys yet.

    feedparser resolves links only if the document has an `xml:base`, with `url` as the outermost
    base. Otherwise links stay as published, which saves feedparser two joins of URLs per element.
    """
    body = to_utf8(body, content_type).lstrip()  # XML must not begin with blank lines
    if format_of(body, content_type) != "xml":  # a charset such as EBCDIC gives other text
        raise NotAFeed.of_format("text in an encoding that feeds do not have", content_type)
    parser, repaired = _parse_document(body, url if b"xml:base" in body else "")
    if not parser.version:
        raise NotAFeed.of_format("XML of another kind", content_type)
    channel: Element = dict(parser.feeddata)  # everything outside the entries
    entries = _entries(parser.version, channel, parser.entries, url)
    is_cut = repaired is not None and repaired.is_cut_in_entry
    if is_cut and entries and not (entries[-1].url and entries[-1].title):
        entries = entries[:-1]  # its key will be another one as soon as its link is complete
    return Feed(
        title=_title(channel),
        language=language_tag(channel.get("language")),
        entries=entries,
        link=_link(channel, url),
        ttl=_ttl(channel),
        update_period=_update_period(channel),
        update_frequency=_update_frequency(channel),
        skip_hours=_skip_hours(channel),
        skip_days=_skip_days(channel),
        is_complete=repaired is None or repaired.is_complete,
        left_out=parser.left_out,
        format=f"{parser.version}, repaired" if repaired else parser.version,
    )


def _entries(
    version: str, channel: Element, elements: Sequence[Element], base: str
) -> tuple[FeedEntry, ...]:
    if version.startswith("atom"):
        feed_authors = distinct_names(_people(channel))
        return tuple(_atom_entry(dict(element), base, feed_authors) for element in elements)
    site = _link(channel, base) or base
    return tuple(_rss_entry(dict(element), base, site) for element in elements)


def _atom_entry(element: Element, base: str, feed_authors: tuple[str, ...]) -> FeedEntry:
    """Return an Atom entry (RFC 4287). Its id is a name and never used as a link.

    An entry has the authors of the feed if neither the entry nor its `source` element has authors
    (4.2.1).
    """
    source = element.get("source")
    authors = distinct_names(_people(element)) or (
        distinct_names(_people(source)) if isinstance(source, dict) else ()
    )
    return FeedEntry(
        url=_link(element, base),
        title=_title(element),
        id=one_line(element.get("id")),
        published=_date(element, _PUBLISHED),
        updated=_date(element, _UPDATED),
        authors=authors or feed_authors,
        tags=distinct_tags(map(one_line, _terms(element))),
    )


def _rss_entry(element: Element, base: str, site: str) -> FeedEntry:
    """Return an item of RSS or RDF. Its names and tags may be escaped twice.

    A link that begins with one slash is a path of `site`, the link of the channel, because the feed
    may be served by another host. Any other relative link is resolved against `base`, the feed.
    """
    return FeedEntry(
        url=_link(element, base, site) or _permalink(element, base, site),
        title=_title(element),
        id=one_line(element.get("id")),
        published=_date(element, _PUBLISHED),
        updated=_date(element, _UPDATED),
        authors=distinct_names(_people(element)),
        tags=distinct_tags(map(from_html, _terms(element))),
    )


def _title(element: Element) -> str | None:
    detail = element.get("title_detail")
    markup = isinstance(detail, dict) and "html" in str(detail.get("type"))
    title = element.get("title")
    return title_of(from_html(title) if markup else title)


def _date(element: Element, names: Iterable[str]) -> str | None:
    """Return the first of these dates that can be read."""
    dates = (date_in_utc(element.get(name)) for name in names)
    return next((date for date in dates if date), None)


def _link(element: Element, base: str, site: str | None = None) -> str | None:
    """Return the first alternate link that is a web URL; HTML pages are preferred.

    `site` is the base of links that begin with one slash; None stands for `base`.
    """
    links = [
        link
        for link in objects_of(element.get("links"))
        # The relation is a name or an IRI (RFC 4287 4.2.7.2).
        if str(link.get("rel")).removeprefix(_RELATIONS) == "alternate"
    ]
    links.sort(key=lambda link: "html" not in str(link.get("type")))
    for link in links:
        url = web_url(link.get("href"), _base_of(link.get("href"), base, site))
        if url is not None:
            return url
    return None


def _base_of(link: object, base: str, site: str | None) -> str:
    """Return the URL against which a link of an RSS item is resolved."""
    is_path = isinstance(link, str) and _PATH.match(link) is not None
    return site if site is not None and is_path else base


def _permalink(element: Element, base: str, site: str) -> str | None:
    """Return the guid of an item without a usable link, if it is a permalink (RSS 2.0).

    Many guids without `isPermaLink` are numbers. So a relative guid is a link only if the feed
    declares it a permalink, or if it is a path or a host and a path.
    """
    guid = element.get("id")
    permalink = element.get("permalink")
    is_link = (
        is_web_url(guid)
        or permalink == "declared"
        or _PATH.match(str(guid)) is not None
        or _HOST.match(str(guid)) is not None
    )
    return web_url(guid, _base_of(guid, base, site)) if permalink and is_link else None


_ADDRESS_IN_TAG: Final = re.compile(r"<([^<>\s@]+@[^<>\s@]+)>")  # in `Name <mail@example.org>`


def _people(element: Element) -> Iterator[str | None]:
    for author in objects_of(element.get("authors")):
        name = one_line(author.get("name")) or ""
        yield from person_names(from_html(_ADDRESS_IN_TAG.sub(r"&lt;\1&gt;", name)))


def _terms(element: Element) -> Iterator[object]:
    for tag in objects_of(element.get("tags")):
        yield tag.get("term") or tag.get("label")


_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_DAYS: Final = frozenset(
    {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
)


def _ttl(channel: Mapping[str, object]) -> float | None:
    """Return how many minutes a copy may be kept (RSS 2.0 `ttl`); None if absent or not above 0."""
    minutes = _number(channel.get("ttl"))
    return minutes if minutes and isfinite(minutes) else None


def _update_period(channel: Mapping[str, object]) -> str | None:
    """Return `sy:updatePeriod`: hourly, daily, weekly, monthly or yearly; None if none of these."""
    period = str(channel.get("sy_updateperiod", "")).strip().lower()
    return period if period in PERIODS else None


def _update_frequency(channel: Mapping[str, object]) -> int | None:
    """Return `sy:updateFrequency`, the updates in one period; None if absent or below 1."""
    frequency = _number(channel.get("sy_updatefrequency"))
    return int(frequency) if frequency and frequency >= 1 else None


def _skip_hours(channel: Mapping[str, object]) -> frozenset[int]:
    """Return the hours without updates, 0 to 23, UTC; RSS 0.91 writes midnight as 24."""
    hours = (_number(hour) for hour in list_of(channel.get("hours")))
    return frozenset(int(hour) % 24 for hour in hours if hour is not None and hour <= 24)


def _skip_days(channel: Mapping[str, object]) -> frozenset[str]:
    """Return the days of the week without updates, UTC, as English names."""
    days = (str(day).strip().capitalize() for day in list_of(channel.get("days")))
    return frozenset(days) & _DAYS


def _number(text: object) -> float | None:
    number = text.strip() if isinstance(text, str) else ""
    return float(number) if _NUMBER.fullmatch(number) else None


# These patterns are only used to find out if the newest entries come first.
_ENTRY_TAG: Final = re.compile(rb"<(?:[\w.-]+:)?(?:item|entry)(?=[\s/>])")
_DATE_TAG: Final = re.compile(
    rb"<(?:[\w.-]+:)?(?:pubDate|published|issued|updated|date|publicationDate)\b[^<>]*>([^<]{1,100})<"
)
_TAIL_BYTES: Final = 65_536  #: The last date of a document is looked for in these bytes at its end.


#: With this declaration an entity that is not declared in the document is an error. Otherwise the
#: parser skips such an entity if the DOCTYPE names a DTD, which is never requested.
_STANDALONE: Final = b'<?xml version="1.0" standalone="yes"?>'
_XML_DECLARATION: Final = re.compile(rb"\A<\?xml\s[^>]*\?>")
_ROOT: Final = re.compile(rb"<\w")
_ENTITY: Final = re.compile(rb"""<!ENTITY\s+(\w+)\s+(?:"([^"]*)"|'([^']*)')\s*>""")


def _parse_document(body: bytes, base: str) -> tuple[_FeedParser, WellFormed | None]:
    """Return the parser of a document, and the repaired document if it is not well-formed.

    The parser's `version` is feedparser's name of the format, and empty if the body is no feed.
    """
    first_entry = _first_entry(body)
    version, data, _ = replace_doctype(body)
    repaired = None
    parser = _FeedParser(base, first_entry)
    if not _run_parser(_STANDALONE + _XML_DECLARATION.sub(b"", data), parser):
        repaired = well_formed(data, _entities_of_doctype(body))
        parser = _FeedParser(base, first_entry, is_repaired=True)
        if not _run_parser(repaired.document, parser):
            version = parser.version = ""
    parser.version = version or parser.version
    return parser, repaired


def _entities_of_doctype(body: bytes) -> dict[str, str]:
    """Return the entities that are declared before the root, by name; the first one counts."""
    root = _ROOT.search(body)
    declarations = _ENTITY.findall(body, 0, root.start() if root else len(body))
    return {
        name.decode(): (quoted or text).decode() for name, quoted, text in reversed(declarations)
    }


def _first_entry(body: bytes) -> int:
    """Return how many entries at the beginning are skipped, so that the newest are read.

    This is 0 unless the document has more than `MAX_ENTRIES` and the newest are at its end, judged
    by its first and its last date.
    """
    excess = len(_ENTRY_TAG.findall(body)) - MAX_ENTRIES
    if excess <= 0:
        return 0
    first_tag = _ENTRY_TAG.search(body)
    first_date = _DATE_TAG.search(body, first_tag.start() if first_tag else 0)
    last_dates = _DATE_TAG.findall(body, max(0, len(body) - _TAIL_BYTES))
    is_oldest_first = (
        first_date is not None
        and bool(last_dates)
        and _utc_date(first_date[1]) < _utc_date(last_dates[-1])
    )
    return excess if is_oldest_first else 0


def _utc_date(date: bytes) -> str:
    return date_in_utc(date.decode("utf-8", "replace")) or ""


class _WholeTextReader(ExpatParser):
    """Passes a text to its handler in one piece, and refuses the entities of other files.

    Otherwise a text would come in pieces that end at each entity, and without these entities.
    """

    def reset(self) -> None:
        """Begin a document."""
        super().reset()
        self._parser.buffer_text = True  # type: ignore[attr-defined]

    def external_entity_ref(self, *_: object) -> int:
        """End with an error, because no other file is opened."""
        return 0


def _run_parser(data: bytes, parser: _FeedParser) -> bool:
    """Let a parser read a document. Return False if the document is not well-formed."""
    reader = _WholeTextReader(namespaceHandling=1)  # replace_doctype has removed unsafe entities
    reader.setContentHandler(parser)
    reader.setErrorHandler(parser)
    source = InputSource()
    source.setByteStream(io.BytesIO(data))
    source.setEncoding("utf-8")  # overrides the XML declaration: the data is UTF-8 by now
    try:
        reader.parse(source)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - feedparser raises exceptions of any type
        return False
    return True


_ENTRY_TAGS: Final = frozenset({"item", "entry"})
#: The modules from which elements are read, by the prefixes to which feedparser maps them.
_MODULES: Final = frozenset({"dc", "dcterms", "itunes", "media", "prism", "sy"})
#: Elements of these modules that contain further elements of the same module.
_GROUP_TAGS: Final = frozenset({"media:group", "media:content", "itunes:category"})
_RDF_TAGS: Final = frozenset({"channel", "item"})
_RDF_ROOTS: Final = (["rdf:rdf"], ["rdf"])
_PARENT_TAGS: Final = _ENTRY_TAGS | {"source"}
_NETSCAPE: Final = frozenset(
    {"http://my.netscape.com/rdf/simple/0.9/", "http://channel.netscape.com/rdf/simple/0.9/"}
)
_PRISM: Final = frozenset(
    f"http://prismstandard.org/namespaces/{path}/"
    for version in ("1.0", "1.2", "2.0", "2.1", "2.2", "3.0")
    for path in (f"{version}/basic", f"basic/{version}")
) | {"http://purl.org/rss/1.0/modules/prism/"}


class _FeedParser(StrictFeedParser):  # type: ignore[misc]
    """Reads the metadata of a feed and its entries, and skips everything else.

    An element is read only in its place. The children of an element of another namespace do not
    belong to the entry or feed around the element (RFC 4287, 6.3). In an entry, only `author` and
    `source` have children that are read.

    The content of entries is skipped, because it is never kept (R6). Content is every element that
    feedparser reads as content, such as `description`, `content:encoded`, `summary` and `rights`.
    feedparser sees an empty element instead.

    Ids stay as published, although feedparser itself resolves relative ids. All hours of skipHours
    and all days of skipDays are read, although feedparser itself keeps only the last ones.
    """

    _matchnamespaces = {  # noqa: RUF012 - feedparser fills it for all of its parsers
        **{uri.lower(): prefix for uri, prefix in StrictFeedParser.namespaces.items()},
        **dict.fromkeys(_NETSCAPE, ""),
        **dict.fromkeys(_PRISM, "prism"),
    }
    # Markup is not kept. So there is no need to sanitise it or to resolve its links.
    sanitize_html = resolve_relative_uris = False
    guidislink: bool | int = False
    contentparams: dict[str, object]
    version: str

    def __init__(self, base: str, first_entry: int, *, is_repaired: bool = False) -> None:
        """Read a document, but not its entries before the one with the index `first_entry`.

        `base` is the outermost `xml:base`, and empty if links stay as published. `is_repaired` is
        True if the published document is not well-formed.
        """
        super().__init__(base, None, "utf-8")
        self.document_url = base
        self.first_entry = first_entry
        self.is_repaired = is_repaired
        self.entries_begun = 0
        self.left_out = 0  #: entries that were skipped
        self.uri = ""  #: the namespace of the element that begins, in lower case
        self.is_rss_link = False
        self.skipped_depth = 0  #: open elements of the skipped element, itself included; else 0
        self.is_hidden = False  #: True if feedparser does not see the element that is skipped
        self.open: list[str] = []  #: the open elements that feedparser sees
        self.default_uri: str | None = None  #: the default namespace at the root
        self.rss_uri: str | None = None  #: the same if the root is RDF: the namespace of RSS 1.0
        self.feed_uris: set[str] = set()  #: unknown namespaces of the root, a channel or an item

    def count_entry(self) -> bool:
        """Count one more entry. Return False if it is to be skipped, because there are too many."""
        self.entries_begun += 1
        if self.first_entry < self.entries_begun <= self.first_entry + MAX_ENTRIES:
            return True
        self.left_out += 1
        return False

    def resolve_uri(self, uri: str) -> str:
        """Return a link resolved against its `xml:base`.

        A link without an `xml:base` stays as published. It is resolved later, by the rules of its
        format.
        """
        if self.document_url and self.baseuri == self.document_url:
            return uri
        return str(super().resolve_uri(uri))

    def unknown_starttag(self, tag: str, attrs: list[tuple[str, str]]) -> None:
        """Begin an element. `tag` has the prefix that feedparser uses for the namespace."""
        if not self.is_part_of_feed(tag) or (
            tag in _ENTRY_TAGS and not self.inentry and not self.count_entry()
        ):
            self.skipped_depth = 1
            self.is_hidden = True
            return
        if tag in _RDF_TAGS and self.open in _RDF_ROOTS and not self.version.startswith("rss"):
            self.version = "rss10"
        self.open.append(tag)
        if tag in _OTHER_DATES:
            super().unknown_starttag(_OTHER_DATES[tag], [])  # attributes would replace the text
        else:
            super().unknown_starttag(tag, attrs)

    def unknown_endtag(self, tag: str) -> None:
        """End an element."""
        super().unknown_endtag(_OTHER_DATES.get(tag, tag))

    def is_part_of_feed(self, tag: str) -> bool:
        """Return True if an element in this place belongs to the feed or the entry itself."""
        if self.incontent:
            return not (self.inentry and tag in _ENTRY_TAGS)
        if not self.open:
            self.feed_uris.add(self.uri)
            return True
        if self.is_repaired and self.entries_begun and not self.inentry and tag == "author":
            return False  # the author of an entry whose end was misplaced, not of the feed
        prefix = tag.rpartition(":")[0]
        parent = self.open[-1]
        if prefix and prefix not in _MODULES:
            return False
        if not prefix and self._is_of_unknown_namespace(tag):
            return False
        if ":" in parent and len(self.open) > 1:
            return parent in _GROUP_TAGS and parent.startswith(f"{prefix}:")
        return not self.inentry or parent in _PARENT_TAGS or (parent, tag) == ("author", "name")

    def _is_of_unknown_namespace(self, tag: str) -> bool:
        if not self.uri or self.uri in self._matchnamespaces or self.uri in self.feed_uris:
            return False
        if tag in ("channel", "item"):  # a feed whose namespace is not quite that of its format
            self.feed_uris.add(self.uri)
            return False
        return "backend.userland.com/rss" not in self.uri

    def track_namespace(self, prefix: str | None, uri: str) -> None:
        """Begin the scope of a prefix. For feedparser it lasts until the end of the document."""
        super().track_namespace(prefix, uri)
        if uri.lower() in _NETSCAPE and not self.version:
            self.version = "rss090"

    def push_content(self, tag: str, attrs: Mapping[str, str], kind: str, text: bool | int) -> None:
        """Begin a title or content. `tag` is the one name that feedparser has for all variants."""
        super().push_content(tag, attrs, kind, text)
        # A plain dict: failed look-ups in a FeedParserDict take a fifth of the parsing time.
        self.contentparams = dict(self.contentparams)
        # Only in entries, because an element such as `body` may contain entries.
        if self.inentry and tag != "title" and not _is_data(str(self.contentparams["type"])):
            self.skipped_depth = 1

    def _sync_author_detail(self, key: str = "author") -> None:
        # feedparser's search for an e-mail address is slow and cuts `.example` down to `.exam`. So
        # the whole text is kept here, and `person_names` removes the address.
        context = self._get_context()
        people = context.get("authors")
        if key == "author" and people and not people[-1]:
            people[-1]["name"] = context.get(key)

    def _start_name(self, attrs: Mapping[str, str]) -> None:
        # feedparser keeps only the last name of an author.
        people = self._get_context().get("authors")
        if self.inauthor and people and people[-1].get("name"):
            people.append({})
        super()._start_name(attrs)

    def _start_guid(self, attrs: Mapping[str, str]) -> None:
        # feedparser resolves relative ids and turns them into links. Here an id stays as published.
        super()._start_guid(attrs)
        declared = attrs.get("ispermalink", "").strip().lower()
        permalink = {"": "by default", "true": "declared"}.get(declared, "")
        self._save("permalink", permalink, overwrite=True)
        self.guidislink = False

    def _start_id(self, attrs: Mapping[str, str]) -> None:
        super()._start_id(attrs)
        self.guidislink = False

    def _start_link(self, attrs: dict[str, str]) -> None:
        # In RSS a link is the text of the element, but feedparser prefers the attributes.
        depth = len(self.elementstack)
        super()._start_link(attrs)
        self.is_rss_link = not self.version.startswith("atom") and "atom" not in self.uri
        if self.is_rss_link and len(self.elementstack) == depth:
            self.push("link", 1)

    def _end_link(self) -> None:
        if self.pop("link") and self.is_rss_link and not self.inimage:
            self._get_context()["links"][-1].update(rel="alternate", type="text/html")

    # feedparser would also parse each date, but `date_in_utc` reads its text.
    def _end_published(self) -> None:
        self.pop("published")

    _end_issued = _end_pubdate = _end_published

    def _end_updated(self) -> None:
        self.pop("updated")

    _end_modified = _end_lastbuilddate = _end_updated

    def _end_created(self) -> None:
        self.pop("created")

    def _start_hour(self, _attrs: object) -> None:
        self.push("hour", 1)

    def _end_hour(self) -> None:
        self.feeddata.setdefault("hours", []).append(self.pop("hour"))

    def _start_day(self, _attrs: object) -> None:
        self.push("day", 1)

    def _end_day(self) -> None:
        self.feeddata.setdefault("days", []).append(self.pop("day"))

    def startPrefixMapping(self, prefix: str | None, uri: str) -> None:  # noqa: N802
        """Begin the scope of a prefix."""
        if not self.open and prefix is None:
            self.default_uri = uri
        if not self.skipped_depth:
            super().startPrefixMapping(prefix, uri)

    def startElementNS(  # noqa: N802
        self, name: tuple[str | None, str], qname: object, attrs: Sized
    ) -> None:
        """Begin an element."""
        if self.skipped_depth:
            self.skipped_depth += 1
            return
        if not self.open and name[1].lower() == "rdf":
            self.rss_uri = self.default_uri
        if self.rss_uri and name[0] == self.rss_uri:
            name = (
                None,
                name[1],
            )  # feeds spell the namespace in ways that feedparser does not know
        namespace, local_name = name
        self.uri = (namespace or "").lower()
        if not namespace and not qname and not self.decls and not len(attrs):
            # Most elements of RSS: feedparser would look up nothing and change nothing.
            self.unknown_starttag(local_name.lower(), [])
        else:
            super().startElementNS(name, qname, attrs)

    def characters(self, text: str) -> None:
        """Handle a piece of text."""
        if not self.skipped_depth:
            self.handle_data(text)

    def endElementNS(  # noqa: N802
        self, name: tuple[str | None, str], qname: object
    ) -> None:
        """End an element."""
        if self.skipped_depth:
            self.skipped_depth -= 1
        if self.skipped_depth:
            return
        if self.is_hidden:
            self.is_hidden = False
        else:
            self.open.pop()
            if self.rss_uri and name[0] == self.rss_uri:
                name = (None, name[1])
            if name[0] or qname:
                super().endElementNS(name, qname)
            else:
                self.unknown_endtag(name[1].lower())


def _is_data(kind: str) -> bool:
    """Return True if feedparser reads content of this type as elements instead of markup."""
    return kind.endswith("xml") and kind != "application/xhtml+xml"
