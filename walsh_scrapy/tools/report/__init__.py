"""``walsh report``: one page about runs, and about problems for the operator."""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.pace import CheckedRequest, GapCheck
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import count_of, cut
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.sources.source import SourcesError
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.tools.files import Output
from walsh_scrapy.tools.report import hostrows, overview, runrows
from walsh_scrapy.tools.report.findings import check_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.audit.pace import RequestGap
    from walsh_scrapy.policy.audit.record import LoggedRequest
    from walsh_scrapy.state import State
    from walsh_scrapy.state.log import Log, SeenEntry
    from walsh_scrapy.state.runs import RunRecord
    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.report.findings import Finding
    from walsh_scrapy.tools.report.hostrows import HostRow
    from walsh_scrapy.tools.report.overview import SourceRow
    from walsh_scrapy.tools.report.runrows import RunRow

#: Headlines of one source, and of all sources together.
OF_EACH: Final = 8
MOST: Final = 400
#: Sources that are listed with their entries.
MOST_SOURCES: Final = 150
_LONGEST_TITLE: Final = 160
#: Requests that are read: as many as fit into 500 MB of memory.
MOST_READ: Final = 300_000
#: Runs that a report knows of.
MOST_RUNS: Final = 1000
#: Sources with problems that the page lists; it counts the others.
MOST_PROBLEMS: Final = 150


def run(call: Call) -> int:
    """Write the page, and print its subject on standard error."""
    from walsh_scrapy.tools.report.page import render

    output, now = Output.of(call), time.time()
    with call.state() as state:
        period = choose_period(state, now, call.arguments.since)
        report = build_report(state, call.options, call.sources_file, period, now)
    page = render(report).encode()
    with output.open() as file:
        file.write(page)
    output.say(f"{period.words}: {len(page) / 1024:,.0f} KiB")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The part of the state that a report is about."""

    span: TimeSpan
    runs: Sequence[RunRecord]  #: the newest first
    words: str  #: the same for the page's heading

    def includes(self, record: LoggedRequest) -> bool:
        """Return True if a request is a part of the report."""
        if self.span.run is not None:
            return record.run == self.span.run
        return self.span.since <= record.requested_at <= self.span.until


def choose_period(state: State, now: float, since: float | None = None) -> Period:
    """Return the time since a moment, or that of the last crawl; times are in epoch seconds."""
    until = now + CLOCK_SKEW  # later times were written by a wrong clock
    if since is not None:
        runs = state.runs.latest(MOST_RUNS, since, until)
        return Period(span=TimeSpan(since=since), runs=runs, words=f"Since {format_moment(since)}")
    last = next(iter(state.runs.latest(1, until=until, only_crawls=True)), None)
    if last is None:
        return Period(span=TimeSpan(since=now), runs=(), words="No crawl is recorded")
    until = math.inf if last.ended_at is None else last.ended_at
    span = TimeSpan(since=last.started_at, until=until, run=last.id)
    words = f"Run {last.id} of {last.spider}, {format_moment(last.started_at)}"
    return Period(span=span, runs=(last,), words=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The facts of the page. Times are in epoch seconds, UTC days."""

    made_at: float
    period: Period
    runs: Sequence[RunRow]  #: the newest first
    needs: Sequence[Need]
    news: News
    declared: int  #: sources in the file
    problems: Sequence[SourceRow]
    waiting: Sequence[HostRow]
    requests: int
    is_cut: bool  #: the log has more requests, which were sent before these
    answers: Mapping[str, int]  #: responses by kind, in the order of the page
    lines: Sequence[HostLine]
    log_days: int  #: for which requests and denials are kept

    @property
    def age(self) -> float | None:
        """Seconds since the newest run ended; None if none has ended."""
        ends = [row.record.ended_at for row in self.runs if row.record.ended_at is not None]
        return max(0.0, self.made_at - max(ends)) if ends else None

    @property
    def success(self) -> float | None:
        """The share of requests that got a document, a 304 or a redirect; None without a request.

        A request whose end is unknown does not count.
        """
        ended = sum(count for kind, count in self.answers.items() if kind != "open")
        good = sum(self.answers.get(kind, 0) for kind in ("full", "unchanged", "redirect"))
        return good / ended if ended else None


