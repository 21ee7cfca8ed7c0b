"""Parse the bytes of an llms.txt, or of another page of markdown, into its links (R9).

    feed = parse_llms(body, url=response_url, content_type="text/plain", source=declared)
    for entry in feed.entries:
        entry.url, entry.title, entry.section, entry.note, entry.key

All sites are read by the same rules. The text of a page is data: instructions in it, to crawlers or
to language models, have no effect. A link is anything that a reader of the page could click.

Title: the text of the first H1, which begins no section.
Section: the text of the nearest other heading above the link. A link inside a heading belongs to
the section that the heading begins. Headings in quotes and lists are ignored.
Note: in a list item, the text after the link in the same paragraph. It must begin with a colon or a
dash, unless the item has no other link and no words before this one. Other text around links is
content and not kept (R6).

Markdown is read as CommonMark by markdown-it-py, with limits of this module. Links of any scheme
stay as published. Bare `https://` URLs are links, as on GitHub. For these, markdown-it-py itself
needs one more package, linkify-it-py. Code, comments and HTML are not searched for links. The rows
of a table are lines of a paragraph.

A page of 10,000 links takes about a second. A page with too many links is refused and not read in
part, because the part would look like the whole page.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt, helpers
from markdown_it.common.utils import unescapeAll
from markdown_it.rules_block import StateBlock, blockquote, html_block
from markdown_it.rules_inline import StateInline, image

from walsh_scrapy.feeds.metadata.encoding import to_utf8
from walsh_scrapy.feeds.metadata.entries import Feed, FeedEntry, NotAFeed, with_keys
from walsh_scrapy.feeds.metadata.text import (
    is_web_url,
    shorten,
    title_of,
    web_url,
    without_addresses,
)
from walsh_scrapy.policy.urls import canonical_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_EXPECTED: Final = "a page of links in markdown"
_MAX_URL_CHARACTERS: Final = 4096  #: As in the item schema. Longer links are dropped, never cut.
_MAX_NOTE_CHARACTERS: Final = 500  #: Three lines on a screen. Longer notes are cut.

_WORD: Final = re.compile(r"\w")
_SEPARATOR: Final = re.compile(r"\s*(?:[:\uff1a|→\u2010-\u2015\u2212]|-+\s)")
_LEADING_SEPARATORS: Final = re.compile(r"[\s:\uff1a|→\u2010-\u2015\u2212,;-]+")

_MAX_FRONT_MATTER_CHARACTERS: Final = 65_536  #: Front matter must end in these characters.
_FRONT_MATTER: Final = re.compile(
    r"\s*---[ \t]*\n[\w\"'][^\n]*:[^\n]*\n(?:[^\n]*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)


def parse_llms(body: bytes, *, url: str, content_type: str | None, source: str) -> Feed:
    """Return the links of a page of markdown in document order, with one entry per linked page.

    `url` is the final URL of the response: relative links resolve against it. `content_type` is
    the Content-Type header, None if there was none. `source` is the declared URL.

    Raises NotAFeed if the body is not markdown, has neither a link nor a heading, or has more than
    `MAX_LINKS` links.
    """
    text = re.sub("\r\n?", "\n", to_utf8(body, content_type).decode())
    other_format = _other_format(text)
    if other_format is not None:
        raise NotAFeed.of_format(other_format, content_type, _EXPECTED)
    front_matter = _FRONT_MATTER.match(text, 0, _MAX_FRONT_MATTER_CHARACTERS)
    page = list(_paragraphs(text[front_matter.end() :] if front_matter else text))
    entries = _one_per_page(_entries(page, url))
    if len(entries) > MAX_LINKS:
        raise NotAFeed.of_format(
            f"markdown of more than {MAX_LINKS} links", content_type, _EXPECTED
        )
    if not entries and not any(paragraph.tags[0] in _HEADINGS for paragraph in page):
        raise NotAFeed.of_format("plain text without a link", content_type, _EXPECTED)
    keyed = with_keys(entries, source, is_index=True)
    return Feed(title=_title(page), language=None, entries=keyed, format="markdown")


def _title(page: Sequence[_Paragraph]) -> str | None:
    headings = (_heading(token) for token in page if token.tags[0] == "h1")
    return next((heading for heading in headings if heading), None)


def _entries(page: Sequence[_Paragraph], base: str) -> Iterator[FeedEntry]:
    has_title = False
    section: str | None = None
    for paragraph in page:
        if paragraph.tags[0] in _HEADINGS:
            section = _heading(paragraph)
            if section and paragraph.tags[0] == "h1" and not has_title:
                section = None
                has_title = True
            section = without_addresses(section)
        link_with_note, note = _note(paragraph)
        for link in paragraph.spans[1::2]:
            url = _link_url(link.href, base)
            if url:
                yield _entry(url, link, section, note if link is link_with_note else None)


def _entry(url: str, link: _Span, section: str | None, note: str | None) -> FeedEntry:
    return FeedEntry(
        url=url,
        title=_name(link.text) or _name(link.hint),
        section=section,
        note=note,
    )


def _one_per_page(entries: Iterator[FeedEntry]) -> tuple[FeedEntry, ...]:
    """Return one entry per page, with the first section, title and note that the page has."""
    by_page: dict[str, FeedEntry] = {}
    for entry in entries:
        page = canonical_url(entry.url or "")
        first = by_page.setdefault(page, entry)
        if not (first.title and first.note) and (entry.title or entry.note):
            by_page[page] = first._replace(
                title=first.title or entry.title, note=first.note or entry.note
            )
    return tuple(by_page.values())


def _link_url(href: str | None, base: str) -> str | None:
    """Return the URL of a link; None if it is no web URL, is too long, or leads to this page."""
    url = web_url(href, base)
    if url is None or len(url) > _MAX_URL_CHARACTERS:
        return None
    if "#" in url and canonical_url(url) == canonical_url(base):
        return None
    return url


def _note(paragraph: _Paragraph) -> tuple[_Span | None, str | None]:
    """Return the link of a list item that has a note, and the note; else None and None."""
    spans = paragraph.spans
    if paragraph.tags[-2:] != ("li", "p"):
        return None, None
    for index in range(1, len(spans), 2):
        after = spans[index + 1].text
        is_only_link = len(spans) == 3 and not _WORD.search(spans[0].text)
        if _WORD.search(after) and (is_only_link or _SEPARATOR.match(after)):
            text = "".join(span.text for span in spans[index + 1 :])
            note = shorten(_LEADING_SEPARATORS.sub("", text, count=1), _MAX_NOTE_CHARACTERS)
            return spans[index], without_addresses(note)
    return None, None


def _heading(paragraph: _Paragraph) -> str | None:
    return title_of("".join(span.text for span in paragraph.spans))


def _name(text: str) -> str | None:
    """Return the text as a title; None if it is empty or only a URL."""
    name = title_of(text)
    return None if name and is_web_url(name) and " " not in name else name


_HEAD_CHARACTERS: Final = 4096  #: The format is recognized by these characters.
_COMMENTS: Final = re.compile(r"(?>\s++|<!--.*?-->)*+", re.DOTALL)
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_JSON: Final = re.compile(r"\{\s*[\"}]|\[\s*\{")
_XML: Final = re.compile(r"<(?:\?xml|rss|feed|rdf:RDF|urlset|sitemapindex|opml|svg)\b")
_HTML_PAGE: Final = re.compile(r"^[ \t]*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.MULTILINE)
_HTML_PART: Final = re.compile(r"<(?:head|body|title|meta|link|script|style)\b", re.IGNORECASE)
_HTML_TAG: Final = re.compile(r"</?[a-z][\w-]*[\s/>]|<!(?!--)", re.IGNORECASE)
_MARKDOWN: Final = re.compile(r"^ {0,3}(?:#{1,6}[ \t]|```|~~~)|\]\(", re.MULTILINE)


def _other_format(text: str) -> str | None:
    """Return what a body is that is not markdown, such as `JSON`; None if it may be markdown.

    The text decides, because an llms.txt is served with any media type.
    """
    start = _COMMENTS.match(text)
    head = text[start.end() if start else 0 :][:_HEAD_CHARACTERS]
    if not text.strip():
        return "an empty body"
    if head.startswith("%PDF-") or len(_CONTROL.findall(head)) > 3 + len(head) / 50:
        return "binary data"
    if _JSON.match(head):
        return "JSON"
    page = _HTML_PAGE.search(head)  # may follow a warning of PHP; markdown may quote an HTML page
    if (page and not _MARKDOWN.search(head, 0, page.start())) or _HTML_PART.match(head):
        return "an HTML page"
    if _XML.match(head):
        return "XML"
    if _HTML_TAG.match(head) and not _MARKDOWN.search(text):
        return "HTML without any markdown"
    return None


# Each level of a list or a quote reads its lines again, so the levels are limited.
_MAX_NESTING: Final = 20  #: The default of markdown-it-py. A list is two levels.
_MAX_QUOTES: Final = 10  #: Quotes that are nested more deeply are text.

_BARE_START: Final = re.compile(r"(?:^|[^a-z0-9.+-])(https?)$", re.IGNORECASE)
# A bare URL ends at a bracket, a quotation mark, the end of a cell or Chinese punctuation.
_BARE_REST: Final = re.compile(
    r"://[^\s<>\[\]|\"`\x00-\x1f\x7f\u2018-\u201d\u3000-\u303f\uff08\uff09\uff0c\uff1a\uff1b]"
    rf"{{1,{_MAX_URL_CHARACTERS}}}"
)
_PUNCTUATION: Final = frozenset("?!.,:;*_~'")
# HTML blocks that may contain blank lines: how they begin and end (CommonMark 4.6).
_LONG_HTML: Final = tuple(
    (re.compile(start, re.IGNORECASE), re.compile(end, re.IGNORECASE))
    for start, end in (
        (r"<(?:script|pre|style|textarea)(?=[\s>])", "</(?:script|pre|style|textarea)>"),
        ("<!--", "-->"),
        (r"<!\[CDATA\[", r"\]\]>"),
        (r"<\?", r"\?>"),
        ("<![a-z]", ">"),
    )
)

# At DEBUG, the level of Scrapy's logs, it would log every rule for every line.
logging.getLogger("markdown_it").setLevel(logging.INFO)


def _quote_block(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a quote, if it is in fewer than `_MAX_QUOTES` other quotes."""
    return state.level < _MAX_QUOTES and blockquote(state, line, end, silent)


