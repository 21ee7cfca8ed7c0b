"""The report: what the state knows of a period, gathered and shaped for the page."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy import wording
from walsh_scrapy.policy.audit.pace import PauseJudge
from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.sources.source import SourcesError
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.tools import hosts
from walsh_scrapy.tools.output import Column
from walsh_scrapy.tools.report.figures import (
    MOST,
    OF_EACH,
    HostLine,
    News,
    answers,
    build_news,
    host_lines,
)
from walsh_scrapy.tools.sources import overview
from walsh_scrapy.tools.status.facts import ENDED_EARLY
from walsh_scrapy.tools.status.findings import judge_clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.audit.record import LoggedRequest
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.log import Log
    from walsh_scrapy.state.runs import RunRecord
    from walsh_scrapy.tools.hosts import HostRow
    from walsh_scrapy.tools.sources.overview import SourceRow
    from walsh_scrapy.tools.status.findings import Finding

#: Requests that are read: as many as fit into 500 MB of memory.
MOST_READ: Final = 300_000
#: Runs that a report knows of.
MOST_RUNS: Final = 1000
#: Sources in trouble that the page lists; it says how many more there are.
MOST_TROUBLES: Final = 150
_WORDS: Final = {
    "gone": "gone for good (410)",
    "failing": "failing",
    "refused": "refused by their sites (429, 503)",
    "denied": "denied by a gate",
    "moved": "moved for good",
    "resent": "sent again though unchanged (no 304)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The part of the record that a report is about."""

    span: TimeSpan
    runs: Sequence[RunRecord]  #: the newest first
    words: str  #: the same for the page's heading

    def includes(self, record: LoggedRequest) -> bool:
        """Return True if a request is a part of the report."""
        if self.span.run is not None:
            return record.run == self.span.run
        return self.span.since <= record.sent_at <= self.span.until


def choose_period(state: State, now: float, since: float | None = None) -> Period:
    """Return the time since a moment, or that of the last crawl; times are in epoch seconds."""
    until = now + CLOCK_SKEW  # what is later was written by a wrong clock
    if since is not None:
        runs = state.runs.latest(MOST_RUNS, since, until)
        return Period(span=TimeSpan(since=since), runs=runs, words=f"Since {format_moment(since)}")
    last = next(iter(state.runs.latest(1, until=until, only_crawls=True)), None)
    if last is None:
        return Period(span=TimeSpan(since=now), runs=(), words="No crawl is recorded")
    until = math.inf if last.ended is None else last.ended
    span = TimeSpan(since=last.begun, until=until, run=last.id)
    words = f"Run {last.id} of {last.spider}, {format_moment(last.begun)}"
    return Period(span=span, runs=(last,), words=words)