def build_report(
    state: State, options: Options, sources_file: str, period: Period, now: float
) -> Report:
    """Read the rows of a period; ``now`` is in epoch seconds.

    If the sources file cannot be read, the report has no sources, but the reason. Raises
    StateError.
    """
    try:
        sources, unread = load_sources(sources_file), ""
    except SourcesError as error:
        sources, unread = (), str(error)
    rows = list(overview.build_overview(sources, state, options, now).by_urgency())
    with state.log() as log:
        run_rows = runrows.build_overview(log, period.runs, now)
        records, is_cut = _requests(log, period)
        gaps = GapCheck(log.basis(log.bounds(now)))
        lines = host_lines(records, gaps, period.includes)
        names = {source.url: source.name for source in sources if source.name}
        newest = log.newest(period.span, OF_EACH, MOST)
        news = build_news(log.first_seen(period.span), newest, names)
    problems = [row for row in rows if row.problem]
    included = [record for record in records if period.includes(record)]
    waiting, clock = hostrows.build_overview(state), check_clock(state.runs.moments(), now)
    return Report(
        made_at=now,
        period=period,
        runs=run_rows,
        needs=[*find_needs(run_rows, lines, problems, waiting, unread, clock)],
        news=news,
        declared=len(rows),
        problems=problems,
        waiting=waiting,
        requests=len(included),
        is_cut=is_cut,
        answers=answers(included),
        lines=lines,
        log_days=options.log_days,
    )


def _requests(log: Log, period: Period) -> tuple[list[LoggedRequest], bool]:
    """Return the requests of a period and those before, and whether the log has more of them."""
    sent = log.requests(period.span, most=MOST_READ)
    is_cut = len(sent) == MOST_READ
    # The gap before the first request of a period counts too, unless that request is cut off.
    before = [] if is_cut else log.requests_before(period.span.since)
    by_host = sorted([*before, *sent], key=lambda each: (each.host, each.requested_at, each.id))
    return by_host, is_cut


class Need(NamedTuple):
    """One thing to look at, and the section of the page about it."""

    text: str
    section: str


def find_needs(
    runs: Sequence[RunRow],
    lines: Sequence[HostLine],
    problems: Sequence[SourceRow],
    waiting: Sequence[HostRow],
    unread_sources: str,
    clock: Finding,
) -> Iterator[Need]:
    """Yield the problems for the operator, if there are any.

    ``unread_sources`` is the reason why the sources file could not be read. ``clock`` checks the
    times in the state.
    """
    if wrong := [row.problem for row in runs if row.problem and not row.record.command]:
        went = count_of(len(wrong), "run")
        yield Need(f"{went} went wrong, the last one: {wrong[0]}", "runs")
    if clock.status:
        yield Need(f"{clock.what}: {clock.advice}", "runs")
    if short := [line.short for line in lines if line.short]:
        gaps, hosts = count_of(sum(short), "gap"), count_of(len(short), "host")
        yield Need(f"{gaps} at {hosts} shorter than the delay", "gaps")
    if unread_sources:
        yield Need(f"The sources file was not read: {unread_sources}", "sources")
    if counts := Counter(row.problem.what for row in problems if row.problem):
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        yield Need(f"{count_of(len(problems), 'source')} with problems: {told}", "sources")
    if long := sum(row.is_long_hold for row in waiting):
        yield Need(f"{count_of(long, 'host')} on hold for over a day", "waiting")


# ---- new entries ----


class Headline(NamedTuple):
    """One new entry; ``url`` is empty if it is not an http or https URL with a host."""

    title: str
    url: str
    published: str


@dataclass(frozen=True, slots=True)
class SourceNews:
    """The new entries of one source: their number, their days, and the newest of them."""

    url: str
    title: str
    count: int
    days: Sequence[tuple[date, int]]
    headlines: Sequence[Headline]


@dataclass(frozen=True, slots=True)
class News:
    """All that is new."""

    count: int
    days: Sequence[tuple[date, int]]  #: each day from the first one to the last one
    sources: Sequence[SourceNews]  #: those with most entries first


