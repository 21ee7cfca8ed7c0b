"""The findings from the facts, one per check; in words, as JSON, and as metrics."""

from __future__ import annotations

import json
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import and_more, count_of, format_seconds, printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.hosts import COLUMNS as HOSTS
from walsh_scrapy.tools.output import Row, as_dict, columns
from walsh_scrapy.tools.runs import COLUMNS as RUNS
from walsh_scrapy.tools.sources.overview import COLUMNS as SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from walsh_scrapy.tools.hosts import HostRow
    from walsh_scrapy.tools.output import Column
    from walsh_scrapy.tools.runs import RunRow
    from walsh_scrapy.tools.sources.overview import SourceRow
    from walsh_scrapy.tools.status.facts import Facts

_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
_MIB: Final = 1024 * 1024
_CLOCK: Final = (
    "is this machine's clock right? Then another wrote them: crawls replace those of sources, hosts"
    " and lists, and those of runs, requests and entries stay until they are past or deleted"
)
#: Hosts that a finding names; the others are counted.
MOST_HOSTS: Final = 3
#: Rows of a finding in JSON.
MOST_ROWS: Final = 100


class Status(IntEnum):
    """The statuses of a monitoring plugin; the exit statuses are those of every command."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3

    @property
    def exit_status(self) -> int:
        """0 if all is well, 3 if that cannot be said, else 1."""
        return int(self) if self in (Status.OK, Status.UNKNOWN) else 1


class Finding(NamedTuple):
    """The result of one check, and the advice."""

    status: Status
    check: str
    what: str
    advice: str = ""
    rows: tuple[dict[str, Any], ...] = ()  #: the sources, hosts or runs that it is about, by column

    @property
    def told(self) -> str:
        """The result with the advice."""
        return f"{self.what} ({self.advice})" if self.advice else self.what


class Limits(NamedTuple):
    """The values beyond which something is a WARNING, and CRITICAL."""

    warning: float
    critical: float

    def above(self, value: float) -> Status:
        """Return the status of a value that must not be large."""
        if value > self.critical:
            return Status.CRITICAL
        return Status.WARNING if value > self.warning else Status.OK

    def below(self, value: float) -> Status:
        """Return the status of a value that must not be small."""
        return Limits(-self.warning, -self.critical).above(-value)


class Thresholds(NamedTuple):
    """The limits of each check. The defaults suit a schedule with at least one run per day."""

    run_hours: Limits = Limits(26, 50)  #: since the last good run
    failing: Limits = Limits(25, 50)  #: percent of the sources


#: Hours since the blocklist was to be requested again.
_LIST_HOURS: Final = Limits(26, 168)
#: MiB that are free where the state is.
DISK_MIB: Final = Limits(1024, 128)


def find(facts: Facts, limits: Thresholds) -> list[Finding]:
    """Return a finding for each check that applies, the worst first."""
    found = [
        _run(facts, limits.run_hours),
        _killed(facts),
        _blocklist(facts),
        _sources(facts, limits.failing),
        _refused(facts),
        _hosts(facts),
        _workers(facts),
        _disk(facts),
        check_clock(facts.latest, facts.now),
    ]
    return sorted(filter(None, found), key=lambda each: -each.status)


def worst(findings: list[Finding]) -> Status:
    """Return the status of the whole: UNKNOWN only if nothing is known to be wrong."""
    statuses = {each.status for each in findings}
    for status in (Status.CRITICAL, Status.WARNING, Status.UNKNOWN):
        if status in statuses:
            return status
    return Status.OK


def _run(facts: Facts, limits: Limits) -> Finding:
    if facts.first_run is None:
        what = "no crawl is recorded"
        if "runs" in ahead(facts.latest, facts.now):
            what += " but such that lie in the future"
        return Finding(Status.WARNING, "run", what, "start `scrapy crawl feeds`")
    since = facts.first_run if facts.good_run is None else facts.good_run
    age = max(0.0, facts.now - since)
    status = limits.above(age / _HOUR)
    if facts.good_run is None:
        what = f"no run has ended well since {format_moment(since)}"
    else:
        what = f"the last good run ended {format_seconds(age)} ago"
    rows = [*facts.open_runs[:1]]
    if facts.bad_run:
        what += f"; the last run failed, {facts.bad_run.record.spider}: {facts.bad_run.problem}"
        status = max(status, Status.WARNING)
        rows.insert(0, facts.bad_run)
    if facts.open_runs:
        newest = facts.open_runs[0].record
        began = max(0.0, facts.now - newest.started_at)
        what += f"; {newest.spider} began {format_seconds(began)} ago"
    return Finding(status, "run", what, "look at its log" if status else "", _rows(rows, RUNS))


def killed(facts: Facts) -> list[RunRow]:
    """Return the runs that were killed, of the last two days."""
    recent = facts.now - 2 * _DAY
    return [row for row in facts.open_runs if row.was_killed and row.last_sign >= recent]


def _killed(facts: Facts) -> Finding:
    found = killed(facts)
    if not found:
        return Finding(Status.OK, "killed", "no run was killed")
    last = found[0]
    what = (
        f"{count_of(len(found), 'run')} did not end: {last.record.spider} began at "
        f"{format_moment(last.record.started_at)} and gave its last sign at "
        f"{format_moment(last.last_sign)}"
    )
    advice = "was it killed, or out of memory?"
    return Finding(Status.WARNING, "killed", what, advice, _rows(found, RUNS))


def _blocklist(facts: Facts) -> Finding | None:
    if facts.list_error:
        return Finding(Status.CRITICAL, "blocklist", facts.list_error, "no run can start")
    if not facts.has_blocklist:
        return None
    if facts.list_checked is None:
        return Finding(Status.WARNING, "blocklist", "none was adopted yet", "look at the log")
    if facts.list_checked > facts.now + CLOCK_SKEW:
        what = f"its copy is of {format_moment(facts.list_checked)}, in the future"
        return Finding(Status.WARNING, "blocklist", what, "the next crawl requests it again")
    age = max(0.0, facts.now - facts.list_checked)
    status = _LIST_HOURS.above((age - facts.list_refresh) / _HOUR)
    what = f"its copy is {format_seconds(age)} old, to be requested again after "
    what += format_seconds(facts.list_refresh)
    return Finding(status, "blocklist", what, "its server does not answer" if status else "")


def _sources(facts: Facts, limits: Limits) -> Finding | None:
    if facts.sources_error:
        return Finding(Status.CRITICAL, "sources", facts.sources_error, "no run can start")
    if not facts.sources:
        return None
    share = 100.0 * facts.failing / facts.sources
    status = limits.above(share)
    total = count_of(facts.sources, "source")
    what = f"{facts.failing} of {total} failing ({share:.0f} %)"
    advice = f"`{program_name()} sources` has them first" if status else ""
    return Finding(status, "sources", what, advice, _rows(facts.failing_rows, SOURCES))


def _refused(facts: Facts) -> Finding | None:
    if not facts.refused:
        return None
    long = [row for row in facts.refused if facts.now - _refused_since(row, facts) > _DAY]
    if not long:
        what = f"{count_of(len(facts.refused), 'source')} refused (429, 503), none for over a day"
        return Finding(Status.OK, "refused", what)
    long.sort(key=lambda row: _refused_since(row, facts))
    first: dict[str, SourceRow] = {}
    for row in long:
        first.setdefault(host_of(row.record.address), row)
    listed = _listed([_refusal(host, row, facts) for host, row in first.items()])
    what = f"{count_of(len(long), 'source')} refused for over a day: {listed}"
    advice = f"`{program_name()} sources --failing` has them all"
    return Finding(Status.WARNING, "refused", what, advice, _rows(long, SOURCES))


def _refused_since(row: SourceRow, facts: Facts) -> float:
    return row.record.refused_since or facts.now


def _refusal(host: str, row: SourceRow, facts: Facts) -> str:
    until = row.refused_until
    status = f" ({row.record.status})" if row.record.status else ""
    since = format_moment(_refused_since(row, facts))
    return f"{host}{status} since {since}{f' until {format_moment(until)}' if until else ''}"


def long_holds(facts: Facts) -> list[HostRow]:
    """Return the hosts with a hold of more than a day, the longest first."""
    return sorted(
        (row for row in facts.held if row.is_long_hold),
        key=lambda row: (-row.snapshot.times.hold_until, row.host),
    )


def _hosts(facts: Facts) -> Finding:
    found, total = long_holds(facts), len(facts.held)
    if not found:
        what = f"none is on hold for over a day, {total} on hold in all"
        return Finding(Status.OK, "hosts", what)
    listed = _listed(
        [f"{row.host} until {format_moment(row.snapshot.times.hold_until)}" for row in found]
    )
    what = f"{count_of(len(found), 'host')} on hold for over a day: {listed}"
    advice = f"`{program_name()} hosts` shows why"
    return Finding(Status.WARNING, "hosts", what, advice, _rows(found, HOSTS))


def _rows(rows: Iterable[Row], columns: Iterable[Column[Row]]) -> tuple[dict[str, Any], ...]:
    columns = tuple(columns)
    return tuple(as_dict(row, columns) for row in islice(rows, MOST_ROWS))


def _listed(hosts: list[str]) -> str:
    more = f" {and_more(len(hosts) - MOST_HOSTS)}" if len(hosts) > MOST_HOSTS else ""
    return ", ".join(hosts[:MOST_HOSTS]) + more


def _workers(facts: Facts) -> Finding | None:
    if not facts.workers:
        return None
    hosts = sum(each.hosts for each in facts.workers)
    crawls = count_of(len(facts.workers), "crawl")
    return Finding(Status.OK, "workers", f"{crawls} at work, with {count_of(hosts, 'host')}")


def _disk(facts: Facts) -> Finding | None:
    if not facts.disk:
        return None
    free = facts.disk_free / _MIB
    status = DISK_MIB.below(free)
    what = f"{free:,.0f} MiB free in {facts.disk}"
    return Finding(status, "disk", what, "a full disk ends each run" if status else "")


def clock_ahead(facts: Facts) -> float:
    """Return the seconds that the latest time in the state lies in the future; 0 if none."""
    return max(0.0, max(facts.latest.values(), default=0.0) - facts.now)


def ahead(latest: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the latest time of each table in which one lies in the future (decision 39)."""
    return {name: at for name, at in sorted(latest.items()) if at > now + CLOCK_SKEW}


