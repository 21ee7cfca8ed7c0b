"""The markdown parser: markdown-it-py's CommonMark, with bare URLs and limits of our own.

Links stay as published, wherever they lead. Bare `https://` URLs are links, as on GitHub;
markdown-it-py itself reads them only with one more package, linkify-it-py.
"""

import logging
import re
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import unescapeAll
from markdown_it.rules_block import StateBlock, blockquote, html_block
from markdown_it.rules_inline import StateInline, image

MOST_TOKENS: Final = 150_000  # of 400 bytes; a link in a list takes five, `- - - ` two a character
_NESTING: Final = 20  # CommonMark's default here; a list counts twice, each level reads its lines
_QUOTES: Final = 10  # levels above which `>` is text: each quote reads the lines once more
_LONGEST_URL: Final = 4096

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


def check(what: str, count: int, most: int) -> None:
    """Raise TooMuch if there is more of something than there may be."""
    if count > most:
        raise TooMuch(f"markdown of more than {most} {what}")


def _enough(state: StateBlock, _line: int, _end: int, _silent: bool) -> bool:
    """Stop before the tokens fill the memory: a block rule that is tried first and never fits."""
    check("parts", len(state.tokens), MOST_TOKENS)
    return False


def _quote(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a quote, but not the eleventh inside others."""
    return state.level < _QUOTES and blockquote(state, line, end, silent)


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
    ends = [
        "paragraph",
        "reference",
        "blockquote",
    ]  # what a block of HTML or a quote puts an end to
    parser.block.ruler.at("html_block", _html, {"alt": ends})
    parser.block.ruler.at("blockquote", _quote, {"alt": [*ends, "list"]})
    parser.inline.ruler.after("text", "bare", _bare)
    parser.inline.ruler.at("image", _image)
    return parser


#: Reads blocks in `parse`, and what is inside them in `inline.parse`.
PARSER: Final = _parser()
