"""Remarks on a robots.txt, for its author: lines that mean nothing, or not what they seem.

    body -> findings about the file, its lines, its groups

A remark never changes the reading of a file: this module calls `robotstxt` for it. So a remark
about a record is right for a crawl.
"""

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from walsh_scrapy.policy.robots.extended import is_malformed
from walsh_scrapy.policy.robots.robotstxt import (
    BLANKS,
    MAX_OCTETS,
    OTHER,
    RULE,
    USER_AGENT,
    decode,
    line_numbers,
    user_agent_lines,
)
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut

#: An "error" means nothing or not what it seems; a "note" is as it should be, but easily overseen.
Level = Literal["error", "note"]

_HTML: Final = re.compile(rb"\s*+<(?:!doctype|!--|html|head|body|\?xml)", re.IGNORECASE)
_BLANK: Final = re.compile(f"[{BLANKS}]")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_UTF8_BOM: Final = b"\xef\xbb\xbf"
#: The keys that count, in lower case, as they are spelled in their documents.
_KEYS: Final = (
    "user-agent", "allow", "disallow", "sitemap", "crawl-delay", "request-rate", "visit-time",
    "robot-version", "comment",
)  # fmt: skip
_SITEMAPS: Final = ("sitemap", "sitemaps", "site-map")
#: Keys that some crawler reads or once read.
_FOREIGN: Final = {
    "noindex": "no search engine reads it in robots.txt; use a robots meta tag or X-Robots-Tag",
    "nofollow": "no search engine reads it in robots.txt; use a robots meta tag or X-Robots-Tag",
    "host": "no crawler reads it any more; redirect to the host that you prefer",
    "clean-param": "only Yandex reads it",
}
#: For a key that is not misspelled: other records are allowed (RFC 9309 2.2.4).
_UNKNOWN: Final = "is not of RFC 9309; a crawler may ignore it"
_SOUND_VALUES: Final = {
    "crawl-delay": "a number of seconds, such as 10",
    "request-rate": "documents per time, such as 1/10s",
    "visit-time": "two times of day in UTC, such as 0600-0845",
}
_ROBOT_VERSION: Final = re.compile(r"[12](?:\.[0-9]+)*")
_SHOWN: Final = 60


class Remark(NamedTuple):
    """One thing that the author of a robots.txt should know."""

    line: int | None  #: from 1; None for the whole file
    level: Level
    text: str  #: a sentence, printable


def lint(body: bytes) -> tuple[Remark, ...]:
    """Return the remarks about a file, by line. Never raises.

    A file that is not text gets one remark, about that.
    """
    if body.startswith(_UTF16):
        return (Remark(None, "error", "the file is UTF-16; crawlers read UTF-8 and find nothing"),)
    if _HTML.match(body.removeprefix(_UTF8_BOM)):
        return (Remark(None, "error", "this is a page of HTML or XML, no robots.txt"),)
    text = decode(body)
    found = [*_of_file(body, text), *_of_lines(text), *_of_groups(text)]
    return tuple(sorted(found, key=lambda finding: finding.line or 0))


def _of_file(body: bytes, text: str) -> Iterator[Remark]:
    if not text.strip(f"{BLANKS}\n"):
        yield Remark(None, "note", "the file is empty: everything is allowed")
    if len(body) > MAX_OCTETS:
        last = text.count("\n")
        yield Remark(
            None,
            "error",
            f"of {len(body):,} bytes only 500 KiB are read, which end with line {last}",
        )
    try:
        text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError as error:
        line = next(line_numbers(text, [error.start]))
        yield Remark(line, "error", "this is not UTF-8, so a path with it matches other URLs")


def _of_lines(text: str) -> Iterator[Remark]:
    in_group = False
    for number, line in enumerate(text[1:].split("\n"), 1):
        content = line.partition("#")[0].strip(BLANKS)
        if not content:
            continue
        found = f"\n{content}"
        if agent := USER_AGENT.match(found):
            in_group = True
            sentences = _of_user_agent(agent[1], content, agent.start(1) - 1)
        elif rule := RULE.match(found):
            sentences = _of_rule(rule[2], content, rule.start(2) - 1, in_group=in_group)
        elif other := OTHER.match(found):
            sentences = _of_other(other[1], other[2], content, in_group=in_group)
        else:
            sentences = _of_unknown(content)
        for sentence in sentences:
            yield Remark(number, "note" if sentence.endswith(_UNKNOWN) else "error", sentence)


