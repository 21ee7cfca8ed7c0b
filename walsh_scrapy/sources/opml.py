"""OPML, the subscriptions that feed readers export.

Only the predefined entities of XML and HTML are expanded, and nothing is fetched. A well-formed
file is read by lxml's parser of XML; any other by that of HTML, which ignores declarations.
"""

from __future__ import annotations

import html
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lxml.etree import HTMLParser, LxmlError, XMLParser  # type: ignore[import-untyped]

from walsh_scrapy.metadata.encoding import to_utf8
from walsh_scrapy.policy.wording import without_references
from walsh_scrapy.sources.files import UnreadableFile

#: The namespace of the attributes `every` and `delay`, for which OPML has no names.
NAMESPACE: Final = "tag:wal.sh,2026:opml"
#: Its prefix in our files. A parser of HTML knows no namespaces, only this.
PREFIX: Final = "walsh"
#: Folders nested deeper than this are not taken as tags.
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
    """One outline: its attributes by lower-case name, and the folders it is in."""

    number: int
    attributes: dict[str, str]
    folders: tuple[str, ...] = ()
    is_comment: bool = False  #: `isComment` is set on it or on a folder that it is in
    children: int = field(default=0, repr=False)

    @property
    def kind(self) -> str:
        """The `type` in lower case, "" for none."""
        return self.attributes.get("type", "").lower()

    @property
    def url(self) -> str | None:
        """The URL of the feed: `xmlUrl`, or `url` if the type is that of a feed."""
        url = self.attributes.get("xmlurl")
        return url or (self.attributes.get("url") if self.kind in _FEED_TYPES else None)

    @property
    def name(self) -> str | None:
        """The title that the feed reader shows."""
        return self.attributes.get("title") or self.attributes.get("text") or None

    def own(self, name: str) -> str | None:
        """Return an attribute of `NAMESPACE`, or None."""
        for written in (f"{{{NAMESPACE}}}{name}", f"{PREFIX}:{name}"):
            if value := self.attributes.get(written):
                return value
        return None

    @property
    def tags(self) -> tuple[str, ...]:
        """The folders from the outermost in, then the outline's categories (OPML 2.0)."""
        listed = self.attributes.get("category", "").split(",")
        own = (category.strip().strip("/") for category in listed)
        return tuple(dict.fromkeys((*self.folders, *filter(None, own))))

    @property
    def is_subscription(self) -> bool:
        """True for a subscription; False for a comment, a note or a folder.

        Some programs give folders a type or an empty `xmlUrl` too.
        """
        if self.is_comment:
            return False
        says_so = "xmlurl" in self.attributes or self.kind in _FEED_TYPES
        return bool(self.url) or (says_so and not self.children)


class Opml(NamedTuple):
    """The subscriptions of a document, in its order.

    ``is_whole`` is False if the end of the document is missing.
    """

    outlines: list[Outline]
    is_whole: bool = True


def read_opml(body: bytes) -> Opml:
    """Read an OPML document. Raises UnreadableFile.

    Known mistakes of feed readers are accepted: a bare `&`, `&nbsp;` or `<` in a value, no quotes
    around it, control characters, a wrong encoding, missing start or end tags, and anything before
    the first element or after the last one.
    """
    text = _text(body)
    if "<!ENTITY" in text:
        raise UnreadableFile("it declares entities, which are never expanded")
    collected = _Collector()
    try:
        parser = XMLParser(target=collected, encoding="utf-8", no_network=True)
        _feed(parser, text.encode())
    except (LxmlError, LookupError, ValueError) as error:
        return _read_malformed(text, error)
    if not collected.is_opml:
        raise UnreadableFile(
            f"it is not OPML, its outermost element is <{collected.outermost[:40]}>"
        )
    return Opml(collected.found)


def _read_malformed(text: str, flaw: Exception) -> Opml:
    """Read XML that is not well-formed; ``flaw`` is the reason to give if nothing can be read."""
    broken = _Collector()
    with suppress(LxmlError):
        parser = HTMLParser(target=broken, encoding="utf-8")
        _feed(parser, _REFERENCE.sub(_reference, text).encode())
    first = _ELEMENT.search(text)
    if first and not broken.is_opml:
        raise UnreadableFile(f"it is not OPML, its outermost element is <{first[1]}>") from flaw
    if not broken.found:
        raise UnreadableFile(f"it is not XML: {flaw}") from flaw
    return Opml(broken.found, is_whole=_END.search(text) is not None)


def _feed(parser: HTMLParser | XMLParser, body: bytes) -> None:
    parser.feed(body)
    parser.close()


class _Collector:
    """A parser's target: it keeps the subscriptions, and no tree."""

    def __init__(self) -> None:
        self.outermost = ""
        self.is_opml = False
        self._kept: list[Outline] = []
        self._open: list[Outline] = []
        self._folders: list[str] = []  # one for each open outline, "" if it is not a folder
        self._count = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _local(tag)
        self.outermost = self.outermost or name
        self.is_opml |= name == "opml"
        if name == "outline" and self.is_opml:
            self._count += 1
            read = {
                key.lower(): _BLANKS.sub(" ", value).strip() for key, value in attributes.items()
            }
            outline = Outline(self._count, read)
            outline.is_comment = read.get("iscomment", "").lower() == "true"
            if self._open:
                around = self._open[-1]
                around.children += 1
                outline.is_comment |= around.is_comment and not around.url
            if outline.url:
                outline.folders = tuple(filter(None, self._folders[:MAX_FOLDER_DEPTH]))
            self._open.append(outline)
            folder = read.get("text") or read.get("title") or ""
            self._folders.append("" if outline.url else folder)

    def end(self, tag: str) -> None:
        if _local(tag) == "outline" and self._open:
            self._folders.pop()
            outline = self._open.pop()
            if outline.is_subscription:
                self._kept.append(outline)

    def data(self, text: str) -> None:
        """Ignore text: OPML has all its data in attributes."""

    def close(self) -> None:
        """Return nothing: `found` has the result, even after an error."""

    @property
    def found(self) -> list[Outline]:
        unended = (outline for outline in self._open if outline.is_subscription)
        return sorted((*self._kept, *unended), key=lambda outline: outline.number)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2].lower()


def _text(body: bytes) -> str:
    return _ILLEGAL.sub("", to_utf8(body, None).decode())


def _reference(found: re.Match[str]) -> str:
    inner: str | None = found[1]
    if inner is None:
        return "&amp;"
    if inner in _XML_NAMES:
        return found[0]
    character = without_references(found[0])
    if character == found[0] and not inner.startswith("#"):
        return "&amp;" + inner
    return html.escape(_ILLEGAL.sub("", character))
