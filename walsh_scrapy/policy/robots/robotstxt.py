r"""A robots.txt file, and the rules for one bot in it (R2; RFC 9309 2.2; decisions 8 to 13).

>>> robots = RobotsTxt.parse(b"User-agent: *\nDisallow: /private\nCrawl-delay: 2\n")
>>> rules = robots.rules_for("Walsh-Research")
>>> rules.verdict("https://example.com/feed.xml").allowed
True
>>> rules.verdict("https://example.com/private/1").rule
'Disallow: /private'
>>> rules.crawl_delay
2.0

No file, URL or token raises an exception here. A hostile file can be slow to read, so the cost of
one verdict is bounded; a URL whose verdict would cost more is denied.

The text of a file is a string in which each character is one octet (latin-1) and each line begins
with a line feed. An offset is an index into that string. Line numbers are counted only when a
caller needs them, since most verdicts need none.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from walsh_scrapy.policy.robots.extended import (
    OrderedRules,
    RequestRate,
    Window,
    is_malformed,
    is_version_2,
    next_opening,
    parse_crawl_delay,
    parse_request_rate,
    parse_visit_time,
    slowest,
)
from walsh_scrapy.policy.robots.matching import (
    UNDECIDED,
    PathRules,
    Target,
    denies,
    index_of,
    target_of,
)
from walsh_scrapy.policy.wording import and_more, cut, for_others, printable

#: Octets of a file that are read (RFC 9309 2.5, decision 11).
MAX_OCTETS: Final = 500 * 1024

#: Characters of a record that are shown in a reason or a warning.
_LONGEST_RECORD: Final = 200
#: A part of the text: the offset of its start, and of its end.
Span = tuple[int, int]
#: Comment lines of one bot's groups that are shown to the operator; the others are counted.
_MOST_COMMENTS: Final = 5
#: Characters of a Comment that are shown.
_LONGEST_COMMENT: Final = 200
#: Warnings about one bot's groups of a file; further ones are counted.
_MOST_WARNINGS: Final = 5

_BOM: Final = b"\xef\xbb\xbf"
_BOMS_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
BLANKS: Final = " \t\v\f"
_BLANK: Final = r"[ \t\v\f]"
# A missing colon is accepted only before a single word, so that prose is not read as a record.
_SEPARATOR: Final = (
    rf"(?:{_BLANK}*+:(?:{_BLANK}|\xc2?\xa0)*+|{_BLANK}++(?=[^ \t\v\f#\n]++{_BLANK}*+(?:[#\n]|\Z)))"
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
#: (decision 8); "*" must stand alone.
USER_AGENT: Final = _record("user[- ]?agent[a-z]*+", r"(\*(?![^ \t\v\f#\n])|[a-z_-]*+)[^\n]*+")
#: An Allow or Disallow record: its key, "" for Disallow, and its path.
RULE: Final = _record(f"(?:(allow)|(?=d)(?:{_DISALLOW}))[a-z]*+", _VALUE)
#: Another record of a group (RFC 9309 2.2.4): its key and its value.
OTHER: Final = _record(_OTHERS, _VALUE)
#: A Sitemap record, which belongs to no group: its value.
SITEMAP: Final = _record("(?:sitemaps?|site-map)", _VALUE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def decode(body: bytes) -> str:
    """Return the text of a file: at most 500 KiB, without a BOM or an incomplete last line.

    Lines end at CR, LF or CRLF only (RFC 9309 2.2): U+2028 or NEL are part of a value. A file is
    UTF-8, or UTF-16 if it begins with the BOM of that.
    """
    read = body[:MAX_OCTETS]
    is_utf_16 = read.startswith(_BOMS_UTF_16)
    if is_utf_16:
        read = read.decode("utf-16", "replace").encode()
    if len(body) > MAX_OCTETS and (is_utf_16 or body[MAX_OCTETS] not in b"\r\n"):
        read = read[: max(read.rfind(b"\n"), read.rfind(b"\r")) + 1]
    for length in (3, 2, 1):  # an incomplete BOM is not part of the first key either
        if read.startswith(_BOM[:length]):
            read = read[length:]
            break
    return "\n" + read.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")


def _rules_in(text: str, spans: Iterable[Span]) -> list[tuple[str, str]]:
    """Return the Allow and Disallow records as (key, path); the key is "" for Disallow."""
    return RULE.findall("".join([text[start:end] for start, end in spans]))


def _rule_offsets(text: str, spans: Iterable[Span]) -> Iterator[int]:
    """Yield the offset of each record that `_rules_in` returns."""
    return (rule.start() for span in spans for rule in RULE.finditer(text, *span))


def _others_in(text: str, spans: Iterable[Span]) -> dict[str, list[str]]:
    """Return the values of the other records by key: `crawldelay`, `visittime` and so on."""
    values: dict[str, list[str]] = {}
    for key, value in OTHER.findall("".join([text[start:end] for start, end in spans])):
        values.setdefault(_key(key), []).append(value.strip(BLANKS))
    return values


def _other_offsets(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and offset of each record that `_others_in` returns."""
    for span in spans:
        for found in OTHER.finditer(text, *span):
            yield _key(found[1]), found[2].strip(BLANKS), found.start()


