"""The rows of ``walsh sources``: each source, its facts in the state, and its next visit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.frontier import start_order
from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.policy.wording import count_of, format_seconds
from walsh_scrapy.programname import program_name
from walsh_scrapy.sources.source import Kind, host_delays, with_delays
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.sources import KnownSource
from walsh_scrapy.state.views import DENIAL_ADVICE
from walsh_scrapy.tools.report.hostrows import on_hold
from walsh_scrapy.tools.report.output import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.hosts import HostSnapshot

#: The problems that come first, in their order.
_URGENT: Final = ("gone", "failing", "refused", "denied")
#: Failures in a row after which a source is worth a look.
_MANY_FAILURES: Final = 5


@dataclass(frozen=True)
class SourceRow:
    """One source: its declaration, its record in the state, and when it is due."""

    source: Source | None  #: None if it is no longer declared
    record: SourceRecord
    due: NextVisit
    entries: int  #: of all its visits
    newest: float | None  #: when the last of them was first seen, in epoch seconds
    host: str  #: the host or registrable domain that paces it
    #: The row of its host, if that may not be requested now.
    waiting: HostSnapshot | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """The kind it is declared as, or was when it was last visited."""
        return self.source.kind if self.source else self.record.kind

    def declared(self, name: str) -> Any:  # noqa: ANN401 - a field of Source
        """Return a field of its declaration, a length in seconds; None if it is not declared."""
        value = getattr(self.source, name) if self.source else None
        return value.total_seconds() if isinstance(value, timedelta) else value

    @cached_property
    def problem(self) -> Problem | None:
        """The problem of the source, and the advice; None if there is none."""
        return problem_of(self.record, self.due.rule)

    @property
    def urgency(self) -> tuple[float, ...]:
        """The sort key: gone, failing, refused, denied, new, visited, undeclared; then due."""
        due_at, problem = self.due.at or 0.0, self.problem
        if self.source is None:
            return (len(_URGENT) + 2, due_at)
        if problem is None or problem.what not in _URGENT:
            return (len(_URGENT) + (self.due.rule != "new"), due_at)
        if problem.what == "failing":
            return (_URGENT.index("failing"), -self.record.failures, due_at)
        if problem.what == "refused":
            return (_URGENT.index("refused"), self.record.refused_since or 0.0)
        return (_URGENT.index(problem.what), due_at)

    @property
    def has_problem(self) -> bool:
        """True if it is gone, failing, refused or denied, and declared."""
        return self.urgency[0] < len(_URGENT)

    @property
    def style(self) -> str:
        """Its colour at a terminal."""
        is_waiting = self.problem is not None and self.problem.what in ("refused", "denied")
        return "" if not self.has_problem else "yellow" if is_waiting else "red"

    @property
    def refused_until(self) -> float | None:
        """Until when its site refuses it, in epoch seconds; None if that is over, or not so."""
        return (self.due.held_until or self.due.at) if self.record.is_refused else None

    def is_stale(self, moment: float) -> bool:
        """Return True if it gave no new entry since ``moment`` (epoch seconds).

        That counts from its first visit if it never gave one.
        """
        since = self.newest or self.record.first_visited_at
        return since is not None and since < moment

    @property
    def next_visit(self) -> str:
        """When it can be visited; a hold of its host comes before that."""
        if self.due.is_due and self.due.held_until is None:
            return "now"
        return rfc3339(self.due.held_until or self.due.at) or "never"

    @property
    def when_due(self) -> str:
        """The same in words."""
        if self.due.is_due:
            return self.due.why if self.due.held_until else "due now"
        return f"due {format_moment(self.due.at)}" if self.due.at else self.due.why

    @property
    def moved(self) -> str:
        """The new URL, and whether it is visited; "" if it did not move."""
        move = self.record.move
        if move is None:
            return ""
        how = "visited there" if move.is_settled else f"watched since {rfc3339(move.since)}"
        if move.is_doubted:
            how = f"failing since {rfc3339(move.failing_since)}, visited where it is declared"
        onward = move.onward
        on = f"; moved on to {onward.to} (watched since {rfc3339(onward.since)})" if onward else ""
        return f"{move.to} ({how}){on}"

    @property
    def host_waits(self) -> tuple[str, float] | None:
        """Why the host must wait, and until when in epoch seconds; None if it need not."""
        if self.waiting is None or self.waiting.reason is None:
            return None
        return self.waiting.reason, self.waiting.times.ready_at()


class Problem(NamedTuple):
    """The problem of a source, its start, and the advice. Times are epoch seconds."""

    what: str  #: gone, refused, failing, denied, moved or resent
    why: str
    advice: str
    command: str = ""  #: that the advice speaks of; "" for none
    begun: float | None = None  #: None if it is not recorded
    seen: float | None = None  #: the last visit

    @property
    def since(self) -> str:
        """Since when, in words."""
        if self.begun:
            return f"since {format_moment(self.begun)}"
        return f"last seen {format_moment(self.seen)}" if self.seen else "since an unknown time"

    @property
    def todo(self) -> str:
        """The advice with its command."""
        return f"{self.advice} {self.command}".rstrip()


def problem_of(record: SourceRecord, rule: str) -> Problem | None:
    """Return the problem of a source; None if there is none.

    ``rule`` is that of its next visit.
    """
    url, seen, move = record.url, record.visited_at, record.move
    program = program_name()
    if rule == "gone":  # it was not requested since
        advice = "Remove it from the sources file. If it is reachable again:"
        command = f"{program} sources resume {url}"
        return Problem("gone", "it answered 410: gone permanently", advice, command, seen, seen)
    if record.outcome.startswith("denied"):
        gate, why = record.outcome.removeprefix("denied by "), f"{record.outcome}: {record.detail}"
        if gate in DENIAL_ADVICE:
            return Problem(
                "denied", why, DENIAL_ADVICE[gate], f"{program} mayfetch {url}", seen=seen
            )
        advice = f"{gate}, a middleware of this project, denies it. To see why:"
        return Problem("denied", why, advice, f"{program} why {url}", seen=seen)
    if record.is_refused:
        why, advice = (
            f"its site answers {record.status}",
            "The site wants a wait. To see its end and its reason:",
        )
        command = f"{program} hosts"
        return Problem("refused", why, advice, command, record.refused_since, seen)
    if record.failures:
        times = count_of(record.failures, "time")
        why = f"{record.detail or 'it failed'} ({times} in a row)"
        return Problem("failing", why, *_of_failing(record), record.failing_since, seen)
    if move and move.is_settled and not move.is_doubted:
        why = f"permanent redirects lead to {record.moved_to}"
        advice = f"Write the new address into the sources file ({program} sources has it)."
        return Problem("moved", why, advice, "", record.moved_since, seen)
    return _resent(record) if record.ignores_validators else None


def _resent(record: SourceRecord) -> Problem:
    """Return why its server seems not to use 304 (R7), and the remedy for its owner."""
    cause = "its server does not compare them"
    how = "compare If-None-Match and If-Modified-Since with the last answer."
    if record.etag and record.etag.startswith(b"W/"):  # RFC 9110 13.1.2
        cause = "its ETag is weak: a proxy such as nginx with gzip may have weakened it"
        how = (
            "compare If-None-Match weakly (with and without W/), or leave the ETag as it "
            "is on its way (nginx: no gzip for feeds)."
        )
    times = count_of(record.resent, "time")
    return Problem(
        "resent",
        f"never 304: the same document came {times} in a row for its validators; {cause}",
        "Each visit costs the site a whole document. Its owner could have it answer 304: " + how,
        seen=record.visited_at,
    )


def _of_failing(record: SourceRecord) -> tuple[str, str]:
    """Return the advice for a source that fails, and the command for it."""
    status, lasting = record.status or 0, record.failures >= _MANY_FAILURES
    look = f"{program_name()} discover {record.url}"
    if status in (401, 402, 403):
        return "The site does not want this. Ask its owner, or remove it from the sources file.", ""
    if status in (404, 405, 451):
        return "Nothing is at this address. Look where it is now:", look
    if 0 < status < 300:
        return "The document could not be read as a feed. Look for others of the site:", look
    if status >= 500 and lasting:
        return "Its server keeps failing. Write to its owner, or remove it.", ""
    if lasting:
        return "It has not answered for long. Check its address, or remove it:", look
    it = "Its server failed" if status >= 500 else "It did not answer"
    return f"{it}. Nothing to do yet: it is tried again by itself.", ""


@dataclass(frozen=True, slots=True)
class Overview:
    """The rows of all declared sources, and of sources that only the state still has."""

    declared: Sequence[SourceRow]
    undeclared: Sequence[SourceRow]
    delays: Mapping[str, float]  #: seconds by host, of the sources file

    def by_urgency(self, *, undeclared: bool = False) -> list[SourceRow]:
        """Return the rows, those that need the operator first, then by the next visit."""
        rows = [*self.declared, *self.undeclared] if undeclared else self.declared
        return sorted(rows, key=attrgetter("urgency"))

    @property
    def by_url(self) -> dict[str, SourceRow]:
        """All rows by URL."""
        return {row.record.url: row for row in (*self.declared, *self.undeclared)}

    def due(self, delays: Mapping[str, float]) -> list[SourceRow]:
        """Return the rows that are due now, one kind after the other, in the order of a run.

        ``delays`` are the known delays of hosts, in seconds.
        """
        known = with_delays(delays, self.delays)
        ordered: list[SourceRow] = []
        for kind in get_args(Kind):
            due = (
                (row.host, row.due.at or 0.0, row)
                for row in self.declared
                if row.due.is_due and row.kind == kind
            )
            ordered += start_order(due, known)
        return ordered


def build_overview(
    sources: Sequence[Source],
    state: State | None,
    options: Options,
    now: float,
    *,
    only_these: bool = False,
) -> Overview:
    """Join the declared sources with the state; without a state all of them are new.

    ``only_these`` reads nothing of other sources, so that none is undeclared.
    """
    known = known_sources(state, sources, options, now, only_these=only_these)
    these = [each.record.url for each in known.values()] if only_these else None
    totals = state.sources.entry_totals(these) if state else {}
    waiting = state.hosts.waiting() if state else {}

    def row(source: Source | None, found: KnownSource) -> SourceRow:
        record = found.record
        host = options.pace_by.unit(record.address)
        due = next_visit(found, source, options.min_revisit, now)
        entries, newest = totals.get(record.url, (0, None))
        waits = waiting.get(host)
        if waits and waits.hold:
            due = due.held(host_of(record.address), waits.times.hold_until)
        return SourceRow(
            source=source,
            record=record,
            due=due,
            entries=entries,
            newest=newest,
            host=host,
            waiting=waits,
        )

    declared = [row(source, declared_source(source, known)) for source in sources]
    others = [row(None, found) for found in undeclared(sources, known)]
    delays = host_delays(sources, options.pace_by.unit)
    return Overview(declared, others, delays)


def known_sources(
    state: State | None,
    sources: Sequence[Source],
    options: Options,
    now: float,
    *,
    only_these: bool = False,
) -> dict[int, KnownSource]:
    """Return the rows of all sources, as of ``now``; none without a state."""
    least = options.min_revisit
    return state.sources.known(least, now, sources, only_given=only_these) if state else {}


def declared_source(source: Source, known: Mapping[int, KnownSource]) -> KnownSource:
    """Return the row of a declared source, under its declared URL."""
    if (found := known.get(url_key(source.url))) is None:
        return KnownSource(SourceRecord(url=source.url, kind=source.kind), 0.0, "new")
    return found._replace(record=found.record.with_url(source.url))


def undeclared(sources: Iterable[Source], known: Mapping[int, KnownSource]) -> list[KnownSource]:
    """Return the rows of all sources except these."""
    keys = {url_key(source.url) for source in sources}
    return [found for key, found in known.items() if key not in keys]


def _of_record(*names: str, shown: bool = False) -> Iterator[Column[SourceRow]]:
    """Yield columns with fields of the row; None for empty ones."""

    def reader(name: str) -> Callable[[SourceRow], Any]:
        def read(row: SourceRow) -> Any:  # noqa: ANN401 - for JSON
            value = getattr(row.record, name)
            if name.endswith(("_at", "_since")):
                return rfc3339(value)
            return (
                value.decode("latin-1")
                if isinstance(value, bytes)
                else value
                if value != ""
                else None
            )

        return read

    return (Column(name, reader(name), shown) for name in names)


def _of_problem(name: str) -> Callable[[SourceRow], Any]:
    return lambda row: (getattr(row.problem, name) or None) if row.problem else None


#: The columns of a source: JSON has all, text the shown ones. Times are RFC 3339 in UTC.
COLUMNS: Final[list[Column[SourceRow]]] = [
    Column("url", lambda row: row.record.url),
    Column("outcome", lambda row: row.record.outcome),
    *_of_record("status", "failures", "visited_at", shown=True),
    Column("next_visit", lambda row: row.next_visit),
    Column("due_why", lambda row: row.due.why),
    Column("entries", lambda row: row.entries),
    Column("newest_entry", lambda row: rfc3339(row.newest)),
    Column("kind", lambda row: row.kind),
    Column("name", lambda row: row.declared("name")),
    Column("tags", lambda row: list(row.declared("tags") or ()), shown=False),
    Column("declared", lambda row: row.source is not None, shown=False),
    Column("problem", _of_problem("what")),
    Column("problem_since", lambda row: rfc3339(row.problem.begun) if row.problem else None),
    Column("problem_why", _of_problem("why")),
    Column("advice", _of_problem("todo")),
    *_of_record("detail", shown=True),
    Column("moved", lambda row: row.moved or None),
    *_of_record("failing_since", "refused_since"),
    Column("refused_until", lambda row: rfc3339(row.refused_until), shown=False),
    *_of_record("resent"),
    Column("due", lambda row: row.due.is_due, shown=False),
    Column("due_at", lambda row: rfc3339(row.due.at), shown=False),
    Column("due_rule", lambda row: row.due.rule, shown=False),
    *_of_record(
        *(
            "moved_to",
            "moved_since",
            "move_settled",
            "first_visited_at",
            "format",
            "server_interval",
        ),
        *("feed_interval", "skip_hours", "skip_days", "validator_url", "etag", "last_modified"),
    ),
    Column("folder", lambda row: "/".join(row.declared("folders") or ()) or None, shown=False),
    Column("page", lambda row: row.declared("page"), shown=False),
    Column("every", lambda row: row.declared("every"), shown=False),
    Column("delay", lambda row: row.declared("delay"), shown=False),
    Column("host", lambda row: row.host, shown=False),
    Column("host_waits", lambda row: row.host_waits[0] if row.host_waits else None),
    Column("host_waits_until", lambda row: rfc3339(row.host_waits[1]) if row.host_waits else None),
]


def totals(rows: Sequence[SourceRow]) -> str:
    """Return one line: the number of sources, of each problem, and of due ones."""
    told = [row.problem.what if row.has_problem and row.problem else "" for row in rows]
    new = sum(row.due.rule == "new" and not what for row, what in zip(rows, told, strict=True))
    parts = [f"{count} {what}" for what, count in Counter(filter(None, told)).items()]
    parts += [f"{new} new"] * bool(new)
    held = sum(row.due.held_until is not None for row in rows)
    parts.append(f"{sum(row.due.is_due for row in rows) - held} due now")
    parts += [f"{held} due but on hold"] * bool(held)
    return f"{count_of(len(rows), 'source')}: {', '.join(parts)}"


class NextVisit(NamedTuple):
    """The next visit of a source.

    ``at`` is in epoch seconds; it is None for a source that was never visited, was resumed, is gone
    or is not declared.
    """

    at: float | None
    rule: str  #: one word, for programs
    why: str  #: the same in words, for operators
    is_due: bool = False
    held_until: float | None = None  #: epoch seconds: it is due, but its host is on hold

    def held(self, host: str, until: float) -> NextVisit:
        """Return this visit while its host is on hold until then; one that is not due stays."""
        if not self.is_due:
            return self
        return self._replace(why=f"due, but {on_hold(host, until)}", held_until=until)


def next_visit(
    known: KnownSource, source: Source | None, min_revisit: float, now: float
) -> NextVisit:
    """Return the next visit of a source as of ``now`` (epoch seconds).

    ``source`` is None for one that is not declared.
    ``min_revisit`` is in seconds.
    """
    if source is None:
        return NextVisit(None, "undeclared", "no longer declared")
    record, at, rule = known
    if rule == "operator":
        is_rarer = source.revisit_interval(min_revisit) > min_revisit
        rule = "failing" if record.failures else "every" if is_rarer else "revisit"
    elif rule == "asked":
        wished = max(record.server_interval, record.feed_interval)
        is_later = at > (record.visited_at or 0.0) + wished
        if is_later and (record.skip_hours or record.skip_days):
            rule = "skip"
        else:
            rule = "feed" if record.feed_interval == wished else "server"
    moment = at if 0.0 < at < NEVER else None
    return NextVisit(moment, rule, _why(rule, record, at), is_due=at <= now)


def _why(rule: str, record: SourceRecord, at: float) -> str:
    span = format_seconds(at - (record.visited_at or 0.0)) if 0.0 < at < NEVER else ""
    skips = {"skipHours": record.skip_hours, "skipDays": record.skip_days}
    return {
        "new": f"refused ({record.status})" if record.is_refused else "not visited yet",
        "clock": f"its last visit lies in the future, {format_moment(record.visited_at or 0.0)}",
        "gone": "when you resume it",
        "resumed": "you resumed it",
        "skip": f"the feed's {' and '.join(name for name, value in skips.items() if value)}",
        "failing": f"failing, {'doubled to' if record.failures > 1 else 'again after'} {span}",
        "feed": f"the feed wants {span}",
        "server": f"the server wants {span}",
        "every": f"every {span}, as declared",
        "revisit": f"every {span}",
    }[rule]