def check_clock(latest: Mapping[str, float], now: float) -> Finding:
    """Check the latest time of each table, all in epoch seconds."""
    found = ahead(latest, now)
    if not found:
        return Finding(Status.OK, "clock", "no time in the state lies in the future")
    tables = ", ".join(f"{name} until {format_moment(at)}" for name, at in found.items())
    what = f"times of {tables} lie in the future and do not count"
    return Finding(Status.WARNING, "clock", what, _CLOCK)


def status_lines(findings: list[Finding]) -> Iterator[str]:
    """Yield the status of the whole, which a monitor shows, and then one line per finding."""
    status = worst(findings)
    problem = ", ".join(each.check for each in findings if each.status)
    yield f"{status.name}: {problem or 'all is well'}"
    yield from columns([(each.status.name, each.check, each.told) for each in findings])


def status_json(findings: list[Finding], now: float) -> str:
    """Return the same as one JSON object on one line."""
    status = worst(findings)
    found = [
        {
            "status": each.status.name,
            "check": each.check,
            "what": printable(each.what),
            "advice": each.advice or None,
            "rows": each.rows,
        }
        for each in findings
    ]
    return json.dumps(
        {"status": status.name, "exit": status.exit_status, "at": rfc3339(now), "findings": found}
    )


def write_metrics(path: str, findings: list[Finding], facts: Facts | None, now: float) -> None:
    """Write the facts as metrics of Prometheus, for the node exporter's textfile collector.

    A temporary file is renamed, so no reader sees half of one.

    ``facts`` is None if the state cannot be read. Then there are only the status and the time; a
    number of an earlier moment would look as if all were well. Raises OSError.
    """
    from prometheus_client import CollectorRegistry, Gauge
    from prometheus_client.exposition import write_to_textfile

    registry = CollectorRegistry()

    def gauge(name: str, help_text: str, value: float) -> None:
        Gauge(f"walsh_{name}", help_text, registry=registry).set(value)

    gauge("status", "0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.", worst(findings))
    gauge("status_timestamp_seconds", "When the status was read.", now)
    checks = Gauge("walsh_check", "The status of one check.", ["check"], registry=registry)
    for each in findings:
        checks.labels(each.check).set(each.status)
    if facts is not None:
        _add_facts(gauge, facts)
    write_to_textfile(path, registry)


