"""The format of a body: markdown, or what it is instead (R9)."""

import re
from typing import Final

from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.text import one_line

_HEAD: Final = 4096  # characters in which the format must show
_COMMENTS: Final = re.compile(r"(?>\s++|<!--.*?-->)*+", re.DOTALL)
_CONTROL: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_JSON: Final = re.compile(r"\{\s*[\"}]|\[\s*\{")
_XML: Final = re.compile(r"<(?:\?xml|rss|feed|rdf:RDF|urlset|sitemapindex|opml|svg)\b")
_HTML_PAGE: Final = re.compile(r"^[ \t]*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.MULTILINE)
_HTML_PART: Final = re.compile(r"<(?:head|body|title|meta|link|script|style)\b", re.IGNORECASE)
_HTML_TAG: Final = re.compile(r"</?[a-z][\w-]*[\s/>]|<!(?!--)", re.IGNORECASE)
_MARKDOWN: Final = re.compile(r"^ {0,3}(?:#{1,6}[ \t]|```|~~~)|\]\(", re.MULTILINE)


def other_than_markdown(text: str) -> str | None:
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


def not_a_page_of_links(what: str, content_type: str | None) -> NotAFeed:
    """Return the error for a body that is something else: `JSON`, `an HTML page`."""
    served_as = (one_line(content_type) or "")[:80]
    served = f" (served as {served_as})" if served_as else ""
    return NotAFeed(f"Not a page of links in markdown but {what}{served}.")
