"""Text of a document as plain text on one line, which every export can write."""

import re
from collections.abc import Iterable
from html import unescape
from typing import Final

#: Characters of a name or tag; a longer one is prose and left out.
LONGEST_NAME: Final = 300
MOST_NAMES: Final = 100  #: names, or tags, of one entry
_LONGEST_FEED_TITLE: Final = 1000
_LANGUAGE: Final = re.compile(r"[a-z]{1,8}(?:-[a-z0-9]{1,8}){0,5}", re.IGNORECASE | re.ASCII)

# Characters that no XML or UTF-8 export can write: controls, surrogates, non-characters.
_UNWRITABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
# A comment or script without an end extends to the end of the text. So each character is read
# once, and the time is linear, also for hostile text.
_HIDDEN: Final = re.compile(
    r"<!--(?:.*?-->|.*)|<(script|style)\b(?:.*?</\1\s*>|.*)", re.DOTALL | re.IGNORECASE
)
_BREAK: Final = re.compile(r"</?(?:br|p|div|li|ul|ol|td|tr|h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]*>")
_ADDRESS: Final = re.compile(r"[^\s@<>()\"]+@[^\s@<>()\"]+")


def one_line(text: object) -> str | None:
    """Return the text without control characters and with single spaces; None if it is empty."""
    if not isinstance(text, str):
        return None
    line = " ".join(text.split())
    if not line.isprintable():
        line = " ".join(_UNWRITABLE.sub("", line).split())
    return line or None


def from_html(markup: object) -> str | None:
    """Return the text of a short piece of HTML, on one line; None if it is empty."""
    if not isinstance(markup, str):
        return None
    if "<" in markup:
        markup = _TAG.sub("", _BREAK.sub(" ", _HIDDEN.sub("", markup)))
    return one_line(unescape(markup) if "&" in markup else markup)


def distinct_names(texts: Iterable[str | None]) -> tuple[str, ...]:
    """Return each name once, in order, without empty and too long ones, at most `MOST_NAMES`."""
    kept = dict.fromkeys(text for text in texts if text and len(text) <= LONGEST_NAME)
    return tuple(kept)[:MOST_NAMES]


def person_name(text: str | None) -> str | None:
    """Return the text without e-mail addresses, such as `mail@example.org (Name)` (R6)."""
    if text is None or len(text) > LONGEST_NAME or "@" not in text:
        return text
    bare = _ADDRESS.sub(" ", text)
    return text if bare == text else one_line(bare.strip(' ()<>[]",;:'))


def feed_title(text: str | None) -> str | None:
    """Return the title of a feed; None if it is longer than an item may have it."""
    return text if text and len(text) <= _LONGEST_FEED_TITLE else None


def language_tag(text: object) -> str | None:
    """Return a language as a BCP 47 tag, with `en_US` as `en-US`; None if it is no such tag."""
    tag = text.strip().replace("_", "-") if isinstance(text, str) else ""
    return tag if _LANGUAGE.fullmatch(tag) else None
