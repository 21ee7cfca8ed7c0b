"""The texts and links of entries, in the form in which they are kept (R6)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from walsh_scrapy.policy.wording import (
    DIRECTION_MARKS,
    LETTERS,
    LOCAL_PART,
    for_others,
    one_line,
    without_references,
)

# The item schema has the same limits, and is checked last. Longer texts are prose.
MAX_TITLE_CHARACTERS: Final = 300  #: Longer titles and sections are cut.
MAX_NAME_CHARACTERS: Final = 300  #: Longer names of authors are dropped.
MAX_TAG_CHARACTERS: Final = 100  #: Longer tags are dropped.
MAX_NAMES: Final = 100  #: Names of authors, or tags, of one entry.
_LANGUAGE: Final = re.compile(r"[a-z]{1,8}(?:-[a-z0-9]{1,8}){0,5}", re.IGNORECASE | re.ASCII)

# A comment or script without an end extends to the end of the text. So each character is read only
# once, and the time is linear even for hostile text.
_COMMENT_OR_SCRIPT: Final = re.compile(
    r"<!--(?:.*?-->|.*)|<(script|style)\b(?:.*?</\1\s*>|.*)", re.DOTALL | re.IGNORECASE
)
_BREAK: Final = re.compile(r"</?(?:br|p|div|li|ul|ol|td|tr|h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]*>")

#: One of several persons in a text: `mail@example.org (Name)`, `Name <mail@example.org>`
#: and the like.
_PERSON: Final = re.compile(
    r"([^@]*[^@\s]@[^@\s<>(),;]+(?:[>)]|\s*\([^()]*\))?)"
    r"(?:\s*(?:[,;&]\s*|and\s+|\Z)|(?<=[>)])\s+)"
)
_BETWEEN_SEMICOLONS: Final = re.compile(r"(?:&#?\w+;|[^;])+")  # a reference such as `&amp;` is text
#: An e-mail address in the name of a person; its host may have no dot.
_ADDRESS_OF_PERSON: Final = re.compile(rf"{LOCAL_PART}@{LETTERS}++")


def list_of(value: object) -> list[object]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def objects_of(value: object) -> Iterator[Mapping[str, object]]:
    """Yield the objects in a list, and nothing if the value is no list."""
    yield from (entry for entry in list_of(value) if isinstance(entry, dict))


def from_html(markup: object) -> str | None:
    """Return the text of a short piece of HTML, on one line; None if it is empty."""
    if not isinstance(markup, str):
        return None
    if "<" in markup:
        markup = _TAG.sub("", _BREAK.sub(" ", _COMMENT_OR_SCRIPT.sub("", markup)))
    return one_line(without_references(markup) if "&" in markup else markup)


def shorten(text: object, max_characters: int) -> str | None:
    """Return the text on one line, cut after a word if it is longer than `max_characters`."""
    line = one_line(text)
    if line is None or len(line) <= max_characters:
        return line
    words = line[:max_characters].rpartition(" ")[0]
    if len(words) < max_characters // 2:  # few spaces, as in Chinese
        words = line[: max_characters - 1]
    return f"{words}…"


def title_of(text: object) -> str | None:
    """Return a title, or a section, on one line, cut to `MAX_TITLE_CHARACTERS`."""
    return shorten(text, MAX_TITLE_CHARACTERS)


def distinct_names(texts: Iterable[str | None]) -> tuple[str, ...]:
    """Return each name once, in order, without empty and long names, at most `MAX_NAMES`."""
    return _distinct(texts, MAX_NAME_CHARACTERS)


def distinct_tags(texts: Iterable[str | None]) -> tuple[str, ...]:
    """Return each tag once, as `distinct_names` does, with e-mail addresses removed (R6)."""
    short = (text for text in texts if text and len(text) <= MAX_TAG_CHARACTERS)
    return _distinct(map(without_addresses, short), MAX_TAG_CHARACTERS)


def _distinct(texts: Iterable[str | None], max_characters: int) -> tuple[str, ...]:
    distinct = dict.fromkeys(text for text in texts if text and len(text) <= max_characters)
    return tuple(distinct)[:MAX_NAMES]


def without_addresses(text: str | None) -> str | None:
    """Return a text with "…" in place of e-mail addresses and credentials; None if no word remains.

    The keys of entries are made from the published titles, so two titles that become equal here do
    not make two entries one.
    """
    if text is None or (bare := for_others(text)) == text:
        return text
    return bare if any(map(str.isalnum, bare)) else None


def person_names(text: str | None) -> Iterator[str | None]:
    """Yield the name of each person in a text, by `person_name`.

    Persons are separated by semicolons, or by any separator after an e-mail address. A comma
    elsewhere may be part of a name: `Doe, Jo`.
    """
    if text is None:
        return
    start = 0
    while person := _PERSON.match(text, start):
        yield person_name(person[1])
        start = person.end()
    for name in _BETWEEN_SEMICOLONS.findall(text, start):
        yield person_name(one_line(name))


def person_name(text: str | None) -> str | None:
    """Return a name without its e-mail addresses: `Name` for `mail@example.org (Name)` (R6).

    `name@host` is an address too, although the host has no dot. Returns None if no name remains, or
    if the text is too long for a name.
    """
    if text is None or not ("@" in text or "%40" in text):
        return text
    if len(text) > MAX_NAME_CHARACTERS:
        return None
    whole = text.replace("%40", "@")
    bare = _ADDRESS_OF_PERSON.sub(" ", whole)
    if bare == whole:
        return text
    return one_line(bare.strip(' ()<>[]{}@",;:')) if any(map(str.isalnum, bare)) else None


def language_tag(text: object) -> str | None:
    """Return a language as a BCP 47 tag (`en-US` for `en_US`); None if the text is no such tag."""
    tag = text.strip().replace("_", "-") if isinstance(text, str) else ""
    return tag if _LANGUAGE.fullmatch(tag) else None


# Most links are like this: nothing in them needs to be resolved, encoded or removed.
_PLAIN_URL: Final = re.compile(
    r"https?://[a-z0-9.-]*[a-z0-9](?::[0-9]+)?(?:[/?#][!-~]*)?", re.ASCII
)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"\A//[^/?#\\]*@")  # a user name and a password, which are removed
# Spaces, and marks that change the order in which a URL is shown.
_TO_ENCODE: Final = re.compile(rf"[\s{DIRECTION_MARKS}]")
_NOT_IN_URLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def is_web_url(link: object) -> bool:
    """Return True if the value is text that begins with `http://` or `https://`."""
    return isinstance(link, str) and _WEB.match(link.strip()) is not None


def web_url(link: object, base: str) -> str | None:
    """Return the link resolved against `base`; None if it is no http or https URL with a host.

    As in browsers, spaces and direction marks are percent-encoded, control characters are removed,
    and the scheme becomes lower case. User name and password are removed. The rest stays as
    published.
    """
    if not isinstance(link, str):
        return None
    if _PLAIN_URL.fullmatch(link):
        return link
    link = _NOT_IN_URLS.sub("", link).strip()
    if not link:
        return None
    try:
        url = link if _WEB.match(link) else urljoin(base, link)
        host = urlsplit(url).hostname if _WEB.match(url) else None
    except ValueError:
        return None
    if not host:
        return None
    scheme, _, rest = _TO_ENCODE.sub(lambda match: quote(match[0]), url).partition(":")
    return f"{scheme.lower()}:{_USER_INFO.sub('//', rest, count=1)}"
