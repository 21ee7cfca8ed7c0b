"""Markdown, taken apart into paragraphs of text and links: what a reader of the page could click.

This is CommonMark as markdown-it-py reads it, and bare `https://` URLs. Code, comments and HTML are
stepped over and never searched for links (R9). The rows of a table are lines of a paragraph.

What markdown-it-py does takes time in proportion to the page, but 80 microseconds a link, up to 70
a line and a kilobyte a character. The limits keep the worst page that was found at about a second,
which is what an index of 10,000 links takes as well, and refuse what is longer, since a part of an
index would pass for the whole.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from markdown_it.token import Token

from walsh_scrapy.metadata.llms.commonmark import PARSER, check

HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})

MOST_CHARACTERS: Final = 1_000_000  # an index of 10,000 links; what is longer is a dump
MOST_LINES: Final = 25_000  # each link and a blank line; or lines that lazily go on twenty quotes
MOST_LINKS: Final = 15_000  # and of brackets and `://`: each is followed to its end, or in vain
MOST_TAGS: Final = 50_000  # of HTML, and whatever else begins with `<`
_PIECE: Final = 65_536  # characters of a paragraph that are taken apart at once

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
        """Return the text: plain, with its line breaks."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph or a heading."""

    within: tuple[str, ...]  #: as HTML has it, itself last: `("ul", "li", "p")` or `("h2",)`
    spans: Sequence[Span]  #: text and links by turns; text first and last


def paragraphs(text: str) -> Iterator[Paragraph]:
    """Give the headings of a document, and the paragraphs that may hold links, in its order.

    A very long paragraph comes in pieces, cut between its lines. Raises TooMuch.
    """
    _check_size(text)
    definitions: dict[str, object] = {}  # of `[a]: https://...`, kept by markdown-it
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
                    check("links", links, MOST_LINKS)
                    yield Paragraph(tuple(within), spans)


def _check_size(text: str) -> None:
    check("characters", len(text), MOST_CHARACTERS)
    check("lines", max(text.count("\n"), text.count("\r")), MOST_LINES)
    check("links", max(map(text.count, ("[", "]", "://"))), MOST_LINKS)
    check("tags", text.count("<"), MOST_TAGS)


def _spans(tokens: Sequence[Token]) -> list[Span]:
    spans = [Span()]
    depth = 0  # `[a <https://b.example>](c)` is to markdown-it a link in a link; to us it is one
    for token in tokens:
        if token.type == "link_open":
            depth += 1
            if depth == 1:
                spans.append(Span(str(token.attrs["href"]), str(token.attrs.get("title", ""))))
        elif token.type == "link_close":
            depth -= 1
            if depth == 0:
                spans.append(Span())
        elif depth or token.type != "image":  # what an image shows is a text only of its link
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