@lru_cache(maxsize=256)
def _key(written: str) -> str:
    return written.lower().replace("-", "").replace(" ", "")


def _sitemap_values(text: str) -> tuple[str, ...]:
    """Return the values of the Sitemap records, which belong to no group (RFC 9309 2.2.4)."""
    return tuple(filter(None, map(_readable, SITEMAP.findall(text))))


def _readable(value: str) -> str:
    """Return a value for people to read: decoded from UTF-8, without control characters."""
    if value.isascii() and value.isprintable():
        return value.strip()
    octets = value.encode("latin-1")
    return _CONTROL.sub("", octets.decode("utf-8", "replace")).strip()


def line_numbers(text: str, offsets: Iterable[int]) -> Iterator[int]:
    """Yield the line number, from 1, of each offset. The offsets must ascend."""
    line, seen = 1, 1
    for offset in offsets:
        line += text.count("\n", seen, offset + 1)
        seen = max(seen, offset + 1)
        yield line


def _record_at(text: str, offset: int) -> str:
    """Return the record at an offset as the site wrote it, without its comment, to be shown."""
    end = text.find("\n", offset + 1)
    line = text[offset + 1 : end if end >= 0 else len(text)]
    return cut(printable(_readable(line.partition("#")[0])), _LONGEST_RECORD)


_TOKEN: Final = re.compile(r"([A-Za-z_-]+)\S*")
_COMPATIBLE: Final = re.compile(r"\bcompatible;\s*([A-Za-z_-]+)")
_FIRST_PRODUCT: Final = re.compile(r"\s*([A-Za-z_-]+)")
#: Browsers, and crawlers that look like one, begin with this; it names nobody.
_NOBODY: Final = "mozilla"
_EMPTY: Final[Span] = (0, 0)


class UserAgentLine(NamedTuple):
    """A User-agent line, and the parts of the text that hold the records of its group."""

    name: str  #: in lower case, cut by decision 8; "" if it names no bot
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
    """Return the token with which a User-Agent names its crawler, or None without one.

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


def _distinct(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return each span once, without empty ones: stacked User-agent lines share their spans."""
    return tuple([span for span in dict.fromkeys(spans) if span[1]])


_Value = TypeVar("_Value")


class DecidingRecord(NamedTuple):
    """A record as the site wrote it, but cut if it is long, and its line from 1."""

    text: str | None
    line: int | None