def _of_user_agent(name: str, content: str, start: int) -> Iterator[str]:
    yield from _of_key(content[:start], "user-agent")
    value = content[start:].strip(BLANKS)
    if not name:
        yield f"{_quote(value)} names no bot; a name has letters, '-' and '_', or is '*' alone"
    elif name != value and value[len(name)] != "/":  # a version has no meaning
        yield (
            f"{_quote(value)} is read as {_quote(name)} by RFC 9309, where a name has letters, '-' "
            "and '_' only; the bot itself may read all of it"
        )


def _of_rule(path: str, content: str, start: int, *, in_group: bool) -> Iterator[str]:
    key = _key(content[:start])
    yield from _of_key(content[:start], "allow" if key.startswith("a") else "disallow")
    if not in_group:
        yield f"{_quote(content)} stands before any User-agent line, so it counts for nobody"
    path = path.strip(BLANKS)
    if host_of(path) and "://" in path:
        yield f"{_quote(path)} is a URL; a rule takes a path, which begins with '/'"
    elif path and path[0] not in "/*":
        yield f"{_quote(path)} does not begin with '/' or '*', so it matches nothing"


def _of_other(key: str, value: str, content: str, *, in_group: bool) -> Iterator[str]:
    name = key.lower().replace(" ", "-")
    name = next((each for each in _KEYS if each.replace("-", "") == name.replace("-", "")), name)
    value = value.strip(BLANKS)
    if not in_group:
        yield f"{_quote(content)} stands before any User-agent line, so it counts for nobody"
    if is_malformed(name.replace("-", ""), value):
        yield f"the value {_quote(value)} is ignored; {name} takes {_SOUND_VALUES[name]}"
    if name == "robot-version" and not _ROBOT_VERSION.fullmatch(value):
        yield f"the value {_quote(value)} is ignored; there are Robot-version 1.0 and 2.0"


def _of_unknown(content: str) -> Iterator[str]:
    key, colon, value = content.partition(":")
    name = key.strip(BLANKS).lower()
    value = value.strip(BLANKS)
    if not colon:
        yield f"{_quote(content)} has no colon, so it is not a record{_hint(_BLANK.split(name)[0])}"
    elif name in _SITEMAPS:
        if not (value.lower().startswith(("http://", "https://")) and host_of(value)):
            yield f"{_quote(value)} is not a full URL, which a sitemap needs"
    elif name in _FOREIGN:
        yield f"{_quote(key)} is not of RFC 9309: {_FOREIGN[name]}"
    elif name not in _KEYS:
        yield f"{_quote(key)} {_UNKNOWN}{_hint(name)}"


@lru_cache(maxsize=256)
def _hint(key: str) -> str:
    near = difflib.get_close_matches(key[:_SHOWN], _KEYS, n=1, cutoff=0.75)
    return f"; did you mean '{near[0]}:'?" if near else ""


def _of_key(written: str, meant: str) -> Iterator[str]:
    """Yield the problems of the part of a line before its value."""
    key = _key(written)
    if key != meant:
        yield f"{_quote(key)} is read as {meant!r} by us and by Google; other bots ignore it"
    if ":" not in written:
        yield f"the colon after {_quote(key)} is missing; we and Google read it, other bots may not"


def _key(written: str) -> str:
    return written.rstrip(f"{BLANKS}:").lower()


def _of_groups(text: str) -> Iterator[Remark]:
    agents = user_agent_lines(text)
    numbers = line_numbers(text, [agent.offset for agent in agents])
    for number, agent in zip(numbers, agents, strict=True):
        # many a generator writes an empty group of all for "everything is allowed"
        if agent.name not in ("", "*") and not agent.rules[1] and not agent.others[1]:
            yield Remark(
                number, "error", f"no rule follows, so {_quote(agent.name)} may fetch everything"
            )


def _quote(text: str) -> str:
    """Return a part of a line as its author wrote it; a control character is escaped."""
    return repr(cut(text.strip(BLANKS).encode("latin-1").decode("utf-8", "replace"), _SHOWN))