def build_news(
    moments: Mapping[str, Sequence[float]],
    newest: Sequence[SeenEntry],
    names: Mapping[str, str],
) -> News:
    """Group entries by source and day (UTC).

    ``moments`` are when entries were first seen, in epoch seconds; ``names`` are those that
    operators gave to sources.
    """
    items = defaultdict[str, list[Mapping[str, object]]](list)
    for entry in newest:
        items[entry.source].append(item_of(entry.item))
    sources = [
        SourceNews(
            url=url,
            title=names.get(url) or next((_text(each, "source_title") for each in items[url]), ""),
            count=len(seen),
            days=sorted(_days(seen).items()),
            headlines=[*map(_headline, items[url])],
        )
        for url, seen in moments.items()
    ]
    sources.sort(key=lambda source: (-source.count, source.url))
    days = _days(chain.from_iterable(moments.values()))
    return News(days.total(), _without_gaps(days), sources)


def _days(moments: Iterable[float]) -> Counter[date]:
    return Counter(datetime.fromtimestamp(moment, UTC).date() for moment in moments)


def _without_gaps(days: Counter[date]) -> list[tuple[date, int]]:
    length = (max(days) - min(days)).days + 1 if days else 0
    every = (min(days) + timedelta(days=number) for number in range(length))
    return [(day, days[day]) for day in every]


def _headline(item: Mapping[str, object]) -> Headline:
    url = _text(item, "url", longest=4096)
    is_link = url.startswith(("http://", "https://")) and bool(host_of(url))
    title = _text(item, "title") or _text(item, "url") or _text(item, "id") or "without a title"
    return Headline(title, url if is_link else "", _text(item, "published")[:10])


def _text(item: Mapping[str, object], name: str, longest: int = _LONGEST_TITLE) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        return ""
    return " ".join(cut(value, longest).split())


def item_of(text: str) -> Mapping[str, object]:
    """Return the item that an entry has as JSON; an empty one if it is damaged."""
    try:
        item = json.loads(text)
    except ValueError:  # it must not hide the others
        return {}
    return item if isinstance(item, dict) else {}


# ---- requests, gaps and responses ----

#: The kinds of responses, in the order of the page.
KINDS: Final = {
    "full": "2xx: a document",
    "unchanged": "304: unchanged",
    "redirect": "3xx: a redirect",
    "refused": "429 or 503: wait",
    "client": "4xx: not for us",
    "server": "5xx: it failed",
    "none": "no response",
    "open": "end unknown",
}


@dataclass(frozen=True, slots=True)
class HostLine:
    """The requests to one host, the first one first."""

    host: str
    sent: list[CheckedRequest] = field(default_factory=list)

    @property
    def smallest(self) -> RequestGap | None:
        """The smallest gap; None if no gap is known."""
        return min(self._gaps(), key=lambda each: each.kept or 0.0, default=None)

    @property
    def longest(self) -> RequestGap | None:
        """The gap with the longest delay or hold; None if no gap is known."""
        return max(self._gaps(), key=lambda each: each.least, default=None)

    @property
    def short(self) -> int:
        """The number of gaps that were too short."""
        return sum(each.gap.is_broken for each in self.sent)

    def _gaps(self) -> Iterable[RequestGap]:
        return (each.gap for each in self.sent if each.gap.kept is not None)


def host_lines(
    records: Iterable[LoggedRequest],
    gaps: GapCheck,
    is_included: Callable[[LoggedRequest], bool],
) -> list[HostLine]:
    """Return the line of each host, those with short gaps first, then the longest.

    ``records`` come in the order of `GapCheck`, and may include others before those that are
    included: a gap counts from the last request of any run.
    """
    lines: dict[str, HostLine] = {}
    for record in records:
        judged = CheckedRequest(record, gaps.check(record))
        if is_included(record):
            lines.setdefault(record.host, HostLine(record.host)).sent.append(judged)
    return sorted(lines.values(), key=lambda line: (-line.short, -len(line.sent), line.host))


def kind_of(sent: LoggedRequest) -> str:
    """Return the kind of the response to a request, a key of KINDS."""
    status = sent.status
    if status is None:
        return "open" if sent.is_open else "none"
    if status in (429, 503):
        return "refused"
    if status == 304:
        return "unchanged"
    return {2: "full", 3: "redirect", 4: "client", 5: "server"}.get(status // 100, "none")


def answers(records: Iterable[LoggedRequest]) -> dict[str, int]:
    """Return the number of responses of each kind that came."""
    counts = Counter(kind_of(record) for record in records)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}
