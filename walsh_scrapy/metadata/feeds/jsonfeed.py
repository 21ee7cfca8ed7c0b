"""JSON Feed 1.0 and 1.1 (jsonfeed.org/version/1.1), read as its specification says.

Items without an id are dropped, ids of other types become strings, `authors` outranks the `author`
of 1.0, and an item without either has the feed's. `external_url` is what an item talks about, never
its link.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from walsh_scrapy.metadata.encoding import to_utf8
from walsh_scrapy.metadata.entries import Entry, Feed
from walsh_scrapy.metadata.feeds.dates import utc
from walsh_scrapy.metadata.feeds.sniff import not_a_feed
from walsh_scrapy.metadata.links import web_url
from walsh_scrapy.metadata.text import feed_title, language, names, one_line, person

_Object: TypeAlias = Mapping[str, object]

_MOST_VALUES: Final = 400_000  # objects and lists; 15 MiB of empty ones would take 2 GB
_VERSION: Final = re.compile(r"https?://(?:www\.)?jsonfeed\.org/version/1(?:\.\d+)?/?", re.ASCII)


def read_json(body: bytes, *, url: str, content_type: str | None) -> Feed:
    """Return the feed in a JSON document, its entries without keys yet.

    `url` is where the document came from. Raises NotAFeed if it is other JSON, or none at all.
    """
    feed = _document(body, content_type)
    inherited = _authors(feed)
    items = feed.get("items")
    return Feed(
        title=feed_title(one_line(feed.get("title"))),
        language=language(feed.get("language")),
        entries=tuple(_entry(item, url, inherited) for item in _objects(items) if _id(item)),
        expired=feed.get("expired") is True,
    )


def _document(body: bytes, content_type: str | None) -> _Object:
    if body.count(b"{") + body.count(b"[") > _MOST_VALUES:
        raise not_a_feed(f"JSON of more than {_MOST_VALUES} objects and lists", content_type)
    try:
        # Numbers stay as written: ids of any length, and nothing to overflow.
        text = to_utf8(body, content_type).decode()
        read: object = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise not_a_feed("text that begins like JSON and is none", content_type) from error
    if not isinstance(read, dict) or not _VERSION.fullmatch(str(read.get("version")).strip()):
        raise not_a_feed(_other(read), content_type)
    if not isinstance(read.get("items"), list):
        raise not_a_feed("a JSON Feed without its list of items", content_type)
    return read


def _other(read: object) -> str:
    if isinstance(read, dict) and "jsonfeed.org" in str(read.get("version")):
        return "a JSON Feed of an unknown version"
    if isinstance(read, dict) and isinstance(read.get("rss"), dict):
        return "RSS written as JSON, which has no specification to be read by"
    return "JSON of another kind"


def _entry(item: _Object, base: str, inherited: tuple[str, ...]) -> Entry:
    return Entry(
        url=web_url(item.get("url"), base),
        title=one_line(item.get("title")),
        id=_id(item),
        published=utc(item.get("date_published")),
        updated=utc(item.get("date_modified")),
        authors=_authors(item) or inherited,
        tags=names(map(one_line, _list(item.get("tags")))),
    )


def _id(item: _Object) -> str | None:
    written = item.get("id")
    return one_line(str(written).lower() if isinstance(written, bool) else written)


def _authors(element: _Object) -> tuple[str, ...]:
    several = names(_name(author) for author in _list(element.get("authors")))
    return several or names([_name(element.get("author"))])


def _name(author: object) -> str | None:
    return person(one_line(author.get("name") if isinstance(author, dict) else author))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> Iterator[_Object]:
    yield from (each for each in _list(value) if isinstance(each, dict))
