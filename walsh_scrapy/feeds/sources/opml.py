"""Reading OPML, the list of subscriptions that feed readers export.

Only the predefined entities of XML and HTML are expanded, and nothing is fetched. A well-formed
file is read by the XML parser of lxml. Other files are read by its HTML parser, which ignores
declarations.
"""

from __future__ import annotations

import html
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lxml.etree import HTMLParser, LxmlError, XMLParser  # type: ignore[import-untyped]

from walsh_scrapy.feeds.metadata.encoding import to_utf8
from walsh_scrapy.feeds.sources.source import unique
from walsh_scrapy.files import UnreadableFile
from walsh_scrapy.policy.wording import without_references

#: The namespace of the attributes `every` and `delay`, which OPML itself does not have.
NAMESPACE: Final = "tag:wal.sh,2026:opml"
#: The prefix of the namespace in our files. An HTML parser knows the prefix only.
PREFIX: Final = "walsh"
#: Folders that are nested deeper than this do not become tags.
MAX_FOLDER_DEPTH: Final = 32

_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE: Final = re.compile(r"&(#[0-9]+;|#[xX][0-9a-fA-F]+;|[A-Za-z][A-Za-z0-9]*;)?")
_XML_NAMES: Final = frozenset({"amp;", "lt;", "gt;", "quot;", "apos;"})
_BLANKS: Final = re.compile("[\t\n\r ]+")
_ELEMENT: Final = re.compile(r"<([A-Za-z][^\s/>]{0,40})")
_END: Final = re.compile(r"</opml\s*>", re.IGNORECASE)
_FEED_TYPES: Final = frozenset({"rss", "atom", "feed", "llms"})


@dataclass(slots=True)
class Outline:
    """One outline, with its attributes by lower-case name, and the folders around it."""

    number: int
    attributes: dict[str, str]
    folders: tuple[str, ...] = ()
    #: the attributes in our namespace of the folders around it, of which the innermost one counts
    inherited: dict[str, str] = field(default_factory=dict, repr=False)
    is_comment: bool = False  #: `isComment` is set here or on a folder around it
    children: int = field(default=0, repr=False)

    @property
    def kind(self) -> str:
        """The `type` in lower case, or "" without one."""
        return self.attributes.get("type", "").lower()

    @property
    def url(self) -> str | None:
        """The URL of the feed: `xmlUrl`, or `url` if the type is a type of feed."""
        url = self.attributes.get("xmlurl")
        return url or (self.attributes.get("url") if self.kind in _FEED_TYPES else None)

    @property
    def name(self) -> str | None:
        """The title that the feed reader shows."""
        return self.attributes.get("title") or self.attributes.get("text") or None

    @property
    def extensions(self) -> dict[str, str]:
        """The attributes in our namespace by name, also of the folders around the outline."""
        own: dict[str, str] = {}
        for spelling, value in self.attributes.items():
            for prefix in (f"{PREFIX}:", f"{{{NAMESPACE}}}"):
                if value and spelling.startswith(prefix):
                    own[spelling.removeprefix(prefix)] = value
        return self.inherited | own

    @property
    def tags(self) -> tuple[str, ...]:
        """The folders, the outermost first, and then the categories (OPML 2.0)."""
        names = self.attributes.get("category", "").split(",")
        categories = (name.strip().strip("/") for name in names)
        return unique((*self.folders, *(name for name in categories if name)))

    @property
    def is_subscription(self) -> bool:
        """Whether this is a subscription, and not a comment, a note or a folder.

        An outline without a URL is one if it has no outlines inside it, because some programs
        export folders with a type or with an empty `xmlUrl`.
        """
        if self.is_comment:
            return False
        is_marked = "xmlurl" in self.attributes or self.kind in _FEED_TYPES
        return bool(self.url) or (is_marked and not self.children)


class Opml(NamedTuple):
    """The subscriptions of a document, in the order of the document."""

    outlines: list[Outline]
    is_complete: bool = True  #: False if the end of the document is missing


