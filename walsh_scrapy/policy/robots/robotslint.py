"""Finds lines of a robots.txt without a meaning, or with a surprising one, for its author.

    body -> findings about the file, its lines and its groups

The linter reads the file with the patterns of `robotstxt`, so its findings are true of a crawl too.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from walsh_scrapy.policy.robots.robotstxt import (
    BLANKS,
    MAX_OCTETS,
    ODD_EDGES,
    OTHER,
    RULE,
    SITEMAP,
    USER_AGENT,
    decode,
    line_numbers,
    user_agent_lines,
)
from walsh_scrapy.policy.robots.rules import is_malformed
from walsh_scrapy.policy.robots.whitespace import MAX_LINES, has_odd_edges, strip
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut

#: "error": some crawler ignores or misreads the line. "note": the line is right, but surprising.
Severity = Literal["error", "note"]

_HTML: Final = re.compile(rb"\s*+<(?:!doctype|!--|html|head|body|\?xml)", re.IGNORECASE)
_BLANKS: Final = re.compile(f"[{BLANKS}]+")
_NO_LETTER: Final = re.compile("[^a-z]+")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_UTF8_BOM: Final = b"\xef\xbb\xbf"
#: The known fields in their official spelling, by their letters in lower case.
_FIELDS: Final = {
    _NO_LETTER.sub("", name.lower()): name
    for name in (
        "User-agent", "Allow", "Disallow", "Sitemap", "Crawl-delay", "Request-rate", "Visit-time",
        "Robot-version", "Comment",
    )
}  # fmt: skip
#: The minimum similarity (`difflib`) of an unknown field to a known one: `Disalow`, but not `Deny`.
_MIN_SIMILARITY: Final = 0.75
#: A field and its colon, which is not the colon of a URL.
_FIELD: Final = re.compile(r"([^:]*):(?!//)")
#: Google accepts other spellings of these fields, and a missing colon, and so does this tool.
_FIELDS_OF_GOOGLE: Final = ("User-agent", "Allow", "Disallow", "Sitemap")
_ACCEPTED: Final = "Google and this tool accept it, others may not"
#: Fields that some crawler reads, or used to read.
_FOREIGN: Final = {
    "noindex": "no search engine reads it in robots.txt; use a robots meta tag or X-Robots-Tag",
    "nofollow": "no search engine reads it in robots.txt; use a robots meta tag or X-Robots-Tag",
    "host": "no crawler reads it any more; redirect to the host that you prefer",
    "clean-param": "only Yandex reads it",
}
_VALUE_FORMATS: Final = {
    "Crawl-delay": "a number of seconds, such as 10",
    "Request-rate": "documents per time, such as 1/10s",
    "Visit-time": "two times of day in UTC, such as 0600-0845",
}
_ROBOT_VERSION: Final = re.compile(r"[12](?:\.[0-9]+)*")
_MAX_QUOTED: Final = 60  # characters


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact that the author of a robots.txt should know."""

    line: int | None  #: the line number, from 1; None for the whole file
    severity: Severity
    text: str  #: a printable sentence


def lint(body: bytes) -> tuple[Finding, ...]:
    """Return the findings about a file, in the order of its lines. Never raises.

    A UTF-16 file, an HTML page and an XML document get that one finding.
    """
    if body.startswith(_UTF16):
        text = "the file is UTF-16; crawlers read UTF-8 and see no rule in it"
        return (Finding(None, "error", text),)
    if page := _HTML.match(body.removeprefix(_UTF8_BOM)):
        kind = "an XML document" if page[0].endswith(b"?xml") else "an HTML page"
        return (Finding(None, "error", f"this is {kind}, not a robots.txt"),)
    text = decode(body)
    findings = [*_check_file(body, text), *_check_lines(text), *_check_groups(text)]
    return tuple(sorted(findings, key=lambda finding: finding.line or 0))


def _check_file(body: bytes, text: str) -> Iterator[Finding]:
    if not text.strip(f"{BLANKS}\n"):
        yield Finding(None, "note", "the file is empty: everything is allowed")
    if len(body) > MAX_OCTETS:
        last = text.count("\n")
        yield Finding(
            None,
            "error",
            f"of {len(body):,} bytes only 500 KiB are read, which end with line {last}",
        )
    try:
        text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError as error:
        line = next(line_numbers(text, [error.start]))
        yield Finding(line, "error", "this is not UTF-8, so a path with it matches other URLs")
    if not strip(text).is_complete:
        yield Finding(
            None,
            "error",
            f"more than {MAX_LINES:,} lines have white space other than spaces and tabs, so this "
            "tool denies every URL; write spaces",
        )


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    content: str  #: without comment, and without blanks around it
    in_group: bool  #: there is a User-agent line above

    def error(self, text: str) -> Finding:
        return Finding(self.number, "error", text)

    def note(self, text: str) -> Finding:
        return Finding(self.number, "note", text)


def _check_lines(text: str) -> Iterator[Finding]:
    in_group = False
    for number, raw in enumerate(text[1:].split("\n"), 1):
        content = raw.partition("#")[0].strip(BLANKS)
        if not content:
            continue
        line = _Line(number, content, in_group)
        record = f"\n{content}"
        if agent := USER_AGENT.match(record):
            in_group = True
            yield from _check_user_agent(line, agent[1], agent.start(1) - 1)
        elif rule := RULE.match(record):
            yield from _check_rule(line, rule[2], rule.start(2) - 1)
        elif other := OTHER.match(record):
            yield from _check_other(line, other[2], other.start(2) - 1)
        elif sitemap := SITEMAP.match(record):
            yield from _check_sitemap(line, sitemap[1], sitemap.start(1) - 1)
        else:
            yield from _check_rest(line)


