"""feedparser's two parsers, with limits that feedparser lacks.

`feedparser.parse` itself is not called. It needs 24 seconds for 100 kB in one `<author>`, and hours
for 15 MiB of nested `xml:base` or of different categories. It also decodes with any codec that a
document names, and opens a file or a URL if its input looks like one.
"""

from collections.abc import Mapping, Sized
from typing import Final

from feedparser.api import LooseFeedParser, StrictFeedParser
from feedparser.mixin import _FeedParserMixin

from walsh_scrapy.metadata.budgets import (
    MOST_ATTRIBUTES,
    MOST_ATTRIBUTES_IN_ALL,
    MOST_BASE_CHARACTERS,
    MOST_DEPTH,
    MOST_ELEMENTS,
    MOST_ENTRIES,
    OverBudget,
)
from walsh_scrapy.metadata.text import MOST_NAMES

_ENTRY: Final = frozenset({"item", "entry"})
_MOST_NAMESPACES: Final = 200
_LONGEST_BASE: Final = 1024


class _Guards(_FeedParserMixin):  # type: ignore[misc]
    """Limits, ids as published, and all of skipHours and skipDays.

    feedparser itself resolves relative ids and keeps only the last hour and day.
    """

    # Markup is not kept, so it is not sanitised, and links in it are not resolved.
    sanitize_html = resolve_relative_uris = False
    elements = 0
    attributes = 0
    base_characters = 0  #: of the bases of all links
    first_entry = 0  #: entries before it are skipped
    entries_begun = 0
    left_out = 0  #: entries that were skipped
    guidislink: bool | int = False
    contentparams: dict[str, object]

    def count(self) -> None:
        """Count one more element; raise OverBudget above `MOST_ELEMENTS`."""
        self.elements += 1
        if self.elements > MOST_ELEMENTS:
            raise OverBudget(f"XML of more than {MOST_ELEMENTS} elements")

    def count_attributes(self, number: int) -> None:
        """Count the attributes of one element; raise OverBudget if they are too many."""
        if number > MOST_ATTRIBUTES:
            raise OverBudget(f"XML of more than {MOST_ATTRIBUTES} attributes of one element")
        self.attributes += number
        if self.attributes > MOST_ATTRIBUTES_IN_ALL:
            raise OverBudget(f"XML of more than {MOST_ATTRIBUTES_IN_ALL} attributes")

    def skips_entry(self) -> bool:
        """Count one more entry; return True if it is to be skipped (decision 34)."""
        self.entries_begun += 1
        skipped = not 0 < self.entries_begun - self.first_entry <= MOST_ENTRIES
        self.left_out += skipped
        return skipped

    def resolve_uri(self, uri: str) -> str:
        """Return a link resolved against the base; raise OverBudget if that was too much work."""
        self.base_characters += len(self.baseuri or "")
        if self.base_characters > MOST_BASE_CHARACTERS:
            raise OverBudget(
                f"XML whose xml:base makes its links longer than {MOST_BASE_CHARACTERS} characters"
            )
        resolved: str = super().resolve_uri(uri)
        return resolved

    def unknown_starttag(self, tag: str, attrs: list[tuple[str, str]]) -> None:
        self.count()
        self.count_attributes(len(attrs))
        room = _LONGEST_BASE - len(self.baseuri)
        attrs = [(name, value) for name, value in attrs if len(value) < room or "base" not in name]
        super().unknown_starttag(tag, attrs)

    def track_namespace(self, prefix: str | None, uri: str) -> None:
        if len(self.namespaces_in_use) < _MOST_NAMESPACES:
            super().track_namespace(prefix, uri)

    def push_content(self, tag: str, attrs: Mapping[str, str], kind: str, text: bool | int) -> None:
        super().push_content(tag, attrs, kind, text)
        # A plain dict: as a FeedParserDict, its failed look-ups take a fifth of the parsing time.
        self.contentparams = dict(self.contentparams)

    def _add_tag(self, *names: str | None) -> None:
        if len(self._get_context().setdefault("tags", [])) < MOST_NAMES:
            super()._add_tag(*names)

    def _sync_author_detail(self, key: str = "author") -> None:
        # feedparser's own search for an address is slow and cuts `.example` down to `.exam`. The
        # whole text is kept here; `person_name` removes the address.
        context = self._get_context()
        people = context.get("authors")
        if key == "author" and people and not people[-1]:
            people[-1]["name"] = context.get(key)

    def _start_guid(self, attrs: Mapping[str, str]) -> None:
        # feedparser resolves relative ids and makes links of them; an id stays as published.
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
    """For well-formed XML. It skips the content of entries, because content is never kept (R6).

    Content is every element that feedparser reads as content, such as `description`,
    `content:encoded`, `summary` and `rights`. feedparser sees it as an empty element.
    """

    unread = 0  #: open elements in the content that is being skipped, itself included; else 0
    is_skipping = False  #: True in an entry beyond the budget, which feedparser does not see

    def push_content(self, tag: str, attrs: Mapping[str, str], kind: str, text: bool | int) -> None:
        """Begin a title or content; `tag` is the name that feedparser maps all variants to."""
        super().push_content(tag, attrs, kind, text)
        # Only in entries: an element that contains entries, such as `body`, is not their content.
        if self.inentry and tag != "title" and not _is_data(str(self.contentparams["type"])):
            self.unread = 1

    def startPrefixMapping(self, prefix: str | None, uri: str) -> None:  # noqa: N802
        """Begin the scope of a prefix, which feedparser extends to the end of the document."""
        if not self.unread:
            super().startPrefixMapping(prefix, uri)

    def startElementNS(  # noqa: N802
        self, name: tuple[str | None, str], qname: object, attrs: Sized
    ) -> None:
        """Begin an element."""
        if self.depth + self.unread >= MOST_DEPTH:
            raise OverBudget(f"XML of more than {MOST_DEPTH} elements in each other")
        if self.unread:
            self.unread += 1
            self.count()
        elif name[1].lower() in _ENTRY and not self.inentry and self.skips_entry():
            self.unread, self.is_skipping = 1, True
            self.count()
        else:
            if len(attrs) > MOST_ATTRIBUTES:  # before feedparser looks for each in all others
                self.count_attributes(len(attrs))
            super().startElementNS(name, qname, attrs)

    def characters(self, text: str) -> None:
        """Take a piece of text."""
        if not self.unread:
            self.handle_data(text)

    def endElementNS(self, name: object, qname: object) -> None:  # noqa: N802
        """End an element."""
        if self.unread:
            self.unread -= 1
        if self.unread:
            return
        if self.is_skipping:
            self.is_skipping = False
        else:
            super().endElementNS(name, qname)


def _is_data(kind: str) -> bool:
    """Return True if feedparser reads content of this type as elements instead of markup."""
    return kind.endswith("xml") and kind != "application/xhtml+xml"


class LooseParser(_Guards, LooseFeedParser):  # type: ignore[misc]
    """For feeds that are not well-formed XML."""

    is_skipping = False  #: True from an entry beyond the budget to the next one

    def unknown_starttag(self, tag: str, attrs: list[tuple[str, str]]) -> None:
        """Begin an element."""
        if tag.rpartition(":")[2] in _ENTRY:
            self.is_skipping = self.skips_entry()
        if self.is_skipping:
            self.count()
        else:
            super().unknown_starttag(tag, attrs)

    def unknown_endtag(self, tag: str) -> None:
        """End an element."""
        if not self.is_skipping:
            super().unknown_endtag(tag)
        elif tag.rpartition(":")[2] in _ENTRY:
            self.is_skipping = False

    def handle_data(self, text: str, escape: int = 1) -> None:
        """Take a piece of text."""
        if not self.is_skipping:
            super().handle_data(text, escape)
