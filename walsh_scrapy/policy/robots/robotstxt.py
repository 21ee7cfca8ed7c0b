r"""A robots.txt file, and its rules for one bot (R2; RFC 9309 2.2).

>>> robots = RobotsTxt.parse(b"User-agent: *\nDisallow: /private\nCrawl-delay: 2\n")
>>> rules = robots.rules_for("Walsh-Research")
>>> rules.verdict("https://example.com/feed.xml").allowed
True
>>> rules.verdict("https://example.com/private/1").rule
'Disallow: /private'
>>> rules.crawl_delay
2.0

Nothing here raises an exception, whatever the file, URL or token is. The cost of one verdict is
bounded, because a hostile file could make it slow; a URL whose verdict would cost more is denied.

The text of a file is a string in which each character is one octet (latin-1), and each line begins
with a line feed. An offset is an index into that string. Line numbers are counted only on demand,
because most verdicts need none.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, repeat
from typing import Final, NamedTuple, TypeVar

from walsh_scrapy.policy.robots.rules import (
    ALL_DAY,
    MAX_WORK,
    OrderedRules,
    Rule,
    RuleIndex,
    Target,
    TooCostlyError,
    WorkLimit,
    is_malformed,
    is_version_2,
    minute_of,
    minutes_closed,
    minutes_open,
    open_minutes,
    opening_after,
    parse_crawl_delay,
    parse_request_rate,
    parse_visit_time,
    slowest,
    target_of,
)
from walsh_scrapy.policy.robots.whitespace import MAX_LINES, SPACES_IN_ASCII, Span, strip
from walsh_scrapy.policy.wording import and_more, cut, for_others, printable

#: The maximum number of octets that are read (RFC 9309 2.5).
MAX_OCTETS: Final = 500 * 1024

#: The maximum length of a record in a reason or a warning.
_MAX_RECORD_CHARACTERS: Final = 200
#: The maximum number of Comment lines that are shown to the operator; the rest is counted.
_MAX_COMMENTS: Final = 5
_MAX_COMMENT_CHARACTERS: Final = 200
#: The maximum number of warnings about the groups of one bot; the rest is counted.
_MAX_WARNINGS: Final = 5

_BOM: Final = b"\xef\xbb\xbf"
_BOMS_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
BLANKS: Final = " \t\v\f"
_BLANK: Final = r"[ \t\v\f]"
# A missing colon is accepted before a single word only, so that prose is not read as a record.
_SEPARATOR: Final = (
    rf"(?:{_BLANK}*+:(?:{_BLANK}|\xc2?\xa0)*+|{_BLANK}++(?=[^ \t\v\f#\n]++{_BLANK}*+(?:[#\n]|\Z)))"
)


def _record_pattern(key: str, value: str) -> re.Pattern[str]:
    """Return the pattern of a record with a key and a value, without its comment."""
    return re.compile(rf"\n{_BLANK}*+{key}{_SEPARATOR}{value}", re.IGNORECASE | re.ASCII)


# Google's parser accepts these misspelled keys, and keys with more letters at their end
# (`disallowed`, `user-agents`).
_DISALLOW: Final = "disallow|dissallow|dissalow|disalow|diasllow|disallaw"
_OTHER_KEYS: Final = (
    "(?=[crv])(crawl[- ]?delay|request[- ]?rate|visit[- ]?time|robot[- ]?version|comment)"
)
_VALUE: Final = r"([^\n#]*+)"
#: A User-agent line. Its name ends at the first character that a product token cannot have (RFC
#: 9309 2.2.1); "*" must stand alone.
USER_AGENT: Final = _record_pattern(
    "user[- ]?agent[a-z]*+", r"(\*(?![^ \t\v\f#\n])|[a-z_-]*+)[^\n]*+"
)
#: An Allow or Disallow record. Its groups are the key, which is "" for Disallow, and the path.
RULE: Final = _record_pattern(f"(?:(allow)|(?=d)(?:{_DISALLOW}))[a-z]*+", _VALUE)
#: Any other record of a group that is read (RFC 9309 2.2.4): its key and its value.
OTHER: Final = _record_pattern(_OTHER_KEYS, _VALUE)
#: A Sitemap record, which belongs to no group: its value.
SITEMAP: Final = _record_pattern("(?:sitemaps?|site-map)", _VALUE)
#: What is said of a line with white space that some readers strip.
ODD_EDGES: Final = (
    "has white space other than spaces and tabs at an end; some readers strip it and others do "
    "not, so all readings are obeyed"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def decode(body: bytes) -> str:
    """Return the text of a file: at most 500 KiB, without a BOM and an incomplete last line.

    Lines end at CR, LF or CRLF only (RFC 9309 2.2); U+2028 and NEL are part of a value. A file is
    UTF-8, or UTF-16 if it begins with the BOM of UTF-16.
    """
    content = body[:MAX_OCTETS]
    is_utf_16 = content.startswith(_BOMS_UTF_16)
    if is_utf_16:
        content = content.decode("utf-16", "replace").encode()
    if len(body) > MAX_OCTETS and (is_utf_16 or body[MAX_OCTETS] not in b"\r\n"):
        content = content[: max(content.rfind(b"\n"), content.rfind(b"\r")) + 1]
    for length in (3, 2, 1):  # an incomplete BOM is not part of the first key either
        if content.startswith(_BOM[:length]):
            content = content[length:]
            break
    return "\n" + content.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")


class Record(NamedTuple):
    """A record as the site wrote it, cut if it is long, and its line number, from 1."""

    text: str
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class RuleRecords:
    """The Allow and Disallow records in parts of a text, in order."""

    allows: list[bool]
    paths: list[str]
    _text: str
    _spans: tuple[Span, ...]
    _part: str  #: the spans, joined
    _ends: list[int]  #: of the spans in `_part`
    _lines: list[int]  #: for each record, how many line feeds before it begin no record

    @classmethod
    def read(cls, text: str, spans: tuple[Span, ...]) -> "RuleRecords":
        """Read the records in the spans."""
        parts = [text[start:end] for start, end in spans]
        part = "".join(parts)
        pieces = RULE.split(part)  # the text between two records, the key, and the path, in turn
        return cls(
            allows=[key is not None for key in pieces[1::3]],
            paths=pieces[2::3],
            _text=text,
            _spans=spans,
            _part=part,
            _ends=list(accumulate(map(len, parts))),
            _lines=list(accumulate(map(str.count, pieces[:-1:3], repeat("\n")))),
        )

    def find(self, number: int) -> Record:
        """Return a record by its number, from 0, without a look at the other records."""
        offset = _nth_line(self._part, self._lines[number] + number)
        span = bisect_right(self._ends, offset)
        offset += self._spans[span][1] - self._ends[span]
        return Record(_record_at(self._text, offset), self._text.count("\n", 0, offset + 1))


def _nth_line(text: str, number: int) -> int:
    """Return the offset of the line feed with which a line begins, by halving the text."""
    start = 0
    end = len(text)
    while end - start > 1:
        middle = (start + end) // 2
        lines = text.count("\n", start, middle)
        if number < lines:
            end = middle
        else:
            number -= lines
            start = middle
    return start


def _others_in(text: str, spans: Iterable[Span]) -> dict[str, list[str]]:
    """Return the values of the other records by their keys: `crawldelay`, `visittime`, ..."""
    values: dict[str, list[str]] = {}
    for key, value in OTHER.findall("".join([text[start:end] for start, end in spans])):
        values.setdefault(_normalize_key(key), []).append(value.strip(BLANKS))
    return values


def _other_offsets(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and offset of each record that `_others_in` returns."""
    for span in spans:
        for record in OTHER.finditer(text, *span):
            yield _normalize_key(record[1]), record[2].strip(BLANKS), record.start()


