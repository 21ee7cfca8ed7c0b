"""robots.txt from bytes to records and groups (RFC 9309 2.1 to 2.2.1, R2, decisions 8, 9 and 11).

Text is one character an octet here (latin-1), every line begins with a line feed, and a place is
an offset into that text; line numbers are counted only for whoever asks.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

#: What is read of a file, in octets (RFC 9309 2.5, decision 11).
MAX_OCTETS: Final = 500 * 1024

_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = r"[ \t\v\f]"
BLANKS: Final = " \t\v\f"
# A forgotten colon counts only before a single word, so that prose never becomes a record.
_SEPARATOR: Final = (
    rf"(?:{_BLANK}*+:{_BLANK}*+|{_BLANK}++(?=[^ \t\v\f#\n]++{_BLANK}*+(?:[#\n]|\Z)))"
)


def _record(key: str, value: str) -> re.Pattern[str]:
    """Return the pattern of a line of this key, up to its comment."""
    return re.compile(rf"\n{_BLANK}*+{key}{_SEPARATOR}{value}", re.IGNORECASE | re.ASCII)


# The slips in the keys are those that Google's parser accepts; it also takes a key for one of these
# that goes on with letters (`disallowed`, `user-agents`).
_DISALLOW: Final = "disallow|dissallow|dissalow|disalow|diasllow|disallaw"
_OTHERS: Final = (
    "(?=[crv])(crawl[- ]?delay|request[- ]?rate|visit[- ]?time|robot[- ]?version|comment)"
)
_VALUE: Final = r"([^\n#]*+)"
# Decision 8: the value ends at the first character that no product token has; "*" stands alone.
_AGENT: Final = _record("user[- ]?agent[a-z]*+", r"(\*(?![^ \t\v\f#\n])|[a-z_-]*+)[^\n]*+")
_RULE: Final = _record(f"(?:(allow)|(?=d)(?:{_DISALLOW}))[a-z]*+", _VALUE)
_OTHER: Final = _record(_OTHERS, _VALUE)
_SITEMAP: Final = _record("(?:sitemaps?|site-map)", _VALUE)
_TOKEN: Final = re.compile(r"([A-Za-z_-]+)\S*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

#: Where in the text: from this offset, up to that one.
Span = tuple[int, int]
_NOWHERE: Final[Span] = (0, 0)


class Agent(NamedTuple):
    """A User-agent record: its name as decision 8 cuts it, and where its group has its records."""

    name: str
    start: int
    others: Span
    rules: Span


def token_of(name: str) -> str:
    """Return a bot's product token as names are compared with it.

    It is cut as decision 8 says (`Bot/1.0`, `bot2`); a name with a blank in it is no token.
    """
    found = _TOKEN.fullmatch(name)
    return found[1].lower() if found else ""


def text_of(body: bytes) -> str:
    """Return at most 500 KiB of `body` as lines, without its BOM or a line cut in two.

    Lines end at CR, LF or CRLF only (RFC 9309 2.2): U+2028 or NEL are part of a value.
    """
    read = body[:MAX_OCTETS]
    if len(body) > MAX_OCTETS and body[MAX_OCTETS] not in b"\r\n":
        read = read[: max(read.rfind(b"\n"), read.rfind(b"\r")) + 1]
    for length in (3, 2, 1):  # a BOM that lost its end is no part of a key either
        if read.startswith(_BOM[:length]):
            read = read[length:]
            break
    return "\n" + read.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")


def agents_of(text: str) -> tuple[Agent, ...]:
    """Return every User-agent record in order, with the places of its group's records (decision 9).

    Read backwards, since a record belongs to all User-agent lines stacked above it. Allow and
    Disallow end a stack; the other records end it for each other.
    """
    agents = []
    rules = others = _NOWHERE
    end = len(text)
    for found in reversed(list(_AGENT.finditer(text))):
        start, gap = found.start(), (found.end(), end)
        if gap[0] < end and _RULE.search(text, *gap):
            rules = others = gap
        elif gap[0] < end and _OTHER.search(text, *gap):
            others = gap
        agents.append(Agent(found[1].lower(), start, others, rules))
        end = start
    return tuple(reversed(agents))


def rules_in(text: str, spans: Iterable[Span]) -> list[tuple[str, str]]:
    """Return the Allow and Disallow records: the key (empty for Disallow) and the path."""
    return _RULE.findall("".join([text[start:end] for start, end in spans]))


def rule_starts(text: str, spans: Iterable[Span]) -> Iterator[int]:
    """Yield where each record that `rules_in` returns stands."""
    return (rule.start() for span in spans for rule in _RULE.finditer(text, *span))


def others_in(text: str, spans: Iterable[Span]) -> dict[str, list[str]]:
    """Return the values of the other records by key: `crawldelay`, `visittime` and so on."""
    values: dict[str, list[str]] = {}
    for key, value in _OTHER.findall("".join([text[start:end] for start, end in spans])):
        values.setdefault(_key(key), []).append(value.strip(BLANKS))
    return values


def other_starts(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and place of each record that `others_in` returns."""
    for span in spans:
        for found in _OTHER.finditer(text, *span):
            yield _key(found[1]), found[2].strip(BLANKS), found.start()


@lru_cache(maxsize=256)
def _key(written: str) -> str:
    return written.lower().replace("-", "").replace(" ", "")


def sitemaps_in(text: str) -> tuple[str, ...]:
    """Return the Sitemap values, which belong to no group (RFC 9309 2.2.4)."""
    return tuple(filter(None, map(readable, _SITEMAP.findall(text))))


def readable(value: str) -> str:
    """Return a value as people read it: UTF-8, without control characters."""
    if value.isascii() and value.isprintable():
        return value.strip()
    octets = value.encode("latin-1")
    return _CONTROL.sub("", octets.decode("utf-8", "replace")).strip()


def line_numbers(text: str, starts: Iterable[int]) -> Iterator[int]:
    """Yield the line number, from 1, of each offset; the offsets must ascend."""
    line, seen = 1, 1
    for start in starts:
        line += text.count("\n", seen, start + 1)
        seen = max(seen, start + 1)
        yield line


def record_at(text: str, start: int) -> str:
    """Return the record at this offset as it is written, without its comment."""
    end = text.find("\n", start + 1)
    line = text[start + 1 : end if end >= 0 else len(text)]
    return readable(line.partition("#")[0])
