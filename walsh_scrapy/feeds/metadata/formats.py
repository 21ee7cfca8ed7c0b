"""The media types and formats of documents, and the other forms of a page (R9, RFC 8288).

The media type decides if a body is read at all (R6). The bytes show whether a body is XML or JSON
that is read as a feed, or something else.

A document may add only so much to the state, so that no site can fill it. The maximum lengths of
texts are in `metadata.text`, the maximum number of links in `metadata.llmstxt`. Of a feed with too
many entries, only the newest entries are read.

Other forms of a page are the feeds in its head, its `Link` headers, and its llms.txt. A crawl reads
only the headers, to find the page as markdown. Only the commands that an operator calls for one
page look for its feeds, because a crawl fetches nothing but declared sources.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from walsh_scrapy.feeds.metadata.encoding import to_utf8
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.text import MAX_TITLE_CHARACTERS
from walsh_scrapy.policy.urls import (
    MAX_ANNOUNCED,
    canonical_url,
    resolve_reference,
    wire_url,
)
from walsh_scrapy.policy.wording import cut, one_line, without_references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_FEED_TYPES = (
    "application/atom+xml",
    "application/feed+json",
    "application/rdf+xml",
    "application/rss+xml",
)
_PAGE_TYPES = ("application/xhtml+xml", "text/html")
_NEVER_FEED_PREFIXES = ("audio/", "font/", "image/", "model/", "video/")
_NEVER_FEED_TYPES = frozenset(
    {
        "application/gzip",
        "application/java-archive",
        "application/msword",
        "application/pdf",
        "application/vnd.ms-excel",
        "application/wasm",
        "application/x-tar",
        "application/zip",
        "multipart/form-data",
        "text/calendar",
        "text/css",
        "text/csv",
    }
)


def may_be_feed(content_type: str) -> bool:
    """Return True if a body with this Content-Type may be a feed.

    Servers send feeds with many media types, such as text/html and application/octet-stream. So
    only types that no feed has are excluded, such as `image/svg+xml`.
    """
    media_type = _media_type(content_type)
    return not media_type.startswith(_NEVER_FEED_PREFIXES) and media_type not in _NEVER_FEED_TYPES


def is_feed(content_type: str) -> bool:
    """Return True for a media type of RSS, Atom or JSON Feed."""
    return _media_type(content_type) in _FEED_TYPES


_ROOT_END: Final = re.compile(rb"</(?:[\w.-]+:)?(?:rss|rdf|feed)\s*>", re.IGNORECASE)
_OBJECT: Final = re.compile(rb"[\xef\xbb\xbf\xff\xfe\s]*\{.*\}\s*", re.DOTALL)


def may_have_ended(body: bytes) -> bool:
    """Return True if the end of a feed seems to be in the body; a quick check in any encoding.

    The parser makes the final decision.
    """
    text = body.replace(b"\0", b"")  # UTF-16 and UTF-32
    return bool(_ROOT_END.search(text) or _OBJECT.fullmatch(text))


def is_json(content_type: str) -> bool:
    """Return True for the media type of JSON documents of any kind."""
    return _media_type(content_type) == "application/json"


def is_json_feed(content_type: str) -> bool:
    """Return True for the media type of JSON Feed."""
    return _media_type(content_type) == "application/feed+json"


def is_html(content_type: str) -> bool:
    """Return True for a media type of HTML pages."""
    return _media_type(content_type) in _PAGE_TYPES


def is_markdown(content_type: str) -> bool:
    """Return True for a media type of markdown."""
    return _media_type(content_type) in ("text/markdown", "text/x-markdown")


def may_be_llms(content_type: str) -> bool:
    """Return True if a body may be an llms.txt: markdown, plain text, or without a media type."""
    return is_markdown(content_type) or _media_type(content_type) in ("text/plain", "")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


_HEAD_BYTES: Final = 262_144  #: The root element must begin in these bytes.
_MAX_JUNK_BYTES: Final = 4096  #: Junk that may come before a feed, such as a PHP warning.

# Possessive and atomic throughout, so that the time for an unfinished prolog is linear.
_PROLOG: Final = re.compile(
    rb"(?>\s++|<\?.*?\?>|<!--.*?-->|<!doctype(?:[^\[<>]|<(?!/?\w)[^<>]*>)*(?:\[.*?\]\s*)?>)*+",
    re.DOTALL | re.IGNORECASE,
)
_ELEMENT: Final = re.compile(rb"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)")
_FEED_ROOT: Final = re.compile(rb"<(?:[\w.-]+:)?(?:rss|RDF|feed)(?=[\s>])")
#: What a body is, in the message about a feed.
HTML_PAGE: Final = "an HTML page"
_HTML_DOCTYPE: Final = re.compile(rb"<!doctype\s+html\b", re.IGNORECASE)
FEED_ROOTS: Final = frozenset({b"rss", b"rdf", b"feed"})
_HTML_ROOTS: Final = frozenset(
    b"html head body title meta link script style h1 div p center table frameset".split()
)
_OTHER_ROOTS: Final = {
    b"opml": "a list of feeds (OPML); declare it as a sources file",
    b"urlset": "a sitemap",
    b"sitemapindex": "a sitemap index",
    b"svg": "an image (SVG)",
    b"entry": "a single Atom entry",
    b"error": "an error message (XML)",
}
_SIGNATURES: Final = (
    (b"\x89PNG", "an image (PNG)"),
    (b"\xff\xd8\xff", "an image (JPEG)"),
    (b"GIF8", "an image (GIF)"),
    (b"RIFF", "an image or sound (RIFF)"),
    (b"\x00\x00\x01\x00", "an image (ICO)"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data that the server did not announce as Content-Encoding"),
    (b"ID3", "sound (MP3)"),
)


def format_of(body: bytes, content_type: str | None) -> Literal["xml", "json"]:
    """Return the format of a feed; raise NotAFeed if the body cannot be one.

    The bytes decide, because feeds are served with any media type. `content_type` is only used in
    the error message. An HTML page is recognised by its first element and not searched for feeds
    (R9).
    """
    head = _ascii_head(body).lstrip()
    if not head:
        raise NotAFeed("The response body was empty, where a feed was expected.")
    if head[:1] in {b"{", b"["}:
        return "json"
    other_format = _other_format(head)
    if other_format is not None:
        raise NotAFeed.of_format(other_format, content_type)
    return "xml"


def _ascii_head(body: bytes) -> bytes:
    """Return the beginning of the body in UTF-8 or in another encoding that extends ASCII."""
    encoding = json.detect_encoding(body[:4])  # by BOM or zero bytes
    if encoding == "utf-8":
        return body[:_HEAD_BYTES]
    return body[:_HEAD_BYTES].decode(encoding, "ignore").encode("utf-8", "ignore")


def _other_format(head: bytes) -> str | None:
    """Return what a body is that is not an XML feed; None if the body may be an XML feed."""
    prolog = _PROLOG.match(head)
    root_start = prolog.end() if prolog else 0
    if _HTML_DOCTYPE.search(head, 0, root_start):
        return HTML_PAGE
    root = _ELEMENT.match(head, root_start)
    name = root[1].lower() if root else b""
    if name in FEED_ROOTS:
        return None
    may_follow_junk = name != b"html" and name not in _OTHER_ROOTS
    if may_follow_junk and _FEED_ROOT.search(head, root_start, root_start + _MAX_JUNK_BYTES):
        return None
    return _describe_root(name) if name else _describe_signature(head)


def _describe_root(root: bytes) -> str:
    if root in _HTML_ROOTS:
        return HTML_PAGE
    return (
        _OTHER_ROOTS.get(root) or f"XML of another kind (<{root[:40].decode('ascii', 'ignore')}>)"
    )


def _describe_signature(head: bytes) -> str:
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    printable = sum(byte >= 32 or byte in b"\t\n\r" for byte in head[:512])
    return "plain text" if printable >= 0.95 * len(head[:512]) else "binary data"


MAX_ENTRIES: Final = 10_000  #: Of a document with more entries, the newest are kept.

T = TypeVar("T")


def newest(entries: Sequence[T], date: Callable[[T], str | None]) -> tuple[T, ...]:
    """Return the newest `MAX_ENTRIES` entries in document order.

    `date` returns the date of an entry as RFC 3339 in UTC. Entries without a date are treated as
    the oldest. Of entries with the same date the first are kept, because most feeds begin with the
    newest entry.
    """
    if len(entries) <= MAX_ENTRIES:
        return tuple(entries)
    dates = [date(entry) or "" for entry in entries]
    order = sorted(range(len(entries)), key=dates.__getitem__, reverse=True)  # stable
    return tuple(entries[index] for index in sorted(order[:MAX_ENTRIES]))


# ---- other forms of a page ----

#: The head of a page is looked for in this many bytes at its beginning.
HEAD_BYTES: Final = 128 * 1024
#: Feeds of one page beyond this number are dropped.
MAX_FEEDS: Final = 10
_MAX_TYPE_CHARACTERS: Final = 60
_COMMENTS: Final = re.compile(r"\bcomments?\b", re.IGNORECASE)


class FeedLink(NamedTuple):
    """A feed that a page declares."""

    url: str
    title: str | None = None
    media_type: str = ""

    @property
    def is_of_comments(self) -> bool:
        """True if the feed has comments instead of entries, judged by its URL and its title."""
        url = urlsplit(self.url)
        return bool(_COMMENTS.search(f"{url.path} {url.query} {self.title or ''}"))


def feeds_in_head(page: bytes, content_type: str, url: str) -> tuple[FeedLink, ...]:
    """Return the feeds that the head of an HTML page declares, in its order.

    Only the first `HEAD_BYTES` are read, up to the end of the head. Links are resolved against
    `url`, the URL of the page, or against the first `<base href>` of the head.
    """
    text = to_utf8(page[:HEAD_BYTES], content_type).decode()
    elements = list(_elements_of_head(text))
    bases = [
        attributes["href"] for tag, attributes in elements if tag == "base" and "href" in attributes
    ]
    base = _base_url(url, bases[0]) if bases else url
    links: list[FeedLink] = []
    for tag, attributes in elements:
        if tag == "link" and "alternate" in attributes.get("rel", "").lower().split():
            links += feed_link(
                base,
                attributes.get("href", "").encode(errors="replace"),
                attributes.get("title"),
                attributes.get("type", ""),
            )
    return tuple(links)


def feed_link(
    base: str, reference: bytes, title: str | None, media_type: str
) -> Iterator[FeedLink]:
    """Yield the feed that a link of the page `base` leads to; nothing if it leads to no feed.

    Many documents have the type `application/json`, for example in WordPress's REST interface. So a
    link of this type is taken for a feed only if its path contains `feed`.
    """
    if not (is_feed(media_type) or is_json(media_type)) or not reference.strip():
        return
    url = resolve_reference(base, reference.strip())
    path = urlsplit(url).path.lower() if url else ""
    if url and (is_feed(media_type) or ("feed" in path and "/wp-json/" not in path)):
        name = cut(one_line(title) or "", MAX_TITLE_CHARACTERS) or None
        yield FeedLink(url, name, cut(one_line(media_type) or "", _MAX_TYPE_CHARACTERS))


def declared_feeds(links: Iterable[FeedLink]) -> tuple[FeedLink, ...]:
    """Return each feed once and at most `MAX_FEEDS`; feeds of comments come last."""
    unique: dict[str, FeedLink] = {}
    for link in links:
        unique.setdefault(canonical_url(link.url), link)
    return tuple(sorted(unique.values(), key=lambda link: link.is_of_comments)[:MAX_FEEDS])


def _base_url(url: str, href: str) -> str:
    try:
        return urljoin(url, href.strip())
    except ValueError:
        return url


#: A comment or a tag. As in browsers, quotes have a meaning only after an equals sign, and an
#: unfinished comment or tag extends to the end. So each character is read once.
_MARKUP: Final = re.compile(
    r"""<!--(?:-?>|.*?--!?>|.*)
    |<(?P<end>/?)(?P<name>[a-z][^\s/>]*+)
     (?P<rest>(?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+|["'])*+)(?:>|\Z)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_ATTRIBUTE: Final = re.compile(
    r"""([^\s/=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|(\S++)))?+""",
)
_REFERENCE: Final = re.compile(r"&#?\w+;")
#: Elements whose content is text or another language, not elements of the head.
_OPAQUE: Final = frozenset(
    {
        *("iframe", "math", "noembed", "noframes", "script", "style"),
        *("svg", "template", "textarea", "title", "xmp"),
    }
)


def _elements_of_head(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and attributes of each `base` and `link` before `</head>` and `<body>`.

    For browsers the head also ends before text, or an element such as `<img>` or `<div>`. Pages
    have such errors above their links, and a program's notice above the whole head.
    """
    position = 0
    while markup := _MARKUP.search(page, position):
        position = markup.end()
        name = (markup["name"] or "").lower()
        if name == "body" or (markup["end"] and name == "head"):
            return
        if markup["end"]:
            continue
        if name in ("base", "link"):
            yield name, _attributes(markup["rest"])
        elif name in _OPAQUE and not markup["rest"].endswith("/"):
            end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(page, position)
            position = end.start() if end else len(page)


def _attributes(text: str) -> dict[str, str]:
    """Return the attributes of a tag by their names; the first of a name counts."""
    attributes: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(text):
        value = _REFERENCE.sub(lambda match: without_references(match[0]), "".join(values))
        attributes.setdefault(name.lower(), value)
    return attributes


#: Characters of one header that are read, because Scrapy does not limit headers.
_MAX_HEADER_CHARACTERS: Final = 16_384
_PARAMETER_VALUE: Final = r'"(?:[^"\\]|\\.)*+"|[^\s";,]*+'
_PARAMETER: Final = re.compile(rf"\s*;\s*([\w*-]++)\s*(?:=\s*({_PARAMETER_VALUE}))?", re.ASCII)
_QUOTED_PAIR: Final = re.compile(r"\\(.)")
_TARGET: Final = re.compile(r"<([^<>]*)>")


def markdown_alternates(values: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the URLs at which the page `url` is available as markdown, from its `Link` headers.

    An example of a header: `</page.md>; rel="alternate"; type="text/markdown"`. URLs on another
    host or port are dropped, because the operator did not declare that server (R6). The standard
    ports of http and https are treated as one. The URLs come in the order of the headers.
    """
    urls: dict[str, None] = {}
    page_server = _server(wire_url(url))
    for target, parameters in _parse_alternates(values):
        if is_markdown(parameters.get("type", "")):
            alternate = resolve_reference(url, target.encode("latin-1", "replace"))
            if alternate and _server(alternate) == page_server:
                urls[alternate] = None
    return tuple(urls)


def feed_alternates(values: Iterable[str], url: str) -> tuple[FeedLink, ...]:
    """Return the feeds that the `Link` headers of `url` announce, on any server."""
    return tuple(
        link
        for target, parameters in _parse_alternates(values)
        for link in feed_link(
            url,
            target.encode("latin-1", "replace"),
            parameters.get("title"),
            parameters.get("type", ""),
        )
    )


def _parse_alternates(values: Iterable[str]) -> Iterable[tuple[str, dict[str, str]]]:
    for value in values:
        for target, parameters in _parse_links(value[:_MAX_HEADER_CHARACTERS]):
            if "alternate" in parameters.get("rel", "").lower().split():
                yield target, parameters


def _server(url: str) -> str:
    """Return the host of a normalized URL, with its port unless that is a standard port."""
    return urlsplit(url).netloc


def _parse_links(value: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield the target and the parameters of each link; a `<` inside quotes begins no target."""
    end = 0
    while target := _TARGET.search(value, end):
        parameters: dict[str, str] = {}
        end = target.end()
        while parameter := _PARAMETER.match(value, end):
            end = parameter.end()
            text = parameter[2] or ""
            if text.startswith('"'):
                text = _QUOTED_PAIR.sub(r"\1", text[1:-1])
            parameters.setdefault(parameter[1].lower(), text)  # the first value wins (RFC 8288 3.3)
        if "anchor" not in parameters:  # with an anchor, the link is another page's (RFC 8288 3.2)
            yield target[1].strip(), parameters


#: The path of a host's llms.txt.
LLMSTXT_PATH: Final = "/llms.txt"
_DUMP_NAME: Final = "llms-full.txt"
#: The Accept headers of the requests for an llms.txt and for a page.
ACCEPT_LLMSTXT: Final = "text/plain, text/markdown"
ACCEPT_MARKDOWN: Final = "text/markdown"
#: Statuses of a page after which its llms.txt is requested instead, because the page does not exist
#: or is not available as markdown (406). 408 and 429 say nothing about the page.
ABSENT: Final = [status for status in range(400, 500) if status not in (408, 429)]


def is_llmstxt(url: str) -> bool:
    """Return True for the URL of an llms.txt at the root of a host or in a folder (llmstxt.org)."""
    return urlsplit(url).path.endswith(LLMSTXT_PATH)


def is_dump(url: str) -> bool:
    """Return True for the URL of an `llms-full.txt`, which is content and is never requested (R6).

    Any spelling of the name is recognized, because servers decode percent signs and ignore case,
    trailing slashes and parameters.
    """
    if _DUMP_NAME not in unquote(url).lower():
        return False
    names = unquote(urlsplit(url).path).lower().replace("\\", "/").split("/")
    return any(name.partition(";")[0].strip(" .") == _DUMP_NAME for name in names)


def announced(links: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the URLs on the server of the page `url` that it announces as its markdown form.

    ``links`` are the `Link` headers of the response. At most `MAX_ANNOUNCED` URLs are returned.
    """
    alternates = markdown_alternates(links, url)
    announced_urls = [link for link in alternates if link != url and not is_dump(link)]
    return tuple(announced_urls[:MAX_ANNOUNCED])
