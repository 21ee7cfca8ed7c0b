"""Sites without a feed (R9): an llms.txt, or a page of markdown, to the links on it.

    feed = parse_llms(body, url=response_url, content_type="text/plain", source=declared)
    for entry in feed.entries:
        entry.url, entry.title, entry.section, entry.note, entry.key

Every site is read alike, and nothing a page says is acted on, whomever it speaks to: it is data.

The first H1 is the title of the whole and heads no section. A section is the nearest other heading
above a link; a link inside a heading is in the section that it begins. What stands as a heading in
a quote or a list heads nothing.

A note is what the list item of a link goes on to say in the same paragraph, after a colon or dash;
without one, only if the item has no other link and no words before this one. Other text around
links is content and not kept (R6).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from walsh_scrapy.metadata.encoding import to_utf8
from walsh_scrapy.metadata.entries import Entry, Feed, NotAFeed
from walsh_scrapy.metadata.keys import with_keys
from walsh_scrapy.metadata.links import is_web, web_url
from walsh_scrapy.metadata.llms.commonmark import TooMuch
from walsh_scrapy.metadata.llms.markdown import HEADINGS, Paragraph, Span, paragraphs
from walsh_scrapy.metadata.text import one_line
from walsh_scrapy.policy.urls import canonical_url

_LONGEST_URL: Final = 4096  # as an item may have; a longer one is left out, since half is another
_LONGEST_NAME: Final = 300  # of a title or section; what is longer is prose, and cut
_LONGEST_NOTE: Final = 500  # three lines on a screen; likewise

_WORD: Final = re.compile(r"\w")
_SEPARATOR: Final = re.compile(r"\s*(?:[:\uff1a|→\u2010-\u2015\u2212]|-+\s)")
_LEADING: Final = re.compile(r"[\s:\uff1a|→\u2010-\u2015\u2212,;-]+")

_HEAD: Final = 4096  # characters that tell what a body is
_LONGEST_FRONT_MATTER: Final = 65_536  # characters in which it must end
_FRONT_MATTER: Final = re.compile(
    r"\s*---[ \t]*\n[\w\"'][^\n]*:[^\n]*\n(?:[^\n]*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)
_COMMENTS: Final = re.compile(r"(?>\s++|<!--.*?-->)*+", re.DOTALL)
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_JSON: Final = re.compile(r"\{\s*[\"}]|\[\s*\{")
_XML: Final = re.compile(r"<(?:\?xml|rss|feed|rdf:RDF|urlset|sitemapindex|opml|svg)\b")
_PAGE: Final = re.compile(r"^[ \t]*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.MULTILINE)
_PART: Final = re.compile(r"<(?:head|body|title|meta|link|script|style)\b", re.IGNORECASE)
_TAG: Final = re.compile(r"</?[a-z][\w-]*[\s/>]|<!(?!--)", re.IGNORECASE)
_MARK: Final = re.compile(r"^ {0,3}(?:#{1,6}[ \t]|```|~~~)|\]\(", re.MULTILINE)


def parse_llms(body: bytes, *, url: str, content_type: str | None, source: str) -> Feed:
    """Return the links of a markdown page, each page linked to once, in document order.

    `url` is the final URL of the response: relative links resolve against it. `source` is the
    declared URL. Raises NotAFeed, and nothing else, if the body is something else, or longer than
    any index of links. The bytes decide, since an llms.txt is served under every media type.
    """
    text = re.sub("\r\n?", "\n", to_utf8(body, content_type).decode())
    what = _foreign(text)
    if what is not None:
        raise _not_links(what, content_type)
    front_matter = _FRONT_MATTER.match(text, 0, _LONGEST_FRONT_MATTER)
    try:
        page = list(paragraphs(text[front_matter.end() :] if front_matter else text))
    except TooMuch as error:
        raise _not_links(str(error), content_type) from None
    entries = _once(_entries(page, url))
    if not entries and not any(paragraph.within[0] in HEADINGS for paragraph in page):
        raise _not_links("plain text without a link", content_type)
    return Feed(title=_title(page), language=None, entries=with_keys(entries, source))


def _foreign(text: str) -> str | None:
    """Return what a body is instead of markdown; None if it may be markdown."""
    start = _COMMENTS.match(text)
    head = text[start.end() if start else 0 :][:_HEAD]
    if not text.strip():
        return "an empty body"
    if head.startswith("%PDF-") or len(_CONTROL.findall(head)) > 2 + len(head) / 50:
        return "binary data"
    if _JSON.match(head):
        return "JSON"
    page = _PAGE.search(head)  # a warning may come before it; markdown may quote one
    if (page and not _MARK.search(head, 0, page.start())) or _PART.match(head):
        return "an HTML page"
    if _XML.match(head):
        return "XML"
    if _TAG.match(head) and not _MARK.search(text):
        return "HTML without any markdown"
    return None


def _not_links(what: str, content_type: str | None) -> NotAFeed:
    announced = (one_line(content_type) or "")[:80]
    served = f" (served as {announced})" if announced else ""
    return NotAFeed(f"Not a page of links in markdown but {what}{served}.")


def _title(page: Sequence[Paragraph]) -> str | None:
    return next(filter(None, (_heading(each) for each in page if each.within[0] == "h1")), None)


def _entries(page: Sequence[Paragraph], base: str) -> Iterator[Entry]:
    titled = False
    section: str | None = None
    for paragraph in page:
        if paragraph.within[0] in HEADINGS:
            section = _heading(paragraph)
            if section and paragraph.within[0] == "h1" and not titled:
                section, titled = None, True
        noted, note = _note(paragraph)
        for link in paragraph.spans[1::2]:
            url = _address(link.href, base)
            if url:
                yield _entry(url, link, section, note if link is noted else None)


def _entry(url: str, link: Span, section: str | None, note: str | None) -> Entry:
    return Entry(
        url=url,
        title=_name(link.text) or _name(link.hint),
        id=None,
        published=None,
        updated=None,
        authors=(),
        tags=(),
        section=section,
        note=note,
    )


def _once(entries: Iterator[Entry]) -> tuple[Entry, ...]:
    """Return one entry a page, in the section of its first link, with the first title and note."""
    found: dict[str, Entry] = {}
    for entry in entries:
        page = canonical_url(entry.url or "")
        first = found.setdefault(page, entry)
        if not (first.title and first.note) and (entry.title or entry.note):
            found[page] = replace(
                first, title=first.title or entry.title, note=first.note or entry.note
            )
    return tuple(found.values())


def _address(href: str | None, base: str) -> str | None:
    """Return where a link leads; None if that is not another place on the web."""
    url = web_url(href, base)
    if url is None or len(url) > _LONGEST_URL:
        return None
    if "#" in url and canonical_url(url) == canonical_url(base):
        return None
    return url


def _note(paragraph: Paragraph) -> tuple[Span | None, str | None]:
    """Return the link of a list item that is spoken of, and what is said of it."""
    spans = paragraph.spans
    if paragraph.within[-2:] != ("li", "p"):
        return None, None
    for at in range(1, len(spans), 2):
        after = spans[at + 1].text
        alone = len(spans) == 3 and not _WORD.search(spans[0].text)
        if _WORD.search(after) and (alone or _SEPARATOR.match(after)):
            said = "".join(span.text for span in spans[at + 1 :])
            return spans[at], _short(_LEADING.sub("", said, count=1), _LONGEST_NOTE)
    return None, None


def _heading(paragraph: Paragraph) -> str | None:
    return _short("".join(span.text for span in paragraph.spans), _LONGEST_NAME)


def _name(text: str) -> str | None:
    """Return a text as a title; None if it says nothing, or no more than a URL."""
    name = _short(text, _LONGEST_NAME)
    return None if name and is_web(name) and " " not in name else name


def _short(text: str, most: int) -> str | None:
    """Return the text on one line, cut after a word if it is too long."""
    line = one_line(text)
    if line is None or len(line) <= most:
        return line
    words = line[:most].rpartition(" ")[0]
    if len(words) < most // 2:  # Chinese has no spaces
        words = line[: most - 1]
    return f"{words}…"