@lru_cache(maxsize=256)
def _normalize_key(key: str) -> str:
    return key.lower().replace("-", "").replace(" ", "")


def _sitemap_values(text: str) -> tuple[str, ...]:
    """Return the values of the Sitemap records, which belong to no group (RFC 9309 2.2.4)."""
    urls = [_readable(value) for value in SITEMAP.findall(text)]
    return tuple(url for url in urls if url)


def _readable(value: str) -> str:
    """Return a value as text: decoded from UTF-8, without control characters."""
    if value.isascii() and value.isprintable():
        return value.strip()
    octets = value.encode("latin-1")
    return _CONTROL.sub("", octets.decode("utf-8", "replace")).strip()


def line_numbers(text: str, offsets: Iterable[int]) -> Iterator[int]:
    """Yield the line number, from 1, of each offset. The offsets must be in ascending order."""
    line = 1
    position = 1
    for offset in offsets:
        line += text.count("\n", position, offset + 1)
        position = max(position, offset + 1)
        yield line


def _record_at(text: str, offset: int) -> str:
    """Return the record at an offset as the site wrote it, without its comment, for people."""
    end = text.find("\n", offset + 1)
    line = text[offset + 1 : end if end >= 0 else len(text)]
    return cut(printable(_readable(line.partition("#")[0])), _MAX_RECORD_CHARACTERS)


