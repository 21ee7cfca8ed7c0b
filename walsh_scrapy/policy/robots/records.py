"""Records, User-agent lines and groups: a robots.txt from bytes to keys and values.

RFC 9309 2.2, 2.2.1, 2.2.4 and 2.5; R2, decisions 8, 9 and 11. The text of a file is a string in
which each character is one octet (latin-1) and each line begins with a line feed. An offset is an
index into that string. Line numbers are counted only when a caller asks for them, since most
verdicts need none.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from walsh_scrapy.policy.wording import cut, printable

#: How many octets of a file are read (RFC 9309 2.5, decision 11).
MAX_OCTETS: Final = 500 * 1024

#: Characters of a record that are shown in a reason or a warning.
LONGEST_RECORD: Final = 200
#: A part of the text: the offset of its start, and of its end.
Span = tuple[int, int]

_BOM: Final = b"\xef\xbb\xbf"
BLANKS: Final = " \t\v\f"
_BLANK: Final = r"[ \t\v\f]"
# A missing colon is accepted only before a single word, so that prose is not read as a record.
_SEPARATOR: Final = (
    rf"(?:{_BLANK}*+:{_BLANK}*+|{_BLANK}++(?=[^ \t\v\f#\n]++{_BLANK}*+(?:[#\n]|\Z)))"
)


def _record(key: str, value: str) -> re.Pattern[str]:
    """Return the pattern of a line with this key, up to its comment."""
    return re.compile(rf"\n{_BLANK}*+{key}{_SEPARATOR}{value}", re.IGNORECASE | re.ASCII)


# The misspelled keys are those that Google's parser accepts. It also accepts keys with further
# letters at their end (`disallowed`, `user-agents`).
_DISALLOW: Final = "disallow|dissallow|dissalow|disalow|diasllow|disallaw"
_OTHERS: Final = (
    "(?=[crv])(crawl[- ]?delay|request[- ]?rate|visit[- ]?time|robot[- ]?version|comment)"
)
_VALUE: Final = r"([^\n#]*+)"
#: A User-agent line. Its value ends at the first character that a product token cannot have
#: (decision 8); "*" has to stand alone.
USER_AGENT: Final = _record("user[- ]?agent[a-z]*+", r"(\*(?![^ \t\v\f#\n])|[a-z_-]*+)[^\n]*+")
#: An Allow or Disallow record: its key, "" for Disallow, and its path.
RULE: Final = _record(f"(?:(allow)|(?=d)(?:{_DISALLOW}))[a-z]*+", _VALUE)
#: Another record of a group (RFC 9309 2.2.4): its key and its value.
OTHER: Final = _record(_OTHERS, _VALUE)
_SITEMAP: Final = _record("(?:sitemaps?|site-map)", _VALUE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def decode(body: bytes) -> str:
    """Return the text of a file: at most 500 KiB, without a BOM or an incomplete last line.

    Lines end at CR, LF or CRLF only (RFC 9309 2.2): U+2028 or NEL are part of a value.
    """
    read = body[:MAX_OCTETS]
    if len(body) > MAX_OCTETS and body[MAX_OCTETS] not in b"\r\n":
        read = read[: max(read.rfind(b"\n"), read.rfind(b"\r")) + 1]
    for length in (3, 2, 1):  # an incomplete BOM is not part of the first key either
        if read.startswith(_BOM[:length]):
            read = read[length:]
            break
    return "\n" + read.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")


def rules_in(text: str, spans: Iterable[Span]) -> list[tuple[str, str]]:
    """Return the Allow and Disallow records as (key, path); the key is "" for Disallow."""
    return RULE.findall("".join([text[start:end] for start, end in spans]))


def rule_offsets(text: str, spans: Iterable[Span]) -> Iterator[int]:
    """Yield the offset of each record that `rules_in` returns."""
    return (rule.start() for span in spans for rule in RULE.finditer(text, *span))


def others_in(text: str, spans: Iterable[Span]) -> dict[str, list[str]]:
    """Return the values of the other records by key: `crawldelay`, `visittime` and so on."""
    values: dict[str, list[str]] = {}
    for key, value in OTHER.findall("".join([text[start:end] for start, end in spans])):
        values.setdefault(_key(key), []).append(value.strip(BLANKS))
    return values


def other_offsets(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and offset of each record that `others_in` returns."""
    for span in spans:
        for found in OTHER.finditer(text, *span):
            yield _key(found[1]), found[2].strip(BLANKS), found.start()