def _check_user_agent(line: _Line, name: str, start: int) -> Iterator[Finding]:
    yield from _check_field(line, start, "User-agent")
    value = line.content[start:].strip(BLANKS)
    if not name:
        yield line.error(
            f"{_quote(value)} names no bot; a name has letters, '-' and '_', or is '*' alone"
        )
    elif name != value and value[len(name)] != "/":  # a version is harmless
        yield line.error(
            f"{_quote(value)} is read as {_quote(name)} by RFC 9309, where a name has letters, '-' "
            "and '_' only; the bot itself may read all of it"
        )


def _check_rule(line: _Line, path: str, start: int) -> Iterator[Finding]:
    yield from _check_field(line, start, "Allow" if line.content[0] in "aA" else "Disallow")
    yield from _check_place(line)
    path = path.strip(BLANKS)
    if host_of(path) and "://" in path:
        yield line.error(f"{_quote(path)} is a URL; a rule takes a path, which begins with '/'")
    elif path and path[0] not in "/*":
        yield line.error(f"{_quote(path)} does not begin with '/' or '*', so it matches nothing")
    elif has_odd_edges(path):
        yield line.error(f"{_quote(path)} {ODD_EDGES}")


def _check_other(line: _Line, value: str, start: int) -> Iterator[Finding]:
    letters = _letters(line.content[:start])
    field = _FIELDS[letters]
    yield from _check_field(line, start, field)
    yield from _check_place(line)
    value = value.strip(BLANKS)
    if is_malformed(letters, value):
        text = f"the value {_quote(value)} is ignored; {field} takes {_VALUE_FORMATS[field]}"
        yield line.error(text)
    if field == "Robot-version" and not _ROBOT_VERSION.fullmatch(value):
        yield line.error(f"the value {_quote(value)} is ignored; use Robot-version 1.0 or 2.0")


def _check_sitemap(line: _Line, value: str, start: int) -> Iterator[Finding]:
    yield from _check_field(line, start, "Sitemap")
    url = value.strip(BLANKS)
    if not (url.lower().startswith(("http://", "https://")) and host_of(url)):
        yield line.error(f"{_quote(url)} is not a full URL, which a sitemap needs")


def _check_rest(line: _Line) -> Iterator[Finding]:
    """Check a line that this tool ignores."""
    record = _FIELD.match(line.content)
    if record is None:
        words = _BLANKS.split(line.content)
        near = _nearest_field("".join(words[:2])) or _nearest_field(words[0])
        hint = f"; did you mean '{near}:'?" if near else ""
        yield line.error(f"{_quote(line.content)} has no colon, so it is not a record{hint}")
        return
    field = record[1].strip(BLANKS)
    name = field.lower()
    if name in _FOREIGN:
        yield line.error(f"{_quote(field)} is not an RFC 9309 field: {_FOREIGN[name]}")
    elif near := _nearest_field(name):
        yield line.error(f"unknown field {_quote(field)}; did you mean {near}?")
    else:  # RFC 9309 2.2.4 allows other records
        yield line.note(f"{_quote(field)} is not an RFC 9309 field; crawlers may ignore it")


def _check_field(line: _Line, start: int, field: str) -> Iterator[Finding]:
    """Check the spelling of a field that this tool reads, and its colon."""
    written = line.content[:start]
    name = written.rstrip(f"{BLANKS}:")
    remark = f" ({_ACCEPTED})" if field in _FIELDS_OF_GOOGLE else ""
    if name.lower() != field.lower():
        yield line.error(f"unknown field {_quote(name)}; did you mean {field}?{remark}")
    if ":" not in written:
        yield line.error(f"missing ':' after {_quote(name)}{remark}")


def _check_place(line: _Line) -> Iterator[Finding]:
    if not line.in_group:
        yield line.error(
            f"{_quote(line.content)} stands before any User-agent line, so it applies to no bot"
        )


def _letters(name: str) -> str:
    return _NO_LETTER.sub("", name.lower())


@lru_cache(maxsize=256)
def _nearest_field(name: str) -> str | None:
    """Return the known field with the most similar letters, or None."""
    letters = _letters(name[:_MAX_QUOTED])
    near = difflib.get_close_matches(letters, _FIELDS, n=1, cutoff=_MIN_SIMILARITY)
    return _FIELDS[near[0]] if near else None


def _check_groups(text: str) -> Iterator[Finding]:
    agents = user_agent_lines(text)
    numbers = line_numbers(text, [agent.offset for agent in agents])
    for number, agent in zip(numbers, agents, strict=True):
        # Not for "*": many generators write an empty group for "everything is allowed".
        if agent.name not in ("", "*") and not agent.rules[1] and not agent.others[1]:
            yield Finding(
                number, "error", f"no rule follows, so {_quote(agent.name)} may fetch everything"
            )


def _quote(text: str) -> str:
    """Return a part of a line in quotes, with control characters escaped."""
    return repr(cut(text.strip(BLANKS).encode("latin-1").decode("utf-8", "replace"), _MAX_QUOTED))