_TOKEN: Final = re.compile(r"([A-Za-z_-]+)\S*")
_EMPTY: Final[Span] = (0, 0)


class UserAgentLine(NamedTuple):
    """A User-agent line, and the parts of the text with the records of its group."""

    name: str  #: in lower case, up to the first character that no token has; "" names no bot
    offset: int
    others: Span  #: with Crawl-delay, Request-rate, Visit-time, Comment and Robot-version
    rules: Span  #: with Allow and Disallow


def user_agent_lines(text: str) -> tuple[UserAgentLine, ...]:
    """Return all User-agent lines in order, with the spans of their groups' records.

    Consecutive User-agent lines share the records that follow them. Allow and Disallow end such a
    list of lines. Any other record ends it for other records only, because RFC 9309 2.2.4 says that
    they must not interfere with rules. The text is read backwards, because the records of a line
    come after it.
    """
    lines = []
    rules = others = _EMPTY
    end = len(text)
    for agent in reversed(list(USER_AGENT.finditer(text))):
        start = agent.start()
        following = (agent.end(), end)
        if following[0] < end and RULE.search(text, *following):
            rules = others = following
        elif following[0] < end and OTHER.search(text, *following):
            others = following
        lines.append(UserAgentLine(agent[1].lower(), start, others, rules))
        end = start
    return tuple(reversed(lines))


def product_token(name: str) -> str:
    """Return a bot's product token in lower case, to compare it with User-agent lines.

    It is cut at the first character that a token cannot have (`Bot/1.0`, `bot2`). Returns "" for a
    name that contains a blank.

    >>> product_token("Walsh-Research/1.0")
    'walsh-research'
    """
    match = _TOKEN.fullmatch(name)
    return match[1].lower() if match else ""


def most_specific_name(names: set[str], token: str) -> str | None:
    """Return the longest of the names that match a product token, or None.

    The token `walsh-research` is matched by `walsh-research`, `walsh-` and `walsh`.
    """
    ends = [
        end
        for end in range(len(token), 0, -1)
        if "-" in token[end - 1 : end + 1] or end == len(token)
    ]
    return next((token[:end] for end in ends if token[:end] in names), None)