@lru_cache(maxsize=256)
def _key(written: str) -> str:
    return written.lower().replace("-", "").replace(" ", "")


def sitemap_values(text: str) -> tuple[str, ...]:
    """Return the values of the Sitemap records, which belong to no group (RFC 9309 2.2.4)."""
    return tuple(filter(None, map(readable, _SITEMAP.findall(text))))


def readable(value: str) -> str:
    """Return a value for people to read: decoded from UTF-8, without control characters."""
    if value.isascii() and value.isprintable():
        return value.strip()
    octets = value.encode("latin-1")
    return _CONTROL.sub("", octets.decode("utf-8", "replace")).strip()


def line_numbers(text: str, offsets: Iterable[int]) -> Iterator[int]:
    """Yield the line number, from 1, of each offset. The offsets have to ascend."""
    line, seen = 1, 1
    for offset in offsets:
        line += text.count("\n", seen, offset + 1)
        seen = max(seen, offset + 1)
        yield line


def record_at(text: str, offset: int) -> str:
    """Return the record at an offset as the site wrote it, without its comment, to be shown.

    A long record is cut to `LONGEST_RECORD` characters.
    """
    end = text.find("\n", offset + 1)
    line = text[offset + 1 : end if end >= 0 else len(text)]
    return cut(printable(readable(line.partition("#")[0])), LONGEST_RECORD)


_TOKEN: Final = re.compile(r"([A-Za-z_-]+)\S*")
_COMPATIBLE: Final = re.compile(r"\bcompatible;\s*([A-Za-z_-]+)")
_FIRST_PRODUCT: Final = re.compile(r"\s*([A-Za-z_-]+)")
#: Browsers, and crawlers that look like one, begin with this; it names nobody.
_NOBODY: Final = "mozilla"
_EMPTY: Final[Span] = (0, 0)


class UserAgentLine(NamedTuple):
    """A User-agent line, and the parts of the text that hold the records of its group."""

    name: str  #: in lower case, cut as decision 8 says; "" if it names no bot
    offset: int
    others: Span  #: Crawl-delay, Request-rate, Visit-time, Comment and Robot-version
    rules: Span  #: Allow and Disallow


def user_agent_lines(text: str) -> tuple[UserAgentLine, ...]:
    """Return all User-agent lines in order, with the spans of their groups' records (decision 9).

    Consecutive User-agent lines share the records that follow. Allow and Disallow end such a list
    of lines; the other records end it only for other records. The text is read backwards, because
    a line's records come after it.
    """
    lines = []
    rules = others = _EMPTY
    end = len(text)
    for found in reversed(list(USER_AGENT.finditer(text))):
        start, following = found.start(), (found.end(), end)
        if following[0] < end and RULE.search(text, *following):
            rules = others = following
        elif following[0] < end and OTHER.search(text, *following):
            others = following
        lines.append(UserAgentLine(found[1].lower(), start, others, rules))
        end = start
    return tuple(reversed(lines))


def product_token(name: str) -> str:
    """Return a bot's product token in lower case, as it is compared with User-agent lines.

    It is cut at the first character that a token cannot have (`Bot/1.0`, `bot2`; decision 8). A
    name with a blank in it is not a token: "" is returned.

    >>> product_token("Walsh-Research/1.0")
    'walsh-research'
    """
    found = _TOKEN.fullmatch(name)
    return found[1].lower() if found else ""


def token_of(user_agent: str) -> str | None:
    """Return the token by which a User-Agent names its crawler, or None if it names none.

    It is the name after ``compatible;``, as many crawlers write it, or else the first product.
    """
    found = _COMPATIBLE.search(user_agent) or _FIRST_PRODUCT.match(user_agent)
    if found is None or found[1].lower() == _NOBODY:
        return None
    return found[1]


def most_specific_name(names: set[str], token: str) -> str | None:
    """Return the longest of the names that match a product token; None if none does.

    The token `walsh-research` is matched by itself, `walsh-` and `walsh` (decision 8).
    """
    ends = [
        end
        for end in range(len(token), 0, -1)
        if "-" in token[end - 1 : end + 1] or end == len(token)
    ]
    return next((token[:end] for end in ends if token[:end] in names), None)


def distinct(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return each span once, without empty ones: stacked User-agent lines share their spans."""
    return tuple([span for span in dict.fromkeys(spans) if span[1]])
