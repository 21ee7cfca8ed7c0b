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
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from walsh_scrapy.policy.robots.matching import (
    UNDECIDED,
    PathRules,
    Target,
    denies,
    index_of,
    target_of,
)
from walsh_scrapy.policy.robots.otherrecords import (
    RequestRate,
    Window,
    is_malformed,
    next_opening,
    parse_crawl_delay,
    parse_request_rate,
    parse_visit_time,
    printable_comments,
    slowest,
)
from walsh_scrapy.policy.robots.records import (
    Span,
    UserAgentLine,
    decode,
    distinct,
    line_numbers,
    most_specific_name,
    other_offsets,
    others_in,
    product_token,
    record_at,
    rule_offsets,
    rules_in,
    sitemap_values,
    user_agent_lines,
)
from walsh_scrapy.policy.robots.version2 import OrderedRules, is_version_2
from walsh_scrapy.policy.wording import and_more

#: Warnings about one bot's groups of a file; further ones are counted.
MOST_WARNINGS: Final = 5
_Value = TypeVar("_Value")


class DecidingRecord(NamedTuple):
    """A record as the site wrote it, but cut if it is long, and its line from 1."""

    text: str | None
    line: int | None


_NO_RECORD: Final = DecidingRecord(None, None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a URL may be fetched. Which rule decided is looked up only on request."""

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
    """What a robots.txt asks of one bot: the records of the groups that match its token."""

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
        values = others_in(text, distinct([line.others for line in user_agents]))
        spans = distinct([line.rules for line in user_agents])
        rules = rules_in(text, spans)
        version_2 = _version_2_spans(text, user_agents) if "robotversion" in values else ()
        ordered = None
        if version_2:
            ordered = OrderedRules.of(rules if version_2 == spans else rules_in(text, version_2))
        return cls(
            group=user_agents[0].name if user_agents else None,
            crawl_delay=max(_read(parse_crawl_delay, values.get("crawldelay", ())), default=None),
            comments=printable_comments(values.get("comment", ())),
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
        """Return the seconds per document that Request-rate asks for at the aware time `at`.

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
    def other_lines(self) -> tuple[int, ...]:
        """The numbers of the lines of Crawl-delay and its like in these groups, from 1."""
        others = other_offsets(self._text, distinct([line.others for line in self._user_agents]))
        return tuple(line_numbers(self._text, sorted({offset for _, _, offset in others})))

    @property
    def warnings(self) -> tuple[tuple[int, str], ...]:
        """Line number and sentence for the records of these groups whose value is malformed.

        The last of `MOST_WARNINGS` says how many more there are.
        """
        others = other_offsets(self._text, distinct([line.others for line in self._user_agents]))
        malformed = [offset for key, value, offset in others if is_malformed(key, value)]
        shown = malformed[:MOST_WARNINGS]
        warnings = [
            (line, f"{record_at(self._text, offset)!r} is not understood and ignored")
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
        spans = distinct([line.rules for line in self._user_agents])
        if index is None:
            index = index_of(rank, target, rules_in(self._text, spans))
        else:
            spans = self._ordered_spans
        offset = next(islice(rule_offsets(self._text, spans), index, None))
        return DecidingRecord(
            record_at(self._text, offset), next(line_numbers(self._text, [offset]))
        )


def _version_2_spans(text: str, user_agents: Iterable[UserAgentLine]) -> tuple[Span, ...]:
    """Return the spans of the rules of those groups that declare Robot-version 2.x."""
    version_2 = {
        span
        for span in distinct([line.others for line in user_agents])
        if any(map(is_version_2, others_in(text, [span]).get("robotversion", ())))
    }
    return distinct([line.rules for line in user_agents if line.others in version_2])


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
    def sitemaps(self) -> tuple[str, ...]:
        """The Sitemap values of the whole file, in order, as written (RFC 9309 2.2.4)."""
        return sitemap_values(self._text)
