"""Markdown, taken apart into paragraphs of text and links: what a reader of the page could click.

This is CommonMark as markdown-it-py reads it, and bare `https://` URLs. Code, comments and HTML are
stepped over and never searched for links (R9). The rows of a table are lines of a paragraph.

What markdown-it-py does takes time in proportion to the page, but up to 70 microseconds a line and
a kilobyte a character. The limits keep the worst page that was found below 20 seconds and 200 MB,
and refuse what is longer: a part of an index would pass for the whole.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import unescapeAll
from markdown_it.rules_block import StateBlock, html_block
from markdown_it.rules_inline import StateInline, image
from markdown_it.token import Token

HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})

MOST_CHARACTERS: Final = 2_000_000  # an index of 20,000 links; what is longer is a dump
MOST_LINES: Final = 100_000  # 7 seconds, if all of them lazily go on twenty quotes
MOST_LINKS: Final = 50_000  # and of `[` and `://`: in vain or not, each is followed to its end
MOST_TOKENS: Final = 300_000  # of 400 bytes; a link in a list takes five, `- - - ` two a character
_NESTING: Final = 20  # CommonMark's default here; a list counts twice, each level reads its lines
_PIECE: Final = 65_536  # characters of a paragraph that are taken apart at once
_LONGEST_URL: Final = 4096

_PIECES: Final = re.compile(rf".{{1,{_PIECE}}}(?:\n|\Z)|.{{1,{_PIECE}}}", re.DOTALL)
_MAY_LINK: Final = re.compile(r"\]|://|<[a-z]", re.IGNORECASE)
_BREAK: Final = re.compile(r"<br\b", re.IGNORECASE)
_BARE_START: Final = re.compile(r"(?:^|[^a-z0-9.+-])(https?)$", re.IGNORECASE)
# No bare URL goes on at a bracket, a quote, the end of a cell or Chinese punctuation.
_BARE_REST: Final = re.compile(
    r"://[^\s<>\[\]|\"`\x00-\x1f\x7f\u2018-\u201d\u3000-\u303f\uff08\uff09\uff0c\uff1a\uff1b]"
    rf"{{1,{_LONGEST_URL}}}"
)
# HTML that goes on over blank lines, and what ends it.
_ENDLESS: Final = tuple(
    (re.compile(start, re.IGNORECASE), re.compile(end, re.IGNORECASE))
    for start, end in (
        (r"<(?:script|pre|style|textarea)(?=[\s>])", "</(?:script|pre|style|textarea)>"),
        ("<!--", "-->"),
        (r"<!\[CDATA\[", r"\]\]>"),
        (r"<\?", r"\?>"),
        ("<![a-z]", ">"),
    )
)

# At DEBUG, the level of Scrapy's logs, it would report each rule it tries on each line.
logging.getLogger("markdown_it").setLevel(logging.INFO)


class TooMuch(Exception):
    """More than any index of links has; the message says of what."""


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
    for token in _PARSER.parse(text, definitions):
        if token.nesting == 1:
            within.append(token.tag)
        elif token.nesting == -1:
            within.pop()
        elif token.type == "inline":
            for piece in _PIECES.findall(token.content) or [""]:
                if within[0] in HEADINGS or _MAY_LINK.search(piece):
                    spans = _spans(_PARSER.inline.parse(piece, _PARSER, definitions, []))
                    links += len(spans) // 2
                    _check("links", links, MOST_LINKS)
                    yield Paragraph(tuple(within), spans)


def _check_size(text: str) -> None:
    _check("characters", len(text), MOST_CHARACTERS)
    _check("lines", max(text.count("\n"), text.count("\r")), MOST_LINES)
    _check("links", max(text.count("["), text.count("://")), MOST_LINKS)


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise TooMuch(f"markdown of more than {most} {what}")


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


def _enough(state: StateBlock, _line: int, _end: int, _silent: bool) -> bool:
    """Stop before the tokens fill the memory: a block rule that is tried first and never fits."""
    _check("parts", len(state.tokens), MOST_TOKENS)
    return False


def _html(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a block of HTML; but what is never closed is text, and swallows nothing after it."""
    at = state.bMarks[line] + state.tShift[line]
    for opening, closing in _ENDLESS:
        if opening.match(state.src, at):
            return at < _last(state, closing) and html_block(state, line, end, silent)
    return html_block(state, line, end, silent)


def _last(state: StateBlock, closing: re.Pattern[str]) -> int:
    """Return where it stands last in the document, looked for only once; -1 if nowhere."""
    known = state.env.setdefault("walsh closings", {})
    if closing not in known:
        known[closing] = max((found.start() for found in closing.finditer(state.src)), default=-1)
    return int(known[closing])


def _image(state: StateInline, silent: bool) -> bool:
    """Read an image, but none inside another: each level would read the text once more."""
    if state.env.get("walsh image"):
        return False
    state.env["walsh image"] = True
    found = image(state, silent)
    state.env["walsh image"] = False
    return found


def _bare(state: StateInline, silent: bool) -> bool:
    """Read a URL that stands in the text as it is, up to where GitHub would end it."""
    if silent or state.linkLevel or state.src[state.pos] != ":":
        return False
    start = _BARE_START.search(state.pending[-6:])
    rest = _BARE_REST.match(state.src, state.pos, state.posMax) if start else None
    if not (start and rest):
        return False
    written = _trimmed(rest[0])
    state.pending = state.pending[: -len(start[1])]
    state.push("link_open", "a", 1).attrs = {"href": unescapeAll(start[1] + written)}
    state.push("text", "", 0).content = unescapeAll(start[1] + written)
    state.push("link_close", "a", -1)
    state.pos += len(written)
    return True


def _trimmed(url: str) -> str:
    """Return the URL without the punctuation and the brackets of the sentence that it ends."""
    while True:
        bare = url.rstrip("?!.,:;*_~'")
        closed = len(bare) - len(bare.rstrip(")"))
        spare = min(closed, bare.count(")") - bare.count("("))
        if spare <= 0:
            return bare
        url = bare[:-spare]


class _Markdown(MarkdownIt):
    """CommonMark with every link as published, wherever it leads."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - markdown-it's name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802
        return True


def _parser() -> MarkdownIt:
    parser = _Markdown("commonmark", {"maxNesting": _NESTING})
    parser.core.ruler.enableOnly(["normalize", "block"])
    parser.block.ruler.before("code", "enough", _enough)
    ends = ["paragraph", "reference", "blockquote"]  # what a block of HTML puts an end to
    parser.block.ruler.at("html_block", _html, {"alt": ends})
    parser.inline.ruler.after("text", "bare", _bare)
    parser.inline.ruler.at("image", _image)
    return parser


_PARSER: Final = _parser()