#: What is told of a run. Times are RFC 3339 in UTC.
RUNS: Final[list[Column[RunRecord]]] = [
    Column("run", lambda run: run.id),
    Column("spider", lambda run: run.spider),
    Column("command", lambda run: f"scrapy {run.command}" if run.command else None),
    Column("begun", lambda run: rfc3339(run.begun)),
    Column("ended", lambda run: rfc3339(run.ended) or "not yet, or it was killed"),
    Column("how", lambda run: run.how),
    Column("https_signed_by", lambda run: run.settings.get("signing_key") or "none"),
    Column("versions", lambda run: [f"{name} {each}" for name, each in run.versions.items()]),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the page says. Times are in epoch seconds, UTC days."""

    made_at: float
    period: Period
    needs: Sequence[Need]
    news: News
    declared: int  #: sources in the file
    troubles: Sequence[SourceRow]
    waiting: Sequence[HostRow]
    requests: int
    is_cut: bool  #: the log has more requests, which were sent before these
    answers: Mapping[str, int]  #: responses by kind, in the order of the page
    lines: Sequence[HostLine]
    log_days: int  #: for which requests and denials are kept


def build_report(
    state: State, options: Options, sources_file: str, period: Period, now: float
) -> Report:
    """Gather what the state knows of a period; ``now`` is in epoch seconds.

    If the sources file cannot be read, the report has no sources and says why. Raises StateError.
    """
    sources, unread = _sources(sources_file)
    rows = list(overview.build_overview(sources, state, options, now).by_urgency())
    with state.log() as log:
        records, is_cut = _requests(log, period)
        judge = PauseJudge(log.basis(log.bounds(now)))
        lines = host_lines(records, judge, period.includes)
        news = _news(log, period, sources)
    troubles = [row for row in rows if row.problem]
    included = [record for record in records if period.includes(record)]
    waiting = hosts.build_overview(state)
    return Report(
        made_at=now,
        period=period,
        needs=find_needs(
            period.runs, lines, troubles, waiting, unread, judge_clock(state.runs.moments(), now)
        ),
        news=news,
        declared=len(rows),
        troubles=troubles,
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
    # The pause before the first request of a period counts too, unless that request is cut off.
    before = [] if is_cut else log.requests_before(period.span.since)
    by_host = sorted([*before, *sent], key=lambda each: (each.host, each.sent_at, each.id))
    return by_host, is_cut


def _sources(file: str) -> tuple[Sequence[Source], str]:
    try:
        return load_sources(file), ""
    except SourcesError as error:
        return (), str(error)


def _news(log: Log, period: Period, sources: Sequence[Source]) -> News:
    newest = log.newest(period.span, OF_EACH, MOST)
    names = {source.url: source.name for source in sources if source.name}
    return build_news(log.first_seen(period.span), newest, names)


class Need(NamedTuple):
    """One thing to look at, and the section of the page that tells more."""

    text: str
    section: str


def find_needs(
    runs: Sequence[RunRecord],
    lines: Sequence[HostLine],
    troubles: Sequence[SourceRow],
    waiting: Sequence[HostRow],
    unread_sources: str,
    clock: Finding,
) -> list[Need]:
    """Return what needs the operator; empty if nothing does.

    ``unread_sources`` says why the sources file could not be read. ``clock`` judges the times in
    the state.
    """
    return [
        *_of_runs([run for run in runs if not run.command]),
        *([Need(f"{clock.what}: {clock.advice}", "runs")] * bool(clock.status)),
        *_of_pauses(lines),
        *(
            [Need(f"The sources file was not read: {unread_sources}", "sources")]
            * bool(unread_sources)
        ),
        *_of_sources(troubles),
        *_of_hosts(waiting),
    ]


def _of_runs(runs: Sequence[RunRecord]) -> Iterator[Need]:
    early = [run for run in runs if run.how in ENDED_EARLY]
    # Only the newest run may still go on.
    killed = [run for run in runs[1:] if not run.is_over]
    if early:
        last = early[0]
        yield Need(f"{count_of(len(early), 'run')} ended early, the last one: {last.how}", "runs")
    if killed:
        yield Need(f"{count_of(len(killed), 'run')} did not end in order, or still go on", "runs")


def _of_pauses(lines: Sequence[HostLine]) -> Iterator[Need]:
    if short := sum(line.short for line in lines):
        hosts = count_of(sum(line.short > 0 for line in lines), "host")
        were = "was" if short == 1 else "were"
        yield Need(f"{count_of(short, 'pause')} at {hosts} {were} shorter than asked for", "pauses")


def _of_sources(troubles: Sequence[SourceRow]) -> Iterator[Need]:
    counts = Counter(row.problem.what for row in troubles if row.problem)
    for what, words in _WORDS.items():
        if count := counts[what]:
            verb = "has" if what == "moved" and count == 1 else "have" if what == "moved" else ""
            verb = verb or ("is" if count == 1 else "are")
            yield Need(f"{count_of(count, 'source')} {verb} {words}", "sources")


def _of_hosts(waiting: Sequence[HostRow]) -> Iterator[Need]:
    long = [row for row in waiting if row.is_long_hold]
    if long:
        verb = "is" if len(long) == 1 else "are"
        yield Need(f"{count_of(len(long), 'host')} {verb} on hold for over a day", "waiting")


def count_of(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun, thousands apart: `10,000 requests`."""
    return wording.count_of(number, singular, plural).replace(str(number), f"{number:,}", 1)
