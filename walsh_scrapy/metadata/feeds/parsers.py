"""feedparser's two parsers, with the limits they lack.

`feedparser.parse` itself is not called: 100 kB in one `<author>` keep it busy for 24 seconds, and
15 MiB of nested `xml:base` or of different categories for hours. It also decodes by any codec that
a document names, and opens the file or the URL that its input happens to name.
"""

from collections.abc import Mapping
from typing import Final

from feedparser.api import LooseFeedParser, StrictFeedParser
from feedparser.mixin import _FeedParserMixin

from walsh_scrapy.metadata.text import MOST_NAMES

MOST_ELEMENTS: Final = 400_000  # twice what real feeds of 15 MiB have; about 5 seconds
_MOST_NAMESPACES: Final = 200
_LONGEST_BASE: Final = 4096


class TooManyElements(Exception):
    """More elements than any feed has."""


class _Guards(_FeedParserMixin):  # type: ignore[misc]
    """Limits; ids as published; every hour and day to skip, of which feedparser keeps the last."""

    # Markup is neither sanitised nor are the links in it resolved: none of it is kept.
    sanitize_html = resolve_relative_uris = False
    elements = 0
    guidislink: bool | int = False
    contentparams: dict[str, object]

    def count(self) -> None:
        """Count one more element; raise TooManyElements if it is one too many."""
        self.elements += 1
        if self.elements > MOST_ELEMENTS:
            raise TooManyElements

    def unknown_starttag(self, tag: str, attrs: list[tuple[str, str]]) -> None:
        self.count()
        room = _LONGEST_BASE - len(self.baseuri)
        attrs = [(name, value) for name, value in attrs if len(value) < room or "base" not in name]
        super().unknown_starttag(tag, attrs)

    def track_namespace(self, prefix: str | None, uri: str) -> None:
        if len(self.namespaces_in_use) < _MOST_NAMESPACES:
            super().track_namespace(prefix, uri)

    def push_content(self, tag: str, attrs: Mapping[str, str], kind: str, text: bool | int) -> None:
        super().push_content(tag, attrs, kind, text)
        # As a FeedParserDict, asked at every turn for what it lacks, it took a fifth of the time.
        self.contentparams = dict(self.contentparams)

    def _add_tag(self, *names: str | None) -> None:
        if len(self._get_context().setdefault("tags", [])) < MOST_NAMES:
            super()._add_tag(*names)

    def _sync_author_detail(self, key: str = "author") -> None:
        # feedparser's own search for an address is what takes so long, and ends `.example` at
        # `.exam`. The text is kept whole here; `person` takes the address out of it.
        context = self._get_context()
        people = context.get("authors")
        if key == "author" and people and not people[-1]:
            people[-1]["name"] = context.get(key)

    def _start_guid(self, attrs: Mapping[str, str]) -> None:
        # feedparser resolves relative ids and makes links of them; an id is a name as it stands.
        super()._start_guid(attrs)
        self._save("permalink", bool(self.guidislink), overwrite=True)
        self.guidislink = False

    def _start_id(self, attrs: Mapping[str, str]) -> None:
        super()._start_id(attrs)
        self.guidislink = False

    def _start_hour(self, _attrs: object) -> None:
        self.push("hour", 1)

    def _end_hour(self) -> None:
        self.feeddata.setdefault("hours", []).append(self.pop("hour"))

    def _start_day(self, _attrs: object) -> None:
        self.push("day", 1)

    def _end_day(self) -> None:
        self.feeddata.setdefault("days", []).append(self.pop("day"))


class StrictParser(_Guards, StrictFeedParser):  # type: ignore[misc]
    """For XML that is well-formed. It steps over the content of entries, which is never kept.

    Content is what feedparser takes for it: `description`, `content:encoded`, `summary`, `rights`
    and their like. To feedparser it begins and ends, with nothing in between.
    """

    unread = 0  #: elements that are open, from the content inwards

    def push_content(self, tag: str, attrs: Mapping[str, str], kind: str, text: bool | int) -> None:
        """Begin a title or content; `tag` is feedparser's one name for all its names in feeds."""
        super().push_content(tag, attrs, kind, text)
        # Only in entries: what has entries in it is not their content, even if it is a `body`.
        if self.inentry and tag != "title" and not _is_data(str(self.contentparams["type"])):
            self.unread = 1

    def startPrefixMapping(self, prefix: str | None, uri: str) -> None:  # noqa: N802
        """Begin the scope of a prefix: feedparser keeps it to the end of the document."""
        if not self.unread:
            super().startPrefixMapping(prefix, uri)

    def startElementNS(self, name: object, qname: object, attrs: object) -> None:  # noqa: N802
        """Begin an element."""
        if self.unread:
            self.unread += 1
            self.count()
        else:
            super().startElementNS(name, qname, attrs)

    def characters(self, text: str) -> None:
        """Take a piece of text."""
        if not self.unread:
            self.handle_data(text)

    def endElementNS(self, name: object, qname: object) -> None:  # noqa: N802
        """End an element."""
        if self.unread:
            self.unread -= 1
        if not self.unread:
            super().endElementNS(name, qname)


def _is_data(kind: str) -> bool:
    """Tell whether content of this type is elements to feedparser, and no markup."""
    return kind.endswith("xml") and kind != "application/xhtml+xml"


class LooseParser(_Guards, LooseFeedParser):  # type: ignore[misc]
    """For all the rest that calls itself a feed."""