def _add_facts(gauge: Callable[[str, str, float], None], facts: Facts) -> None:
    if facts.good_run is not None:
        gauge("last_good_run_timestamp_seconds", "End of the last good run.", facts.good_run)
    gauge("killed_runs", "Runs of the last two days without an end.", len(killed(facts)))
    if facts.list_checked is not None and "blocklist" not in ahead(facts.latest, facts.now):
        checked, refresh = facts.list_checked, facts.list_refresh
        gauge("blocklist_checked_timestamp_seconds", "When its server answered last.", checked)
        gauge("blocklist_refresh_seconds", "Seconds until it is requested again.", refresh)
    gauge("sources", "Declared sources.", facts.sources)
    gauge("sources_failing", "Declared sources whose last visit failed.", facts.failing)
    gauge("sources_refused", "Declared sources that their sites refuse.", len(facts.refused))
    if facts.refused:
        first = min(row.record.refused_since or facts.now for row in facts.refused)
        gauge("sources_refused_since_timestamp_seconds", "The first refusal.", first)
    gauge("hosts_on_hold", "Hosts on hold.", len(facts.held))
    gauge("hosts_on_long_hold", "Hosts on hold for over a day.", len(long_holds(facts)))
    gauge("workers", "Crawls that share the work now.", len(facts.workers))
    if facts.disk:
        gauge("state_disk_free_bytes", "Free where the state is.", facts.disk_free)
    gauge("clock_ahead_seconds", "How far times in the state are ahead.", clock_ahead(facts))
