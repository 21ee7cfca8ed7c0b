"""From the bytes of an llms.txt, or of a page of markdown, to its links (R9).

    feed = parse_llms(body, url=response_url, content_type="text/plain", source=declared)
    for entry in feed.entries:
        entry.url, entry.title, entry.section, entry.note, entry.key

All sites are read by the same rules. The text of a page is data: instructions in it, to crawlers
or to language models, have no effect.

Title: the text of the first H1, which begins no section.
Section: the text of the nearest other heading above the link. A link inside a heading belongs to
the section that the heading begins. Headings in quotes and lists do not count.
Note: in a list item, the text after the link in the same paragraph. It must begin with a colon or a
dash, unless the item has no other link and no words before this one. Other text around links is
content and not kept (R6).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from walsh_scrapy.metadata.document import OverBudget, to_utf8
from walsh_scrapy.metadata.entries import Feed, FeedEntry, NotAFeed, with_keys
from walsh_scrapy.metadata.llms.markdown import HEADINGS, Paragraph, Span, paragraphs
from walsh_scrapy.metadata.text import (
    is_web_url,
    shorten,
    title_of,
    web_url,
    without_addresses,
)
from walsh_scrapy.policy.urls import canonical_url

_WANTED: Final = "a page of links in markdown"
_LONGEST_URL: Final = 4096  # as in the item schema; longer links are left out, never cut
_LONGEST_NOTE: Final = 500  # three lines on a screen; longer ones are cut

_WORD: Final = re.compile(r"\w")
_SEPARATOR: Final = re.compile(r"\s*(?:[:\uff1a|→\u2010-\u2015\u2212]|-+\s)")
_LEADING: Final = re.compile(r"[\s:\uff1a|→\u2010-\u2015\u2212,;-]+")

_LONGEST_FRONT_MATTER: Final = 65_536  # characters in which it must end
_FRONT_MATTER: Final = re.compile(
    r"\s*---[ \t]*\n[\w\"'][^\n]*:[^\n]*\n(?:[^\n]*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)


def parse_llms(body: bytes, *, url: str, content_type: str | None, source: str) -> Feed:
    """Return the links of a page of markdown in document order, with one entry per linked page.

    `url` is the final URL of the response: relative links resolve against it. `content_type` is
    the Content-Type header, None if there was none. `source` is the declared URL.

    Raises NotAFeed, and nothing else, if the body is not markdown, has neither a link nor a
    heading, or exceeds a limit of `markdown`.
    """
    text = re.sub("\r\n?", "\n", to_utf8(body, content_type).decode())
    what = _other_than_markdown(text)
    if what is not None:
        raise NotAFeed.but(what, content_type, _WANTED)
    front_matter = _FRONT_MATTER.match(text, 0, _LONGEST_FRONT_MATTER)
    try:
        page = list(paragraphs(text[front_matter.end() :] if front_matter else text))
    except OverBudget as error:
        raise NotAFeed.but(str(error), content_type, _WANTED) from None
    entries = _one_per_page(_entries(page, url))
    if not entries and not any(paragraph.within[0] in HEADINGS for paragraph in page):
        raise NotAFeed.but("plain text without a link", content_type, _WANTED)
    keyed = with_keys(entries, source)
    return Feed(title=_title(page), language=None, entries=keyed, format="markdown")


def _title(page: Sequence[Paragraph]) -> str | None:
    return next(filter(None, (_heading(each) for each in page if each.within[0] == "h1")), None)


def _entries(page: Sequence[Paragraph], base: str) -> Iterator[FeedEntry]:
    has_title = False
    section: str | None = None
    for paragraph in page:
        if paragraph.within[0] in HEADINGS:
            section = _heading(paragraph)
            if section and paragraph.within[0] == "h1" and not has_title:
                section, has_title = None, True
            section = without_addresses(section)
        link_with_note, note = _note(paragraph)
        for link in paragraph.spans[1::2]:
            url = _link_url(link.href, base)
            if url:
                yield _entry(url, link, section, note if link is link_with_note else None)


def _entry(url: str, link: Span, section: str | None, note: str | None) -> FeedEntry:
    return FeedEntry(
        url=url,
        title=_name(link.text) or _name(link.hint),
        section=section,
        note=note,
    )


def _one_per_page(entries: Iterator[FeedEntry]) -> tuple[FeedEntry, ...]:
    """Return one entry per page, with its first section, and its first title and note."""
    by_page: dict[str, FeedEntry] = {}
    for entry in entries:
        page = canonical_url(entry.url or "")
        first = by_page.setdefault(page, entry)
        if not (first.title and first.note) and (entry.title or entry.note):
            by_page[page] = replace(
                first, title=first.title or entry.title, note=first.note or entry.note
            )
    return tuple(by_page.values())


def _link_url(href: str | None, base: str) -> str | None:
    """Return the URL of a link; None if it is no web URL, too long, or within the page itself."""
    url = web_url(href, base)
    if url is None or len(url) > _LONGEST_URL:
        return None
    if "#" in url and canonical_url(url) == canonical_url(base):
        return None
    return url


def _note(paragraph: Paragraph) -> tuple[Span | None, str | None]:
    """Return the link of a list item that has a note, and the note; None for both without one."""
    spans = paragraph.spans
    if paragraph.within[-2:] != ("li", "p"):
        return None, None
    for at in range(1, len(spans), 2):
        after = spans[at + 1].text
        alone = len(spans) == 3 and not _WORD.search(spans[0].text)
        if _WORD.search(after) and (alone or _SEPARATOR.match(after)):
            text = "".join(span.text for span in spans[at + 1 :])
            note = shorten(_LEADING.sub("", text, count=1), _LONGEST_NOTE)
            return spans[at], without_addresses(note)
    return None, None


def _heading(paragraph: Paragraph) -> str | None:
    return title_of("".join(span.text for span in paragraph.spans))


def _name(text: str) -> str | None:
    """Return the text as a title; None if it is empty or only a URL."""
    name = title_of(text)
    return None if name and is_web_url(name) and " " not in name else name


_HEAD: Final = 4096  # characters in which the format must show
_COMMENTS: Final = re.compile(r"(?>\s++|<!--.*?-->)*+", re.DOTALL)
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_JSON: Final = re.compile(r"\{\s*[\"}]|\[\s*\{")
_XML: Final = re.compile(r"<(?:\?xml|rss|feed|rdf:RDF|urlset|sitemapindex|opml|svg)\b")
_HTML_PAGE: Final = re.compile(r"^[ \t]*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.MULTILINE)
_HTML_PART: Final = re.compile(r"<(?:head|body|title|meta|link|script|style)\b", re.IGNORECASE)
_HTML_TAG: Final = re.compile(r"</?[a-z][\w-]*[\s/>]|<!(?!--)", re.IGNORECASE)
_MARKDOWN: Final = re.compile(r"^ {0,3}(?:#{1,6}[ \t]|```|~~~)|\]\(", re.MULTILINE)


def _other_than_markdown(text: str) -> str | None:
    """Return what a body is instead of markdown, such as `JSON`; None if it may be markdown.

    The text decides, because an llms.txt is served with any media type.
    """
    start = _COMMENTS.match(text)
    head = text[start.end() if start else 0 :][:_HEAD]
    if not text.strip():
        return "an empty body"
    if head.startswith("%PDF-") or len(_CONTROL.findall(head)) > 2 + len(head) / 50:
        return "binary data"
    if _JSON.match(head):
        return "JSON"
    page = _HTML_PAGE.search(head)  # it may follow a warning; markdown may quote an HTML page
    if (page and not _MARKDOWN.search(head, 0, page.start())) or _HTML_PART.match(head):
        return "an HTML page"
    if _XML.match(head):
        return "XML"
    if _HTML_TAG.match(head) and not _MARKDOWN.search(text):
        return "HTML without any markdown"
    return None
