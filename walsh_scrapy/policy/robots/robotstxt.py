"""robots.txt as R2, RFC 9309 and decisions 8 to 13 read it: which URLs, how fast, and when.

    rules = RobotsTxt.parse(body).rules_for("Walsh-Research")
    rules.verdict("https://example.com/feed.xml").allowed

No bytes, URL or token raise anything here. A file may be made to be slow to read: what one verdict
may cost is bounded, and beyond that bound the answer is no.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from walsh_scrapy.policy.robots.globs import OrderedRules, is_version_2
from walsh_scrapy.policy.robots.lines import (
    Agent,
    Span,
    agents_of,
    line_numbers,
    other_starts,
    others_in,
    readable,
    record_at,
    rule_starts,
    rules_in,
    sitemaps_in,
    text_of,
    token_of,
)
from walsh_scrapy.policy.robots.paths import UNDECIDED, PathRules, denies, place_of
from walsh_scrapy.policy.robots.spelling import Target, target_of
from walsh_scrapy.policy.robots.times import (
    Rate,
    Window,
    next_opening,
    parse_delay,
    parse_rate,
    parse_visit,
    slowest,
)

_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "crawldelay": parse_delay,
    "requestrate": parse_rate,
    "visittime": parse_visit,
}


_Value = TypeVar("_Value")


class Record(NamedTuple):
    """A record of the file: as the site wrote it, without comment, and its line from 1."""

    text: str | None
    line: int | None


_NO_RECORD: Final = Record(None, None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a URL may be fetched; which rule said so is looked up when somebody asks."""

    allowed: bool
    #: The rules would cost too much to read for this URL, which is why it is not allowed.
    undecided: bool = False
    _why: Callable[[], Record] = field(default=lambda: _NO_RECORD, repr=False, compare=False)

    @property
    def rule(self) -> str | None:
        """The deciding record as the site wrote it, without its comment; None if there is none."""
        return self._why().text

    @property
    def line(self) -> int | None:
        """The number of that record's line in the file, from 1."""
        return self._why().line


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """What one robots.txt asks of one product token: the rules of the groups that name it."""

    #: The name that selected the groups, in lower case, or "*"; None if no group is for us.
    group: str | None
    #: Seconds between two requests, the largest Crawl-delay (R4, decision 10).
    crawl_delay: float | None
    #: Comment values, meant for whoever runs the crawler (extended standard 2.0).
    comments: tuple[str, ...]
    _rates: tuple[Rate, ...] = field(repr=False)
    _visits: tuple[Window, ...] = field(repr=False)
    _paths: PathRules = field(repr=False)
    _ordered: OrderedRules | None = field(repr=False)
    _ordered_spans: tuple[Span, ...] = field(repr=False)
    _agents: tuple[Agent, ...] = field(repr=False)
    _text: str = field(repr=False)

    @classmethod
    def of(cls, text: str, agents: tuple[Agent, ...]) -> "Rules":
        """Read the records of these User-agent lines' groups, merged (RFC 9309 2.2.1)."""
        values = others_in(text, _spans([agent.others for agent in agents]))
        spans = _spans([agent.rules for agent in agents])
        rules = rules_in(text, spans)
        newer = _ordered_spans(text, agents) if "robotversion" in values else ()
        ordered = OrderedRules.of(rules if newer == spans else rules_in(text, newer))
        return cls(
            group=agents[0].name if agents else None,
            crawl_delay=max(_read(parse_delay, values.get("crawldelay", ())), default=None),
            comments=tuple(map(readable, values.get("comment", ()))),
            _rates=_read(parse_rate, values.get("requestrate", ())),
            _visits=_read(parse_visit, values.get("visittime", ())),
            # Rules that are too many to be read in order deny everything already.
            _paths=PathRules.of([] if ordered.too_many else rules),
            _ordered=ordered if newer else None,
            _ordered_spans=newer,
            _agents=agents,
            _text=text,
        )

    def verdict(self, url: str) -> Verdict:
        """Return whether a full URL or a bare path may be fetched (RFC 9309 2.2.2)."""
        target = target_of(url)
        if target.path == "/robots.txt":
            return Verdict(allowed=True)
        rank = self._paths.rank(target)
        place = self._ordered.denying(target) if self._ordered and not denies(rank) else None
        allowed = not denies(rank) and place is None
        undecided = UNDECIDED in (rank, place)
        return Verdict(allowed, undecided, partial(self._deciding, target, rank, place))

    def interval(self, at: datetime) -> float | None:
        """Return the seconds a document that Request-rate asks for at the aware time `at`.

        The slowest of the rates in force then (decision 13); Crawl-delay is no part of it.
        """
        return slowest(self._rates, at)

    def opens(self, at: datetime) -> datetime:
        """Return the first moment from the aware time `at` that Visit-time allows."""
        return next_opening(self._visits, at)

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the User-agent lines that selected the groups."""
        return tuple(line_numbers(self._text, (agent.start for agent in self._agents)))

    @property
    def warnings(self) -> tuple[tuple[int, str], ...]:
        """Line and sentence for each value of our groups that could not be understood."""
        others = other_starts(self._text, _spans([agent.others for agent in self._agents]))
        bad = [start for key, value, start in others if _is_malformed(key, value)]
        return tuple(
            (line, f"{record_at(self._text, start)!r} is not understood and ignored")
            for line, start in zip(line_numbers(self._text, bad), bad, strict=True)
        )

    def _deciding(self, target: Target, rank: int, place: int | None) -> Record:
        """Find the record behind a rank, or behind a place in the ordered reading."""
        if UNDECIDED in (rank, place) or (not rank and place is None):
            return _NO_RECORD
        spans = _spans([agent.rules for agent in self._agents])
        if place is None:
            place = place_of(rank, target, rules_in(self._text, spans))
        else:
            spans = self._ordered_spans
        start = next(islice(rule_starts(self._text, spans), place, None))
        return Record(record_at(self._text, start), next(line_numbers(self._text, [start])))


@dataclass(frozen=True, slots=True, eq=False)
class RobotsTxt:
    """A robots.txt, split into groups."""

    _text: str = field(repr=False)
    _agents: tuple[Agent, ...] = field(repr=False)

    @classmethod
    def parse(cls, body: bytes) -> "RobotsTxt":
        """Read a robots.txt; whatever is no record of one is passed over (RFC 9309 2.2, 2.5)."""
        text = text_of(body)
        return cls(text, agents_of(text))

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The Sitemap values of the whole file, in order, as they are written."""
        return sitemaps_in(self._text)

    def rules_for(self, token: str) -> Rules:
        """Return the rules of the groups whose name is the longest that names `token`.

        A name that is the token's leading part up to a hyphen names it too; without any, the "*"
        groups are ours, and without those nothing is disallowed (R2, decision 8).
        """
        names = {agent.name for agent in self._agents}
        ours = _longest(names, token_of(token)) or "*"
        return Rules.of(self._text, tuple(agent for agent in self._agents if agent.name == ours))


def _longest(names: set[str], token: str) -> str | None:
    """Return the longest of the names that name the token: it, `walsh-` or `walsh`."""
    ends = [
        end
        for end in range(len(token), 0, -1)
        if "-" in token[end - 1 : end + 1] or end == len(token)
    ]
    return next((token[:end] for end in ends if token[:end] in names), None)


def _spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return each span once: stacked User-agent lines share theirs."""
    return tuple([span for span in dict.fromkeys(spans) if span[1]])


def _ordered_spans(text: str, agents: Iterable[Agent]) -> tuple[Span, ...]:
    """Return where the rules of the groups stand that declare Robot-version 2.x."""
    newer = {
        span
        for span in _spans([agent.others for agent in agents])
        if any(map(is_version_2, others_in(text, [span]).get("robotversion", ())))
    }
    return _spans([agent.rules for agent in agents if agent.others in newer])


def _read(parse: Callable[[str], _Value | None], values: Iterable[str]) -> tuple[_Value, ...]:
    return tuple([value for value in map(parse, values) if value is not None])


def _is_malformed(key: str, value: str) -> bool:
    parse = _PARSERS.get(key)
    return parse is not None and parse(value) is None
