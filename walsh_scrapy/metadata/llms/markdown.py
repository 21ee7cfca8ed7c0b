"""Markdown as paragraphs of text and links; a link is what a reader of the page could click.

It is read as CommonMark by markdown-it-py, with limits of our own. Links stay as published,
whatever their scheme. Bare `https://` URLs are links, as on GitHub; markdown-it-py would need one
more package for them, linkify-it-py. Code, comments and HTML are skipped and not searched for links
(R9). The rows of a table are lines of a paragraph.

markdown-it-py needs time in proportion to the page: 80 microseconds per link and up to 70 per line;
and up to a kilobyte of memory per character. With the limits below, the worst page that was found
takes about a second, as a page of 10,000 links does. A longer page is refused and not read in part,
because a part would look like the whole.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Final

from markdown_it import MarkdownIt, helpers
from markdown_it.common.utils import unescapeAll
from markdown_it.rules_block import StateBlock, blockquote, html_block
from markdown_it.rules_inline import StateInline, image
from markdown_it.token import Token

from walsh_scrapy.metadata.document import OverBudget

MOST_TOKENS: Final = 150_000  # 400 bytes each; a link in a list makes 5, `- - - ` 2 per character
# Each level of a list or a quote reads its lines again.
_NESTING: Final = 20  # levels, the default of markdown-it-py; a list counts twice
_QUOTES: Final = 10  # levels of quotes; deeper ones are text
_LONGEST_URL: Final = 4096

_BARE_START: Final = re.compile(r"(?:^|[^a-z0-9.+-])(https?)$", re.IGNORECASE)
# A bare URL ends at a bracket, a quotation mark, the end of a cell or Chinese punctuation.
_BARE_REST: Final = re.compile(
    r"://[^\s<>\[\]|\"`\x00-\x1f\x7f\u2018-\u201d\u3000-\u303f\uff08\uff09\uff0c\uff1a\uff1b]"
    rf"{{1,{_LONGEST_URL}}}"
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


def check_limit(what: str, count: int, most: int) -> None:
    """Raise OverBudget if `count` is above `most`; `what` names the counted things."""
    if count > most:
        raise OverBudget(f"markdown of more than {most} {what}")


def _check_tokens(state: StateBlock, _line: int, _end: int, _silent: bool) -> bool:
    """Limit the tokens, and so the memory: a block rule that is tried first and never matches."""
    check_limit("parts", len(state.tokens), MOST_TOKENS)
    return False


def _quote_block(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a quote, if it is in fewer than ten others."""
    return state.level < _QUOTES and blockquote(state, line, end, silent)


def _html_block(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a block of HTML. One that is never closed is text, so that nothing after it is lost."""
    at = state.bMarks[line] + state.tShift[line]
    for opening, closing in _LONG_HTML:
        if opening.match(state.src, at):
            return at < _last_position(state, closing) and html_block(state, line, end, silent)
    return html_block(state, line, end, silent)


def _last_position(state: StateBlock, closing: re.Pattern[str]) -> int:
    """Return the last position of an end mark in the document, -1 if none; searched only once."""
    last = state.env.setdefault("walsh end marks", {})
    if closing not in last:
        last[closing] = max((match.start() for match in closing.finditer(state.src)), default=-1)
    return int(last[closing])


def _image(state: StateInline, silent: bool) -> bool:
    """Read an image, but none inside another, because each level would read the text again."""
    if state.env.get("walsh image"):
        return False
    state.env["walsh image"] = True
    found = image(state, silent)
    state.env["walsh image"] = False
    return found


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
    """Return the URL without punctuation and brackets at its end that belong to the sentence."""
    end, spare = len(url), url.count(")") - url.count("(")
    while end and (url[end - 1] in _PUNCTUATION or (url[end - 1] == ")" and spare > 0)):
        spare -= url[end - 1] == ")"
        end -= 1
    return url[:end]


class _Markdown(MarkdownIt):
    """CommonMark with every link as published, whatever its scheme."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - markdown-it's name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802
        return True


def _parser() -> MarkdownIt:
    parser = _Markdown("commonmark", {"maxNesting": _NESTING})
    parser.core.ruler.enableOnly(["normalize", "block"])
    parser.block.ruler.before("code", "check_tokens", _check_tokens)
    interrupted = ["paragraph", "reference", "blockquote"]  # by a block of HTML or a quote
    parser.block.ruler.at("html_block", _html_block, {"alt": interrupted})
    parser.block.ruler.at("blockquote", _quote_block, {"alt": [*interrupted, "list"]})
    parser.inline.ruler.after("text", "bare", _bare_url)
    parser.inline.ruler.at("image", _image)
    # An image that is none is tried as a link, from the same place: its URL is read only once.
    read_once = lru_cache(maxsize=4)(helpers.parseLinkDestination)
    parser.helpers = SimpleNamespace(**vars(helpers) | {"parseLinkDestination": read_once})  # type: ignore[assignment]
    return parser


#: `parse` reads the blocks of a document, `inline.parse` the text of a block.
PARSER: Final = _parser()


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

    A very long paragraph comes in pieces, cut between its lines. Raises OverBudget if the
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
