"""RSS 0.9x to 2.0, RSS 1.0 (RDF), Atom 0.3 and 1.0, from what feedparser reads in them."""

from collections.abc import Iterator
from time import struct_time

from walsh_scrapy.metadata.entries import Entry, Feed
from walsh_scrapy.metadata.feeds import hints
from walsh_scrapy.metadata.feeds.dates import utc
from walsh_scrapy.metadata.feeds.document import Document, Element, parse
from walsh_scrapy.metadata.links import is_web, web_url
from walsh_scrapy.metadata.text import feed_title, from_html, language, names, one_line, person


def read_xml(body: bytes, *, url: str, content_type: str | None) -> Feed:
    """Return the feed in an XML document, its entries without keys yet.

    `url` is where the document came from. Raises NotAFeed if it is XML of another kind.
    """
    document = parse(body, url=url, content_type=content_type)
    channel = document.channel
    return Feed(
        title=feed_title(_title(channel)),
        language=language(channel.get("language")),
        entries=_entries(document, url),
        ttl=hints.ttl(channel),
        update_period=hints.update_period(channel),
        update_frequency=hints.update_frequency(channel),
        skip_hours=hints.skip_hours(channel),
        skip_days=hints.skip_days(channel),
        is_whole=document.is_whole,
    )


def _entries(document: Document, base: str) -> tuple[Entry, ...]:
    read = _atom_entry if document.is_atom else _rss_entry
    inherited = names(_people(document.channel)) if document.is_atom else ()
    entries = tuple(read(element, base, inherited) for element in document.entries)
    if document.breaks_off and entries and not (entries[-1].url and entries[-1].title):
        return entries[:-1]  # it is whole in the next answer, and would be another entry there
    return entries


def _atom_entry(element: Element, base: str, inherited: tuple[str, ...]) -> Entry:
    """Read an Atom entry (RFC 4287). Its id is a name, never a link; its authors may be inherited.

    `inherited` are the feed's authors, which its entries have unless they or their source say
    otherwise (4.2.1).
    """
    source = element.get("source")
    own = names(_people(element)) or (names(_people(source)) if isinstance(source, dict) else ())
    return Entry(
        url=_link(element, base),
        title=_title(element),
        id=one_line(element.get("id")),
        published=_date(element, "published") or _date(element, "created"),
        updated=_date(element, "updated"),
        authors=own or inherited,
        tags=names(map(one_line, _terms(element))),
    )


def _rss_entry(element: Element, base: str, _inherited: tuple[str, ...]) -> Entry:
    """Read an item of RSS or RDF; names and tags in it may be escaped twice.

    `dc:date`, the only date most RDF items have, is the publication's, and as feedparser has it
    also the last change.
    """
    updated = _date(element, "updated")
    return Entry(
        url=_link(element, base) or _permalink(element),
        title=_title(element),
        id=one_line(element.get("id")),
        published=_date(element, "published") or _date(element, "created") or updated,
        updated=updated,
        authors=names(_people(element)),
        tags=names(map(from_html, _terms(element))),
    )


def _title(element: Element) -> str | None:
    detail = element.get("title_detail")
    markup = isinstance(detail, dict) and "html" in str(detail.get("type"))
    return from_html(element.get("title")) if markup else one_line(element.get("title"))


def _date(element: Element, name: str) -> str | None:
    parsed = element.get(f"{name}_parsed")
    return utc(element.get(name), parsed if isinstance(parsed, struct_time) else None)


def _link(element: Element, base: str) -> str | None:
    """Return the first alternate link that leads to the web, pages before other media."""
    links = [link for link in _dicts(element.get("links")) if link.get("rel") == "alternate"]
    links.sort(key=lambda link: "html" not in str(link.get("type")))
    return next(filter(None, (web_url(link.get("href"), base) for link in links)), None)


def _permalink(element: Element) -> str | None:
    """Return the guid of an item without a usable link, if it is a permalink (RSS 2.0)."""
    guid = element.get("id")
    return web_url(guid, "") if element.get("permalink") and is_web(guid) else None


def _people(element: Element) -> Iterator[str | None]:
    for author in _dicts(element.get("authors")):
        name = one_line(author.get("name"))
        yield person(from_html(name))


def _terms(element: Element) -> Iterator[object]:
    for tag in _dicts(element.get("tags")):
        yield tag.get("term") or tag.get("label")


def _dicts(value: object) -> Iterator[Element]:
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))
