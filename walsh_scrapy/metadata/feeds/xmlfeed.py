"""RSS 0.9x to 2.0, RSS 1.0 (RDF), Atom 0.3 and 1.0: from elements to entries and update hints (R8).

The hints are only read here: `policy.freshness` decides when the feed is due (decision 20).
"""

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final

from walsh_scrapy.metadata.entries import Feed, FeedEntry
from walsh_scrapy.metadata.feeds.dates import date_in_utc
from walsh_scrapy.metadata.feeds.elements import Element, FeedElements, parse_elements
from walsh_scrapy.metadata.text import (
    distinct_names,
    distinct_tags,
    from_html,
    is_web_url,
    language_tag,
    list_of,
    objects_of,
    one_line,
    person_name,
    title_of,
    web_url,
)

_RELATIONS: Final = "http://www.iana.org/assignments/relation/"


def read_xml(body: bytes, *, url: str, content_type: str | None) -> Feed:
    """Return the feed in an XML document, with entries that have no keys yet.

    `url` is the final URL of the response. Raises NotAFeed if it is another kind of XML.
    """
    elements = parse_elements(body, url=url, content_type=content_type)
    channel = elements.channel
    return Feed(
        title=_title(channel),
        language=language_tag(channel.get("language")),
        entries=_entries(elements, url),
        ttl=_ttl(channel),
        update_period=_update_period(channel),
        update_frequency=_update_frequency(channel),
        skip_hours=_skip_hours(channel),
        skip_days=_skip_days(channel),
        is_whole=elements.is_whole,
        left_out=elements.left_out,
        format=elements.format,
    )


def _entries(elements: FeedElements, base: str) -> tuple[FeedEntry, ...]:
    read = _atom_entry if elements.is_atom else _rss_entry
    inherited = distinct_names(_people(elements.channel)) if elements.is_atom else ()
    entries = tuple(read(element, base, inherited) for element in elements.entries)
    if elements.is_cut_in_entry and entries and not (entries[-1].url and entries[-1].title):
        return entries[:-1]  # with its link, in a later response, it would have another key
    return entries


def _atom_entry(element: Element, base: str, inherited: tuple[str, ...]) -> FeedEntry:
    """Return an Atom entry (RFC 4287). Its id is a name and never used as a link.

    `inherited` are the authors of the feed. They count for an entry that has no authors, neither
    of its own nor in its `source` element (4.2.1).
    """
    source = element.get("source")
    own = distinct_names(_people(element)) or (
        distinct_names(_people(source)) if isinstance(source, dict) else ()
    )
    return FeedEntry(
        url=_link(element, base),
        title=_title(element),
        id=one_line(element.get("id")),
        published=_date(element, "published") or _date(element, "created"),
        updated=_date(element, "updated"),
        authors=own or inherited,
        tags=distinct_tags(map(one_line, _terms(element))),
    )


def _rss_entry(element: Element, base: str, _inherited: tuple[str, ...]) -> FeedEntry:
    """Return an item of RSS or RDF; its names and tags may be escaped twice.

    `dc:date` is the only date of most RDF items. feedparser reads it as the date of the update; it
    counts as the date of publication as well.
    """
    updated = _date(element, "updated")
    return FeedEntry(
        url=_link(element, base) or _permalink(element),
        title=_title(element),
        id=one_line(element.get("id")),
        published=_date(element, "published") or _date(element, "created") or updated,
        updated=updated,
        authors=distinct_names(_people(element)),
        tags=distinct_tags(map(from_html, _terms(element))),
    )


def _title(element: Element) -> str | None:
    detail = element.get("title_detail")
    markup = isinstance(detail, dict) and "html" in str(detail.get("type"))
    title = element.get("title")
    return title_of(from_html(title) if markup else title)


def _date(element: Element, name: str) -> str | None:
    return date_in_utc(element.get(name))


def _link(element: Element, base: str) -> str | None:
    """Return the first alternate link that is a web URL; HTML pages come before other media."""
    links = [link for link in objects_of(element.get("links")) if _is_alternate(link.get("rel"))]
    links.sort(key=lambda link: "html" not in str(link.get("type")))
    return next(filter(None, (web_url(link.get("href"), base) for link in links)), None)


def _is_alternate(relation: object) -> bool:
    """Return True for `alternate`, by its name or as an IRI (RFC 4287, 4.2.7.2)."""
    return str(relation).removeprefix(_RELATIONS) == "alternate"


def _permalink(element: Element) -> str | None:
    """Return the guid of an item without a usable link, if it is a permalink (RSS 2.0)."""
    guid = element.get("id")
    return web_url(guid, "") if element.get("permalink") and is_web_url(guid) else None


def _people(element: Element) -> Iterator[str | None]:
    for author in objects_of(element.get("authors")):
        name = one_line(author.get("name"))
        yield person_name(from_html(name))


def _terms(element: Element) -> Iterator[object]:
    for tag in objects_of(element.get("tags")):
        yield tag.get("term") or tag.get("label")


_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_PERIODS: Final = frozenset({"hourly", "daily", "weekly", "monthly", "yearly"})
_DAYS: Final = frozenset(
    {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
)


def _ttl(channel: Mapping[str, object]) -> float | None:
    """Return the minutes that a copy may be kept (RSS 2.0 `ttl`); None if absent or not above 0."""
    minutes = _number(channel.get("ttl"))
    return minutes if minutes and isfinite(minutes) else None


def _update_period(channel: Mapping[str, object]) -> str | None:
    """Return `sy:updatePeriod`: hourly, daily, weekly, monthly or yearly; None if none of these."""
    period = str(channel.get("sy_updateperiod", "")).strip().lower()
    return period if period in _PERIODS else None


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
