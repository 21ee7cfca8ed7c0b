"""Markdown as paragraphs of text and links; a link is what a reader of the page could click.

It is read as CommonMark by markdown-it-py, with bare `https://` URLs. Code, comments and HTML are
skipped and not searched for links (R9). The rows of a table are lines of a paragraph.

markdown-it-py needs time in proportion to the page: 80 microseconds per link and up to 70 per line;
and up to a kilobyte of memory per character. With the limits below, the worst page that was found
takes about a second, as a page of 10,000 links does. A longer page is refused and not read in part,
because a part would look like the whole.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from markdown_it.token import Token

from walsh_scrapy.metadata.llms.parser import PARSER, check_limit

HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})

MOST_CHARACTERS: Final = 1_000_000  # enough for 10,000 links
MOST_LINES: Final = 25_000  # enough for 10,000 links and blank lines between them
MOST_LINKS: Final = 15_000  # also of brackets and `://`, because each may begin a link
MOST_TAGS: Final = 50_000  # of HTML, and anything else that begins with `<`
_PIECE: Final = 65_536  # characters of a paragraph that are parsed at once

_PIECES: Final = re.compile(rf".{{1,{_PIECE}}}(?:\n|\Z)|.{{1,{_PIECE}}}", re.DOTALL)
_MAY_LINK: Final = re.compile(r"\]|://|<[a-z]", re.IGNORECASE)
_BREAK: Final = re.compile(r"<br\b", re.IGNORECASE)


@dataclass(slots=True)
class Span:
    """A link, or the text before, between or after links."""

    href: str | None = None  #: as published; None for text
    hint: str = ""  #: the title in `[text](href "title")`
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return the plain text, with its line breaks."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph or a heading."""

    within: tuple[str, ...]  #: HTML names, the outermost first: `("ul", "li", "p")` or `("h2",)`
    spans: Sequence[Span]  #: text and links alternate; the first and the last are text


def paragraphs(text: str) -> Iterator[Paragraph]:
    """Yield the headings of a document, and the paragraphs that may have links, in its order.

    A very long paragraph comes in pieces, cut between its lines. Raises LimitExceeded if the
    document is larger than any page of links.
    """
    _check_size(text)
    definitions: dict[str, object] = {}  # filled by markdown-it: `[a]: https://...`
    within: list[str] = []
    links = 0
    for token in PARSER.parse(text, definitions):
        if token.nesting == 1:
            within.append(token.tag)
        elif token.nesting == -1:
            within.pop()
        elif token.type == "inline":
            for piece in _PIECES.findall(token.content) or [""]:
                if within[0] in HEADINGS or _MAY_LINK.search(piece):
                    spans = _spans(PARSER.inline.parse(piece, PARSER, definitions, []))
                    links += len(spans) // 2
                    check_limit("links", links, MOST_LINKS)
                    yield Paragraph(tuple(within), spans)


def _check_size(text: str) -> None:
    check_limit("characters", len(text), MOST_CHARACTERS)
    check_limit("lines", max(text.count("\n"), text.count("\r")), MOST_LINES)
    check_limit("links", max(map(text.count, ("[", "]", "://"))), MOST_LINKS)
    check_limit("tags", text.count("<"), MOST_TAGS)


def _spans(tokens: Sequence[Token]) -> list[Span]:
    spans = [Span()]
    depth = 0  # `[a <https://b.example>](c)` is a link in a link for markdown-it, here only one
    for token in tokens:
        if token.type == "link_open":
            depth += 1
            if depth == 1:
                spans.append(Span(str(token.attrs["href"]), str(token.attrs.get("title", ""))))
        elif token.type == "link_close":
            depth -= 1
            if depth == 0:
                spans.append(Span())
        elif depth or token.type != "image":  # the text of an image counts only in a link
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