def _distinct(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return each span once, without empty ones. Consecutive User-agent lines share their spans."""
    return tuple([span for span in dict.fromkeys(spans) if span[1]])


class Reading(NamedTuple):
    """One way to read a file: its text, and the User-agent lines in it."""

    text: str
    user_agents: tuple[UserAgentLine, ...]

    def groups_for(self, token: str) -> "Reading":
        """Return the reading with the User-agent lines for a bot only (R2, RFC 9309 2.2.1)."""
        names = {line.name for line in self.user_agents}
        name = most_specific_name(names, product_token(token)) or "*"
        return Reading(self.text, tuple(line for line in self.user_agents if line.name == name))

    @property
    def rules(self) -> tuple[Span, ...]:
        """The spans of the Allow and Disallow records of the groups."""
        return _distinct([line.rules for line in self.user_agents])

    @property
    def others(self) -> tuple[Span, ...]:
        """The spans of the other records of the groups."""
        return _distinct([line.others for line in self.user_agents])


class Part(NamedTuple):
    """Some spans of a text."""

    text: str
    spans: tuple[Span, ...]


def _parts(
    texts: Sequence[str], spans: Sequence[tuple[Span, ...]], odd: Sequence[Span]
) -> tuple[Part, list[Part]]:
    """Return the part that all readings have in common, and the other part of each of them.

    A part with the same spans in both readings is read once, but for its ``odd`` lines.
    """
    if len(set(spans)) > 1 or len(texts) == 1:
        return Part("", ()), [Part(*own) for own in zip(texts, spans, strict=True)]
    starts = [start for start, _ in spans[0]]
    inside = tuple(
        [
            line
            for line in odd
            if (at := bisect_right(starts, line[0])) and line[0] < spans[0][at - 1][1]
        ]
    )
    return Part(_without(texts[0], inside), spans[0]), [Part(text, inside) for text in texts]


def _differing_octets(readings: Sequence[Reading]) -> int:
    """Return the octets of the groups of all readings; 0 if these have the same spans."""
    rules = [reading.rules for reading in readings]
    others = [reading.others for reading in readings]
    if len(set(rules)) == len(set(others)) == 1:
        return 0
    return max(_octets_in(chain.from_iterable(rules)), _octets_in(chain.from_iterable(others)))


def _octets_in(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


def _without(text: str, lines: Sequence[Span]) -> str:
    """Return the text with empty lines, as long as before, in the place of some lines."""
    pieces: list[str] = []
    position = 0
    for start, end in lines:
        pieces += text[position:start], "\n".ljust(end - start)
        position = end
    return "".join([*pieces, text[position:]])


_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Verdict:
    """The decision about a URL. Its record is looked up when it is first read."""

    allowed: bool
    #: True if the URL is denied because its verdict would take too much time.
    undecided: bool = False
    _find_record: Callable[[], Record] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def _record(self) -> Record | None:
        return self._find_record() if self._find_record else None

    @property
    def rule(self) -> str | None:
        """The deciding record as the site wrote it, without its comment; None if there is none."""
        return self._record.text if self._record else None

    @property
    def line(self) -> int | None:
        """The line number of the deciding record, from 1; None if there is none."""
        return self._record.line if self._record else None


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Some Allow and Disallow records of one reading, as RFC 9309 reads them."""

    records: RuleRecords
    index: RuleIndex

    @classmethod
    def read(cls, part: Part) -> "_Group":
        """Read and index the records in a part of a text."""
        records = RuleRecords.read(*part)
        return cls(records, RuleIndex.from_records(records.allows, records.paths))

    def verdict(self, rule: Rule | None) -> Verdict:
        """Return the verdict of one of the rules; without a rule everything is allowed."""
        if rule is None:
            return Verdict(allowed=True)
        return Verdict(rule.allow, _find_record=partial(self.records.find, rule.number))


@dataclass(frozen=True, slots=True, eq=False)
class _OrderedGroup:
    """The records of one reading that Robot-version 2.x reads in order."""

    records: RuleRecords
    rules: OrderedRules

    @classmethod
    def read(cls, reading: Reading) -> "_OrderedGroup":
        """Read the records of the groups that declare Robot-version 2.x."""
        records = RuleRecords.read(reading.text, _version_2_spans(*reading))
        return cls(records, OrderedRules.from_records(records.allows, records.paths))


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules of a robots.txt for one bot: the records of all groups that match its token.

    A file that can be read in several ways has the rules of all readings. A URL is allowed only if
    all of them allow it, and the longest delay counts (decision 11).
    """

    #: The name of the groups, in lower case, or "*"; None if no group is for this bot.
    group: str | None
    #: The largest Crawl-delay in seconds (R4); None if there is none.
    crawl_delay: float | None
    #: The Comment values for the operator of the crawler (extended standard 2.0).
    comments: tuple[str, ...]
    #: By minute of the day. A file may have thousands of rates, and each request asks.
    _slowest: Callable[[int], float | None] = field(repr=False)
    #: The seconds per document of the slowest Request-rate without a window; None if there is none.
    all_day_interval: float | None = field(repr=False)
    _open_minutes: int = field(repr=False)  #: 0 if the readings have no minute in common
    _common: _Group = field(repr=False)  #: the records that are the same in all readings
    _own: tuple[_Group, ...] = field(repr=False)  #: the other records of each reading
    _ordered: tuple[_OrderedGroup, ...] = field(repr=False)
    _is_ambiguous: bool = field(repr=False)  #: it can be read in too many ways, and denies all
    _reading: Reading = field(repr=False)
    _odd_lines: tuple[Span, ...] = field(repr=False)

    @classmethod
    def merge(
        cls,
        readings: Sequence[Reading],
        odd: Sequence[Span] = (),
        *,
        is_ambiguous: bool = False,
    ) -> "Rules":
        """Merge the groups of these User-agent lines (RFC 9309 2.2.1), in one or more readings.

        ``odd`` are the lines in which the readings differ.
        """
        texts = [reading.text for reading in readings]
        common, own = _parts(texts, [reading.others for reading in readings], odd)
        shared = _others_in(*common)
        others = [_others_in(*part) for part in own]
        windows = open_minutes(_parsed(parse_visit_time, "visittime", shared))
        minutes = ALL_DAY
        for values in others:
            own_windows = open_minutes(_parsed(parse_visit_time, "visittime", values))
            minutes &= (windows | own_windows) or ALL_DAY
        ordered = tuple(
            _OrderedGroup.read(reading)
            for reading, values in zip(readings, others, strict=True)
            if "robotversion" in values or "robotversion" in shared
        )
        rule_spans = [reading.rules for reading in readings]
        if any(group.rules.too_many for group in ordered):  # no rule need be indexed
            rule_spans = [()] * len(readings)
        common, own = _parts(texts, rule_spans, odd)
        first = readings[0]
        rates = _parsed(parse_request_rate, "requestrate", shared, *others)
        return cls(
            group=first.user_agents[0].name if first.user_agents else None,
            crawl_delay=max(
                _parsed(parse_crawl_delay, "crawldelay", shared, *others), default=None
            ),
            comments=_printable_comments(
                [*shared.get("comment", ()), *others[0].get("comment", ())]
            ),
            _slowest=lru_cache(maxsize=1)(partial(slowest, rates)),
            all_day_interval=slowest([rate for rate in rates if rate.window is None], 0),
            _open_minutes=minutes,
            _common=_Group.read(common),
            _own=tuple([_Group.read(part) for part in own]),
            _ordered=ordered,
            _is_ambiguous=is_ambiguous,
            _reading=first,
            _odd_lines=tuple(odd),
        )

    def verdict(self, url: str) -> Verdict:
        """Return whether a full URL or a bare path may be fetched (RFC 9309 2.2.2).

        `/robots.txt` itself is always allowed. Never raises.
        """
        target = target_of(url)
        if target.path == "/robots.txt":
            return Verdict(allowed=True)
        if self._is_ambiguous or not self._open_minutes:
            return Verdict(allowed=False, undecided=True)
        try:
            return self._decide(target)
        except TooCostlyError:
            return Verdict(allowed=False, undecided=True)

    def _decide(self, target: Target) -> Verdict:
        """Return the verdict of the first reading that denies, or else of the first one."""
        limit = WorkLimit.for_target(target)
        common = self._common.index.deciding_rule(target, limit)
        allowed = None
        for group in self._own:
            rule = group.index.deciding_rule(target, limit)
            if rule is None or (common is not None and common[:2] > rule[:2]):
                verdict = self._common.verdict(common)
            else:
                verdict = group.verdict(rule)
            if not verdict.allowed:
                return verdict
            allowed = allowed or verdict
        limit = WorkLimit(MAX_WORK)
        for ordered in self._ordered:
            denying = ordered.rules.denying_rule(target, limit)
            if denying is not None:
                return Verdict(allowed=False, _find_record=partial(ordered.records.find, denying))
        return allowed or Verdict(allowed=True)

    @property
    def denies_all(self) -> bool:
        """Whether a record denies every URL but `/robots.txt`, and no record allows any."""
        indexes = [group.index for group in (self._common, *self._own)]
        allows_any = any(allow for index in indexes for allow in index.allows)
        return not allows_any and any(index.denies_all for index in indexes)

    def interval(self, at: datetime) -> float | None:
        """Return the seconds per document of the Request-rate at the aware time `at`.

        The slowest of several rates is used. Crawl-delay is not included. None if no rate applies
        then.
        """
        return self._slowest(minute_of(at))

    @property
    def has_visit_time(self) -> bool:
        """Whether Visit-time closes a part of the day."""
        return self._open_minutes not in (0, ALL_DAY)

    def opens(self, at: datetime) -> datetime:
        """Return the first moment from the aware time `at` on that Visit-time allows.

        It is in the time zone of `at`; without a Visit-time it is `at` itself.
        """
        minutes = self._open_minutes or ALL_DAY  # without a common minute everything is denied
        return opening_after(at, minutes_closed(minutes, minute_of(at)))

    def opened(self, at: datetime) -> datetime | None:
        """Return when the Visit-time began that allows the aware time `at`, in UTC.

        None without a Visit-time, and if it does not allow that time.
        """
        minute = minute_of(at)
        if not self._open_minutes or self._open_minutes == ALL_DAY or self.opens(at) > at:
            return None
        began = at.astimezone(UTC).replace(second=0, microsecond=0)
        return began - timedelta(minutes=minutes_open(self._open_minutes, minute))

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the User-agent lines of these groups, from 1."""
        offsets = (line.offset for line in self._reading.user_agents)
        return tuple(line_numbers(self._reading.text, offsets))

    @property
    def warnings(self) -> tuple[tuple[int, str], ...]:
        """Line number and sentence for each record of these groups with a malformed value.

        There are at most `_MAX_WARNINGS`; the last one says how many more there would be. One more
        names the first line of the file that can be read in several ways.
        """
        text = self._reading.text
        records = _other_offsets(text, self._reading.others)
        malformed = [offset for key, value, offset in records if is_malformed(key, value)]
        shown = malformed[:_MAX_WARNINGS]
        warnings = [
            (line, f"{_record_at(text, offset)!r} is not understood and ignored")
            for line, offset in zip(line_numbers(text, shown), shown, strict=True)
        ]
        if hidden := len(malformed) - len(shown):
            line, sentence = warnings[-1]
            warnings[-1] = line, f"{sentence} {and_more(hidden)}"
        if self._odd_lines:
            start, _ = self._odd_lines[0]
            others = len(self._odd_lines) - 1
            more = f" {and_more(others)}" if others else ""
            sentence = f"{_record_at(text, start)!r} {ODD_EDGES}{more}"
            warnings.append((next(line_numbers(text, [start])), sentence))
        return tuple(warnings)


def _version_2_spans(text: str, user_agents: Iterable[UserAgentLine]) -> tuple[Span, ...]:
    """Return the spans with the rules of the groups that declare Robot-version 2.x."""
    version_2 = {
        span
        for span in _distinct([line.others for line in user_agents])
        if any(map(is_version_2, _others_in(text, [span]).get("robotversion", ())))
    }
    return _distinct([line.rules for line in user_agents if line.others in version_2])


def _parsed(
    parse: Callable[[str], _Value | None], key: str, *values: Mapping[str, list[str]]
) -> list[_Value]:
    """Return the values of a key that can be parsed, of all parts."""
    texts = chain.from_iterable([part.get(key, ()) for part in values])
    return [value for value in map(parse, texts) if value is not None]


@dataclass(frozen=True, slots=True, eq=False)
class RobotsTxt:
    """A robots.txt file, split into groups.

    White space other than spaces and tabs is read in all ways, stripped and not (decision 11).
    """

    _readings: tuple[Reading, ...] = field(repr=False)  #: the last one is not stripped
    _odd_lines: tuple[Span, ...] = field(default=(), repr=False)  #: the lines that differ
    _is_ambiguous: bool = field(default=False, repr=False)  #: its readings would cost too much

    @classmethod
    def parse(cls, body: bytes) -> "RobotsTxt":
        """Read a robots.txt, at most 500 KiB of it (RFC 9309 2.2 and 2.5).

        Lines that are not records are skipped. Never raises.
        """
        text = decode(body)
        plain = Reading(text, user_agent_lines(text))
        if text.isascii() and not any(space in text for space in SPACES_IN_ASCII):
            return cls((plain,))
        stripped = strip(text)
        if not stripped.is_complete:
            return cls((plain,), _is_ambiguous=True)
        kinds = {
            line: {_kind_of(version[slice(*line)]) for version in (text, *stripped.texts)}
            for line in stripped.lines
        }
        odd_lines = tuple(
            [line for line in kinds if len(kinds[line]) > 1 or not kinds[line] <= _WITHOUT_MEANING]
        )
        regroups = any(len(kinds[line]) > 1 for line in odd_lines)
        if not odd_lines:
            return cls((plain,))
        if regroups and len(plain.user_agents) > MAX_LINES:
            return cls((plain,), _is_ambiguous=True)
        others = [
            Reading(other, user_agent_lines(other) if regroups else plain.user_agents)
            for other in stripped.texts
        ]
        return cls((*others, plain), odd_lines)

    def rules_for(self, token: str) -> Rules:
        """Return the rules for the bot with a product token (R2, RFC 9309 2.2.1).

        A User-agent name matches if it is the token itself, or its beginning up to a hyphen. All
        groups with the longest matching name are merged. If no name matches, all "*" groups are
        merged. Without "*" groups everything is allowed.
        """
        readings = [reading.groups_for(token) for reading in self._readings]
        if _differing_octets(readings) > MAX_OCTETS:
            return Rules.merge(readings[-1:], is_ambiguous=True)
        return Rules.merge(readings, self._odd_lines, is_ambiguous=self._is_ambiguous)

    @property
    def is_unusable(self) -> bool:
        """True if the file has text, but no line of it is a User-agent or Sitemap record."""
        has_group = any(reading.user_agents for reading in self._readings)
        return not (has_group or self.sitemaps) and bool(self._readings[0].text.strip())

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The Sitemap values of the whole file, in order and unchanged (RFC 9309 2.2.4)."""
        return _sitemap_values(self._readings[0].text)


def _kind_of(line: str) -> str:
    """Return the kind of record that a line is, with the name of a User-agent line."""
    if agent := USER_AGENT.match(line):
        return f"user-agent {agent[1].lower()}"
    if RULE.match(line):
        return "rule"
    other = OTHER.match(line)
    return _normalize_key(other[1]) if other else ""


#: The kinds of lines whose values mean nothing to a crawl.
_WITHOUT_MEANING: Final = frozenset({"", "comment"})


def _printable_comments(values: Sequence[str]) -> tuple[str, ...]:
    """Return the Comment values for people, and last how many more there are, if any."""
    texts = (for_others(printable(_readable(value))) for value in values[:_MAX_COMMENTS])
    shown = [cut(text, _MAX_COMMENT_CHARACTERS) for text in texts]
    hidden = len(values) - len(shown)
    return (*shown, and_more(hidden)) if hidden else tuple(shown)