def read_opml(body: bytes) -> Opml:
    """Read an OPML document. Raises UnreadableFile.

    The usual mistakes of feed readers are accepted: a bare `&`, `&nbsp;` or `<` in a value, values
    without quotes, control characters, a wrong encoding, missing start or end tags, and anything
    before the first element or after the last one.
    """
    text = _decode(body)
    if "<!ENTITY" in text:
        raise UnreadableFile("the file declares entities, which are not supported")
    collector = _Collector()
    try:
        parser = XMLParser(target=collector, encoding="utf-8", no_network=True)
        _parse(parser, text.encode())
    except (LxmlError, LookupError, ValueError) as error:
        return _read_malformed(text, error)
    if not collector.is_opml:
        raise UnreadableFile(
            f"this is not OPML: the outermost element is <{collector.outermost[:40]}>"
        )
    return Opml(collector.subscriptions)


def _read_malformed(text: str, error: Exception) -> Opml:
    """Read a file that is not well-formed; raise ``error`` if it has no subscription."""
    collector = _Collector()
    with suppress(LxmlError):
        parser = HTMLParser(target=collector, encoding="utf-8")
        _parse(parser, _REFERENCE.sub(_escape_reference, text).encode())
    first = _ELEMENT.search(text)
    if first and not collector.is_opml:
        raise UnreadableFile(f"this is not OPML: the outermost element is <{first[1]}>") from error
    if not collector.subscriptions:
        raise UnreadableFile(f"this is not XML: {error}") from error
    return Opml(collector.subscriptions, is_complete=_END.search(text) is not None)


def _parse(parser: HTMLParser | XMLParser, body: bytes) -> None:
    parser.feed(body)
    parser.close()


class _Collector:
    """A target for a parser of lxml: keeps the subscriptions, and builds no tree."""

    def __init__(self) -> None:
        self.outermost = ""
        self.is_opml = False
        self._subscriptions: list[Outline] = []
        self._open: list[Outline] = []
        self._folders: list[str] = []  # of each open outline, "" if the outline is not a folder
        self._count = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _local_name(tag)
        self.outermost = self.outermost or name
        self.is_opml |= name == "opml"
        if name == "outline" and self.is_opml:
            self._count += 1
            lowered = {
                key.lower(): _BLANKS.sub(" ", value).strip() for key, value in attributes.items()
            }
            outline = Outline(self._count, lowered)
            outline.is_comment = lowered.get("iscomment", "").lower() == "true"
            if self._open:
                parent = self._open[-1]
                parent.children += 1
                outline.is_comment |= parent.is_comment and not parent.url
                outline.inherited = parent.inherited if parent.url else parent.extensions
            if outline.url:
                outline.folders = tuple(name for name in self._folders[:MAX_FOLDER_DEPTH] if name)
            self._open.append(outline)
            folder = lowered.get("text") or lowered.get("title") or ""
            self._folders.append("" if outline.url else folder)

    def end(self, tag: str) -> None:
        if _local_name(tag) == "outline" and self._open:
            self._folders.pop()
            outline = self._open.pop()
            if outline.is_subscription:
                self._subscriptions.append(outline)

    def data(self, text: str) -> None:
        """Ignore text, because OPML has all data in attributes."""

    def close(self) -> None:
        """Do nothing: `subscriptions` has the result, even after an error."""

    @property
    def subscriptions(self) -> list[Outline]:
        open_subscriptions = (outline for outline in self._open if outline.is_subscription)
        return sorted(
            (*self._subscriptions, *open_subscriptions), key=lambda outline: outline.number
        )


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _decode(body: bytes) -> str:
    return _ILLEGAL.sub("", to_utf8(body, None).decode())


def _escape_reference(match: re.Match[str]) -> str:
    inner: str | None = match[1]
    if inner is None:
        return "&amp;"
    if inner in _XML_NAMES:
        return match[0]
    character = without_references(match[0])
    if character == match[0] and not inner.startswith("#"):
        return "&amp;" + inner
    return html.escape(_ILLEGAL.sub("", character))