_NO_RECORD: Final = DecidingRecord(None, None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a URL. The rule is looked up only when it is read."""

    allowed: bool
    #: True if the URL is denied because its verdict would cost too much time.
    undecided: bool = False
    _find_record: Callable[[], DecidingRecord] = field(
        default=lambda: _NO_RECORD, repr=False, compare=False
    )

    @property
    def rule(self) -> str | None:
        """The deciding record as the site wrote it, without its comment; None if there is none."""
        return self._find_record().text

    @property
    def line(self) -> int | None:
        """The line number of the deciding record, from 1; None if there is none."""
        return self._find_record().line


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules of a robots.txt for one bot: the records of the groups that match its token."""

    #: The name of the groups, in lower case, or "*"; None if no group is for this bot.
    group: str | None
    #: Seconds between two requests, the largest Crawl-delay (R4, decision 10); None if unset.
    crawl_delay: float | None
    #: The Comment values as they are shown to the crawler's operator (extended standard 2.0).
    comments: tuple[str, ...]
    _rates: tuple[RequestRate, ...] = field(repr=False)
    _visit_times: tuple[Window, ...] = field(repr=False)
    _paths: PathRules = field(repr=False)
    _ordered: OrderedRules | None = field(repr=False)
    _ordered_spans: tuple[Span, ...] = field(repr=False)
    _user_agents: tuple[UserAgentLine, ...] = field(repr=False)
    _text: str = field(repr=False)

    @classmethod
    def of(cls, text: str, user_agents: tuple[UserAgentLine, ...]) -> "Rules":
        """Read the records of these User-agent lines' groups, merged (RFC 9309 2.2.1)."""
        values = _others_in(text, _distinct([line.others for line in user_agents]))
        spans = _distinct([line.rules for line in user_agents])
        rules = _rules_in(text, spans)
        version_2 = _version_2_spans(text, user_agents) if "robotversion" in values else ()
        ordered = None
        if version_2:
            ordered = OrderedRules.of(rules if version_2 == spans else _rules_in(text, version_2))
        return cls(
            group=user_agents[0].name if user_agents else None,
            crawl_delay=max(_read(parse_crawl_delay, values.get("crawldelay", ())), default=None),
            comments=_printable_comments(values.get("comment", ())),
            _rates=_read(parse_request_rate, values.get("requestrate", ())),
            _visit_times=_read(parse_visit_time, values.get("visittime", ())),
            # A group with too many rules to read in order denies everything without them.
            _paths=PathRules.of([] if ordered and ordered.too_many else rules),
            _ordered=ordered,
            _ordered_spans=version_2,
            _user_agents=user_agents,
            _text=text,
        )

    def verdict(self, url: str) -> Verdict:
        """Return whether a full URL or a bare path may be fetched (RFC 9309 2.2.2).

        `/robots.txt` itself is always allowed. Never raises.
        """
        target = target_of(url)
        if target.path == "/robots.txt":
            return Verdict(allowed=True)
        rank = self._paths.rank(target)
        index = self._ordered.denying_rule(target) if self._ordered and not denies(rank) else None
        allowed = not denies(rank) and index is None
        undecided = UNDECIDED in (rank, index)
        return Verdict(allowed, undecided, partial(self._deciding_record, target, rank, index))

    def interval(self, at: datetime) -> float | None:
        """Return the seconds per document of Request-rate at the aware time `at`.

        It is the slowest of the rates in force then (decision 13), and does not include
        Crawl-delay. None if no rate is in force.
        """
        return slowest(self._rates, at)

    def opens(self, at: datetime) -> datetime:
        """Return the first moment, from the aware time `at` on, that Visit-time allows.

        It is in the time zone of `at`, and `at` itself without a Visit-time (decision 13).
        """
        return next_opening(self._visit_times, at)

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the User-agent lines of these groups, from 1."""
        return tuple(line_numbers(self._text, (line.offset for line in self._user_agents)))

    @property
    def warnings(self) -> tuple[tuple[int, str], ...]:
        """Line number and sentence for the records of these groups whose value is malformed.

        The last of `_MOST_WARNINGS` counts the others.
        """
        others = _other_offsets(self._text, _distinct([line.others for line in self._user_agents]))
        malformed = [offset for key, value, offset in others if is_malformed(key, value)]
        shown = malformed[:_MOST_WARNINGS]
        warnings = [
            (line, f"{_record_at(self._text, offset)!r} is not understood and ignored")
            for line, offset in zip(line_numbers(self._text, shown), shown, strict=True)
        ]
        if left := len(malformed) - len(shown):
            line, sentence = warnings[-1]
            warnings[-1] = line, f"{sentence} {and_more(left)}"
        return tuple(warnings)

    def _deciding_record(self, target: Target, rank: int, index: int | None) -> DecidingRecord:
        """Return the record with this rank, or with this index among the ordered rules."""
        if UNDECIDED in (rank, index) or (not rank and index is None):
            return _NO_RECORD
        spans = _distinct([line.rules for line in self._user_agents])
        if index is None:
            index = index_of(rank, target, _rules_in(self._text, spans))
        else:
            spans = self._ordered_spans
        offset = next(islice(_rule_offsets(self._text, spans), index, None))
        return DecidingRecord(
            _record_at(self._text, offset), next(line_numbers(self._text, [offset]))
        )


def _version_2_spans(text: str, user_agents: Iterable[UserAgentLine]) -> tuple[Span, ...]:
    """Return the spans of the rules of those groups that declare Robot-version 2.x."""
    version_2 = {
        span
        for span in _distinct([line.others for line in user_agents])
        if any(map(is_version_2, _others_in(text, [span]).get("robotversion", ())))
    }
    return _distinct([line.rules for line in user_agents if line.others in version_2])


def _read(parse: Callable[[str], _Value | None], values: Iterable[str]) -> tuple[_Value, ...]:
    return tuple([value for value in map(parse, values) if value is not None])


@dataclass(frozen=True, slots=True, eq=False)
class RobotsTxt:
    """A robots.txt file, split into groups."""

    _text: str = field(repr=False)
    _user_agents: tuple[UserAgentLine, ...] = field(repr=False)

    @classmethod
    def parse(cls, body: bytes) -> "RobotsTxt":
        """Read at most 500 KiB of a robots.txt (RFC 9309 2.2 and 2.5, decision 11).

        Lines that are not records are skipped. Never raises.
        """
        text = decode(body)
        return cls(text, user_agent_lines(text))

    def rules_for(self, token: str) -> Rules:
        """Return the rules for a bot's product token (R2, RFC 9309 2.2.1, decision 8).

        They are those of all groups with the longest name that matches `token`: the token itself,
        or a leading part of it up to a hyphen. If no name matches, they are those of all "*"
        groups. Without "*" groups everything is allowed.
        """
        names = {line.name for line in self._user_agents}
        name = most_specific_name(names, product_token(token)) or "*"
        return Rules.of(self._text, tuple(line for line in self._user_agents if line.name == name))

    @property
    def is_unusable(self) -> bool:
        """True if the file has text, and no line of it means anything."""
        return not (self._user_agents or self.sitemaps) and bool(self._text.strip())

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The Sitemap values of the whole file, in order, as written (RFC 9309 2.2.4)."""
        return _sitemap_values(self._text)


def _printable_comments(values: Sequence[str]) -> tuple[str, ...]:
    """Return the Comment values as they are shown, and last the number of the others, if any."""
    texts = (for_others(printable(_readable(value))) for value in values[:_MOST_COMMENTS])
    shown = [cut(text, _LONGEST_COMMENT) for text in texts]
    left = len(values) - len(shown)
    return (*shown, and_more(left)) if left else tuple(shown)
