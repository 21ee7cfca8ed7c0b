"""feedparser's parser of well-formed XML, with limits and rules that feedparser lacks.

`feedparser.parse` itself is not called. It needs 24 seconds for 100 kB in one `<author>`, and hours
for 15 MiB of nested `xml:base` or of different categories. It also decodes with any codec that a
document names, and opens a file or a URL if its input looks like one.
"""

from collections.abc import Mapping, Sized
from typing import Final

from feedparser.api import StrictFeedParser

from walsh_scrapy.metadata.document import (
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
#: Prefixes, as feedparser maps them, of the modules of which something is read.
_MODULES: Final = frozenset({"dc", "dcterms", "itunes", "media", "sy"})
#: Elements of these that hold others of the same module.
_GROUPS: Final = frozenset({"media:group", "media:content", "itunes:category"})
_HOLDERS: Final = _ENTRY | {"source"}
_NETSCAPE: Final = frozenset(
    {"http://my.netscape.com/rdf/simple/0.9/", "http://channel.netscape.com/rdf/simple/0.9/"}
)
_MOST_NAMESPACES: Final = 200
_LONGEST_BASE: Final = 1024


class FeedParser(StrictFeedParser):  # type: ignore[misc]
    """Reads what a feed says of itself and of its entries, and skips all else.

    An element counts only in its own place: children of an element of another namespace are not
    those of the entry or feed that it is in (RFC 4287, 6.3), and of the children of an entry only
    `author` and `source` have some that count. The content of entries is skipped, because it is
    never kept (R6): it is every element that feedparser reads as content, such as `description`,
    `content:encoded`, `summary` and `rights`, which feedparser sees as an empty element.

    Ids are as published, and skipHours and skipDays are whole: feedparser itself resolves relative
    ids and keeps only the last hour and day.
    """

    _matchnamespaces = {  # noqa: RUF012 - feedparser fills it for all of its parsers
        **{uri.lower(): prefix for uri, prefix in StrictFeedParser.namespaces.items()},
        **dict.fromkeys(_NETSCAPE, ""),
    }
    # Markup is not kept, so it is not sanitised, and links in it are not resolved.
    sanitize_html = resolve_relative_uris = False
    elements = 0
    attributes = 0
    base_characters = 0  #: of the bases of all links
    first_entry = 0  #: entries before it are skipped
    is_repaired = False  #: True if the document is not well-formed as it was published
    entries_begun = 0
    left_out = 0  #: entries that were skipped
    guidislink: bool | int = False
    contentparams: dict[str, object]
    version: str
    uri = ""  #: the namespace of the element that begins, in lower case
    is_rss_link = False
    unread = 0  #: open elements in what is being skipped, itself included; else 0
    is_skipping = False  #: True if feedparser does not see the element that is being skipped

    def __init__(self, base: str, language: str | None, encoding: str) -> None:
        super().__init__(base, language, encoding)
        self.open: list[str] = []  #: the open elements that feedparser sees
        self.own_uris: set[str] = set()  #: unknown namespaces of the root, a channel or an item

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
        """Begin an element; `tag` has the prefix by which feedparser knows its namespace."""
        self.count()
        self.count_attributes(len(attrs))
        if not self.is_own(tag) or (tag in _ENTRY and not self.inentry and self.skips_entry()):
            self.unread, self.is_skipping = 1, True
            return
        self.open.append(tag)
        room = _LONGEST_BASE - len(self.baseuri)
        attrs = [(name, value) for name, value in attrs if len(value) < room or "base" not in name]
        super().unknown_starttag(tag, attrs)

    def is_own(self, tag: str) -> bool:
        """Return True if an element in this place is one of the feed or the entry itself."""
        if self.incontent:
            return not (self.inentry and tag in _ENTRY)
        if not self.open:
            self.own_uris.add(self.uri)
            return True
        if self.is_repaired and self.entries_begun and not self.inentry and tag == "author":
            return False  # it fell out of an entry that ended too early; others would inherit it
        prefix, parent = tag.rpartition(":")[0], self.open[-1]
        if prefix and prefix not in _MODULES:
            return False
        if not prefix and self._is_of_unknown_namespace(tag):
            return False
        if ":" in parent and len(self.open) > 1:
            return parent in _GROUPS and parent.startswith(f"{prefix}:")
        return not self.inentry or parent in _HOLDERS or (parent, tag) == ("author", "name")

    def _is_of_unknown_namespace(self, tag: str) -> bool:
        if not self.uri or self.uri in self._matchnamespaces or self.uri in self.own_uris:
            return False
        if tag in ("channel", "item"):  # a feed whose namespace is not quite that of its format
            self.own_uris.add(self.uri)
            return False
        return "backend.userland.com/rss" not in self.uri

    def track_namespace(self, prefix: str | None, uri: str) -> None:
        """Begin the scope of a prefix, which feedparser extends to the end of the document."""
        if len(self.namespaces_in_use) < _MOST_NAMESPACES:
            super().track_namespace(prefix, uri)
        if uri.lower() in _NETSCAPE and not self.version:
            self.version = "rss090"

    def push_content(self, tag: str, attrs: Mapping[str, str], kind: str, text: bool | int) -> None:
        """Begin a title or content; `tag` is the name that feedparser maps all variants to."""
        super().push_content(tag, attrs, kind, text)
        # A plain dict: as a FeedParserDict, its failed look-ups take a fifth of the parsing time.
        self.contentparams = dict(self.contentparams)
        # Only in entries: an element that contains entries, such as `body`, is not their content.
        if self.inentry and tag != "title" and not _is_data(str(self.contentparams["type"])):
            self.unread = 1

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

    def _start_link(self, attrs: dict[str, str]) -> None:
        # In RSS a link is the text, whatever attributes it has; feedparser takes those.
        depth = len(self.elementstack)
        super()._start_link(attrs)
        self.is_rss_link = not self.version.startswith("atom") and "atom" not in self.uri
        if self.is_rss_link and len(self.elementstack) == depth:
            self.push("link", 1)

    def _end_link(self) -> None:
        if self.pop("link") and self.is_rss_link and not self.inimage:
            self._get_context()["links"][-1].update(rel="alternate", type="text/html")

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
            return
        if len(attrs) > MOST_ATTRIBUTES:  # before feedparser looks for each in all others
            self.count_attributes(len(attrs))
        self.uri = (name[0] or "").lower()
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
            self.open.pop()
            super().endElementNS(name, qname)


def _is_data(kind: str) -> bool:
    """Return True if feedparser reads content of this type as elements instead of markup."""
    return kind.endswith("xml") and kind != "application/xhtml+xml"
