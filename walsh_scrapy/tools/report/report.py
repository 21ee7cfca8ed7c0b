"""The report: what the state knows of a period, gathered and shaped for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walsh_scrapy.sources import SourcesError, load_sources
from walsh_scrapy.tools import hosts
from walsh_scrapy.tools.hosts import held_name, paced_name, unit_of
from walsh_scrapy.tools.report.needs import find_needs
from walsh_scrapy.tools.report.news import MOST, OF_EACH, News, build_news
from walsh_scrapy.tools.report.responses import Gate, Share, gates, shares
from walsh_scrapy.tools.report.spacing import HostLine, host_lines
from walsh_scrapy.tools.report.trouble import MOST_TROUBLES, Trouble, find_troubles, in_trouble
from walsh_scrapy.tools.sources import overview
from walsh_scrapy.tools.status.findings import judge_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.history import DenialCount, LoggedRequest, Visit
    from walsh_scrapy.tools.hosts import HostRow
    from walsh_scrapy.tools.report.needs import Need
    from walsh_scrapy.tools.report.period import Period
    from walsh_scrapy.tools.sources.overview import SourceRow

#: Requests that are read: as many as fit into 500 MB of memory.
MOST_READ: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the page says. Times are in epoch seconds, UTC days."""

    made_at: float
    period: Period
    needs: Sequence[Need]
    news: News
    declared: int  #: sources in the file
    troubles: Sequence[Trouble]
    resting: Sequence[HostRow]
    requests: int
    is_cut: bool  #: the log has more requests, which were sent before these
    shares: Sequence[Share]
    gates: Sequence[Gate]
    lines: Sequence[HostLine]
    log_days: int  #: for which requests and denials are kept


def build_report(
    state: State, options: Options, sources_file: str, period: Period, now: float
) -> Report:
    """Gather what the state knows of a period; ``now`` is in epoch seconds.

    A sources file that cannot be read costs the report its sources, and is told. Raises StateError.
    """
    sources, unread = _sources(sources_file)
    found = overview.build_overview(sources, state, options, now)
    # A page about one host names no site that moved there (decision 33).
    rows = [
        row
        for row in found.by_urgency()
        if period.host in (None, paced_name(row.record.url, options.pace_by))
    ]
    included: list[LoggedRequest] = []

    def is_included(record: LoggedRequest) -> bool:
        if not period.includes(record):
            return False
        included.append(record)
        return True

    span = period.span
    sent = state.history.requests(span.since, span.until, period.host, MOST_READ)
    is_cut = len(sent) == MOST_READ
    # The pause before the first request of a period counts too, unless that request is cut off.
    before = [] if is_cut else state.history.last_before(span.since, period.host)
    lines = host_lines(
        [*before, *sent],
        lambda url: held_name(url, options.pace_by),
        state.history.releases(),
        is_included,
    )
    troubles = _troubles(state, rows)
    resting = [row for row in hosts.build_overview(state) if period.host in (None, row.host)]
    return Report(
        made_at=now,
        period=period,
        needs=find_needs(
            period.runs, lines, troubles, resting, unread, judge_clock(state.moments.latest(), now)
        ),
        news=_news(state, period, options, sources),
        declared=len(rows),
        troubles=troubles,
        resting=resting,
        requests=len(included),
        is_cut=is_cut,
        shares=shares(included),
        gates=gates(included, _denials(state, period, options)),
        lines=lines,
        log_days=options.log_days,
    )


def _sources(file: str) -> tuple[Sequence[Source], str]:
    try:
        return load_sources(file), ""
    except SourcesError as error:
        return (), str(error)


def _troubles(state: State, rows: Sequence[SourceRow]) -> list[Trouble]:
    wrong = [row for row in rows if in_trouble(row)]
    listed = {url for row in wrong[:MOST_TROUBLES] for url in (row.record.url, row.record.address)}
    visits: dict[str, list[Visit]] = {}
    for visit in state.history.visits(listed):
        visits.setdefault(visit.url, []).append(visit)
    return find_troubles(wrong, visits)


def _denials(state: State, period: Period, options: Options) -> list[DenialCount]:
    """Return what gates denied. Denials name the host; a period may name its domain."""
    return [
        denial
        for denial in state.history.denials(period.span)
        if period.host in (None, unit_of(denial.host, options.pace_by))
    ]


def _news(state: State, period: Period, options: Options, sources: Sequence[Source]) -> News:
    def is_included(url: str) -> bool:
        return period.host in (None, paced_name(url, options.pace_by))

    moments = state.history.moments(period.span)
    if period.host is not None:
        moments = {url: seen for url, seen in moments.items() if is_included(url)}
    only = None if period.host is None else tuple(moments)
    newest = state.history.newest(period.span, OF_EACH, MOST, only)
    names = {source.url: source.name for source in sources if source.name}
    return build_news(moments, newest, names)