def _html_block(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a block of HTML. A block without an end is text, so that no text after it is lost."""
    at = state.bMarks[line] + state.tShift[line]
    for opening, closing in _LONG_HTML:
        if opening.match(state.src, at):
            return at < _last_position(state, closing) and html_block(state, line, end, silent)
    return html_block(state, line, end, silent)


def _last_position(state: StateBlock, closing: re.Pattern[str]) -> int:
    """Return the last position of an end mark in the document, or -1; search only once."""
    positions = state.env.setdefault("walsh end marks", {})
    if closing not in positions:
        positions[closing] = max(
            (match.start() for match in closing.finditer(state.src)), default=-1
        )
    return int(positions[closing])


def _image(state: StateInline, silent: bool) -> bool:
    """Read an image, but no image inside another: each level would read the text again."""
    if state.env.get("walsh image"):
        return False
    state.env["walsh image"] = True
    is_image = image(state, silent)
    state.env["walsh image"] = False
    return is_image


def _bare_url(state: StateInline, silent: bool) -> bool:
    """Read a bare URL in the text, up to the character at which GitHub ends it."""
    if silent or state.linkLevel or state.src[state.pos] != ":":
        return False
    start = _BARE_START.search(state.pending[-6:])
    rest = _BARE_REST.match(state.src, state.pos, state.posMax) if start else None
    if not (start and rest):
        return False
    url = _trim(rest[0])
    state.pending = state.pending[: -len(start[1])]
    state.push("link_open", "a", 1).attrs = {"href": unescapeAll(start[1] + url)}
    state.push("text", "", 0).content = unescapeAll(start[1] + url)
    state.push("link_close", "a", -1)
    state.pos += len(url)
    return True


def _trim(url: str) -> str:
    """Return the URL without punctuation and brackets of the sentence at its end."""
    end = len(url)
    surplus = url.count(")") - url.count("(")  # closing brackets without an opening one
    while end and (url[end - 1] in _PUNCTUATION or (url[end - 1] == ")" and surplus > 0)):
        if url[end - 1] == ")":
            surplus -= 1
        end -= 1
    return url[:end]


class _Markdown(MarkdownIt):
    """CommonMark in which links of any scheme stay as published."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - markdown-it's name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802
        return True


def _build_parser() -> MarkdownIt:
    parser = _Markdown("commonmark", {"maxNesting": _MAX_NESTING})
    parser.core.ruler.enableOnly(["normalize", "block"])
    interrupted = ["paragraph", "reference", "blockquote"]  # by a block of HTML or a quote
    parser.block.ruler.at("html_block", _html_block, {"alt": interrupted})
    parser.block.ruler.at("blockquote", _quote_block, {"alt": [*interrupted, "list"]})
    parser.inline.ruler.after("text", "bare", _bare_url)
    parser.inline.ruler.at("image", _image)
    # What turns out to be no image is tried as a link: the cache reads its URL only once.
    parse_destination = lru_cache(maxsize=4)(helpers.parseLinkDestination)
    parser.helpers = SimpleNamespace(**vars(helpers) | {"parseLinkDestination": parse_destination})  # type: ignore[assignment]
    return parser


#: `parse` reads the blocks of a document, `inline.parse` the text of a block.
_PARSER: Final = _build_parser()


MAX_LINKS: Final = 15_000
_PIECE_CHARACTERS: Final = 65_536  #: A longer paragraph is parsed in pieces of this length.

_PIECES: Final = re.compile(
    rf".{{1,{_PIECE_CHARACTERS}}}(?:\n|\Z)|.{{1,{_PIECE_CHARACTERS}}}", re.DOTALL
)
_MAY_LINK: Final = re.compile(r"\]|://|<[a-z]", re.IGNORECASE)
_BREAK: Final = re.compile(r"<br\b", re.IGNORECASE)


@dataclass(slots=True)
class _Span:
    """A link, or the text before, between or after links."""

    href: str | None = None  #: as published; None for text
    hint: str = ""  #: the title in `[text](href "title")`
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return the plain text, with its line breaks."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """A paragraph or a heading."""

    tags: tuple[str, ...]  #: HTML names, the outermost first: `("ul", "li", "p")` or `("h2",)`
    spans: Sequence[_Span]  #: text and links alternate; the first and the last are text


def _paragraphs(text: str) -> Iterator[_Paragraph]:
    """Yield the headings of a document and the paragraphs that may have links, in document order.

    A very long paragraph is cut between its lines into several ones.
    """
    definitions: dict[str, object] = {}  # filled by markdown-it: `[a]: https://...`
    tags: list[str] = []
    for token in _PARSER.parse(text, definitions):
        if token.nesting == 1:
            tags.append(token.tag)
        elif token.nesting == -1:
            tags.pop()
        elif token.type == "inline":
            for piece in _PIECES.findall(token.content) or [""]:
                if tags[0] in _HEADINGS or _MAY_LINK.search(piece):
                    spans = _spans(_PARSER.inline.parse(piece, _PARSER, definitions, []))
                    yield _Paragraph(tuple(tags), spans)


def _spans(tokens: Sequence[Token]) -> list[_Span]:
    spans = [_Span()]
    depth = 0  # for markdown-it, `[a <https://b.example>](c)` is a link in a link; here only one
    for token in tokens:
        if token.type == "link_open":
            depth += 1
            if depth == 1:
                spans.append(_Span(str(token.attrs["href"]), str(token.attrs.get("title", ""))))
        elif token.type == "link_close":
            depth -= 1
            if depth == 0:
                spans.append(_Span())
        elif depth or token.type != "image":  # the text of an image is read only in a link
            spans[-1].parts.append(_text(token))
    return spans


def _text(token: Token) -> str:
    if token.type == "image":
        return "".join(map(_text, token.children or ()))
    if token.type in {"softbreak", "hardbreak"}:
        return "\n"
    if token.type == "html_inline":
        return "\n" if _BREAK.match(token.content) else ""
    return token.content
