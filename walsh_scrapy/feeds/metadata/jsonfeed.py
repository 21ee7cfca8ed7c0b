"""JSON Feed 1.0 and 1.1, read by the specification (jsonfeed.org/version/1.1).

Items without an id are dropped. Ids that are not strings become strings. `authors` is preferred to
the `author` of version 1.0, and an item without either has the authors of the feed. Both fields may
be an object, a name, or a list of these. `external_url`, the page that an item writes about, is its
link only if it has no `url`.

Some generators leave out `version`. Then the document is a JSON Feed if it is served as one, or if
each of its items has an id and a link or content.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from walsh_scrapy.feeds.metadata.encoding import to_utf8
from walsh_scrapy.feeds.metadata.entries import Feed, FeedEntry, NotAFeed
from walsh_scrapy.feeds.metadata.formats import is_json_feed, newest
from walsh_scrapy.feeds.metadata.text import (
    date_in_utc,
    distinct_names,
    distinct_tags,
    language_tag,
    list_of,
    objects_of,
    person_names,
    title_of,
    web_url,
)
from walsh_scrapy.policy.wording import one_line

_Object: TypeAlias = Mapping[str, object]

#: An item has one of these, and an id.
_ITEM_MEMBERS: Final = ("url", "external_url", "content_html", "content_text")
_VERSION: Final = re.compile(r"https?://(?:www\.)?jsonfeed\.org/version/1(?:\.\d+)?/?", re.ASCII)


def parse_json_feed(body: bytes, *, url: str, content_type: str | None) -> Feed:
    """Return the feed in a JSON document, with entries that have no keys yet.

    `url` is the final URL of the response. Raises NotAFeed if the body is not a JSON Feed.
    """
    feed = _feed_object(body, content_type)
    feed_authors = _authors(feed)
    items = [item for item in objects_of(feed.get("items")) if _id(item)]
    newest_items = newest(items, _date)
    return Feed(
        title=title_of(feed.get("title")),
        language=language_tag(feed.get("language")),
        entries=tuple(_entry(item, url, feed_authors) for item in newest_items),
        link=web_url(feed.get("home_page_url"), url),
        left_out=len(items) - len(newest_items),
        format="JSON Feed",
        expired=feed.get("expired") is True,
    )


def _feed_object(body: bytes, content_type: str | None) -> _Object:
    body = to_utf8(body, content_type)
    try:
        # Numbers stay text: an id may have any length, and no number can overflow.
        value: object = json.loads(body, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise NotAFeed.of_format(
            "text that begins like JSON but is not valid", content_type
        ) from error
    if not isinstance(value, dict) or not _is_feed(value, content_type):
        raise NotAFeed.of_format(_describe_json(value), content_type)
    if not isinstance(value.get("items"), list):
        raise NotAFeed.of_format("a JSON Feed without its list of items", content_type)
    return value


def _is_feed(value: _Object, content_type: str | None) -> bool:
    if value.get("version"):
        return _VERSION.fullmatch(str(value["version"]).strip()) is not None
    items = value.get("items")
    if not isinstance(items, list):
        return False
    if is_json_feed(content_type or ""):
        return True
    return bool(items) and all(isinstance(item, dict) and _is_item(item) for item in items)


def _is_item(value: _Object) -> bool:
    return _id(value) is not None and any(value.get(name) for name in _ITEM_MEMBERS)


def _date(item: _Object) -> str | None:
    return date_in_utc(item.get("date_published")) or date_in_utc(item.get("date_modified"))


def _describe_json(value: object) -> str:
    if isinstance(value, dict) and "jsonfeed.org" in str(value.get("version")):
        return "a JSON Feed of an unknown version"
    if isinstance(value, dict) and isinstance(value.get("rss"), dict):
        return "RSS written as JSON, a format without a specification"
    return "JSON of another kind"


def _entry(item: _Object, base: str, feed_authors: tuple[str, ...]) -> FeedEntry:
    return FeedEntry(
        url=web_url(item.get("url") or item.get("external_url"), base),
        title=title_of(item.get("title")),
        id=_id(item),
        published=date_in_utc(item.get("date_published")),
        updated=date_in_utc(item.get("date_modified")),
        authors=_authors(item) or feed_authors,
        tags=distinct_tags(map(one_line, list_of(item.get("tags")))),
    )


def _id(item: _Object) -> str | None:
    value = item.get("id")
    return one_line(str(value).lower() if isinstance(value, bool) else value)


def _authors(element: _Object) -> tuple[str, ...]:
    return distinct_names(_names(element.get("authors"))) or distinct_names(
        _names(element.get("author"))
    )


def _names(authors: object) -> Iterator[str | None]:
    for author in authors if isinstance(authors, list) else [authors]:
        yield from person_names(
            one_line(author.get("name") if isinstance(author, dict) else author)
        )
