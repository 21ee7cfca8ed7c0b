"""Judges random days by three records: the log of the servers, the audit, and `request_gaps`.

The log of the servers is judged by `walsh_scrapy.testing.politeness`, and once more here, by a
small oracle that knows what each page was at each moment, and so needs no parser. The oracle
follows what the crawler knows: an answer that came just before a kill may be unknown to the next
run. If a clock was set forward in between, a wait may be shorter by as much; if it was set back, a
copy may be older.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from sqlalchemy import text

from tests.acceptance.playdays import Played, Run
from tests.acceptance.randomdays import (
    DAY,
    HOUR,
    LIST_HOST,
    LIST_URL,
    PRIVATE_HOST,
    REFRESH,
    OptOuts,
    Phases,
    Robots,
    phase_at,
    shown_time,
)
from walsh_scrapy.feeds.attest import attest
from walsh_scrapy.state import State
from walsh_scrapy.testing.hit import Hit, redirect_target
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.simulation import EPOCH

#: The precision of simulated time.
TINY: Final = 1e-3
#: Seconds that a time in the state may differ from the real one (`request_gaps`), and the same per
#: second of a gap.
TOLERANCE: Final = 0.05
DRIFT: Final = 0.001
#: Seconds after which a worker that lives has written an answer that others must know.
WRITTEN: Final = 0.5
#: Seconds without a refusal that end a row of them.
QUIET: Final = HOUR / 2
#: The hold after the first refusal without Retry-After, and the longest one without its jitter.
BACKOFF: Final = (2.0, 200.0)
#: Seconds by which a request may be later than the check of a document.
LATE: Final = HOUR
#: Delays and holds of the host of the list count so many seconds for the list.
LIST_WAIT: Final = DAY
_REFUSALS: Final = frozenset({429, 503})


@dataclass(frozen=True)
class Seen:
    """A request and the run that sent it."""

    hit: Hit
    run: Run
    is_last: bool  #: the last request of its run to its host

    @property
    def is_known(self) -> bool:
        """Whether later runs certainly know the answer: the worker went on."""
        return not (self.run.is_killed and self.is_last)

    @property
    def is_written(self) -> bool:
        """Whether later runs certainly know a hold that came with the answer."""
        return self.is_known or self.run.ended > self.hit.ended + WRITTEN

    def __str__(self) -> str:
        hit = self.hit
        return f"{shown_time(hit.started)} {hit.url} ({hit.status or 'no answer'})"


@dataclass
class _Hold:
    until: float
    cause: Seen


@dataclass
class _Copy:
    """A robots.txt as the crawler may know it."""

    rules: Robots | None = None  #: None: everything is allowed
    before: Robots | None = None  #: the rules before these, if those may be lost
    is_certain: bool = True
    tried_at: float = -math.inf
    tried_by: Run | None = None


@dataclass
class _HostLog:
    last: Seen | None = None  #: the request that ended last
    delay: float = 0.0  #: that its origin asked for then
    holds: list[_Hold] = field(default_factory=list)
    refusal: Seen | None = None  #: the last one
    row: int = 0  #: refusals in a row
    operator_delay: float = 0.0


def judge(played: Played) -> list[str]:
    """Return a sentence for each fault: R1 to R8, `attest`, `request_gaps` or `crash` first."""
    if crashes := [f"crash: {run.error}" for run in played.runs if run.error]:
        return crashes
    seen = list(all_seen(played.runs))
    oracle = Oracle(played)
    for one in seen:
        oracle.see(one)
    faults = [*oracle.faults, *_by_politeness(played, seen), *_by_items(played)]
    with closing(State(played.state_url)) as state:
        faults += _by_audit(state, played)
        faults += _by_gaps(state, seen, oracle)
    return faults


def all_seen(runs: Sequence[Run]) -> Iterator[Seen]:
    """Yield the requests of all runs in the order of their starts."""
    pairs = sorted(((hit, run) for run in runs for hit in run.log), key=lambda one: one[0].started)
    last = {(id(run), hit.host): hit for hit, run in pairs}
    for hit, run in pairs:
        yield Seen(hit, run, last[id(run), hit.host] is hit)


class Oracle:
    """Follows the log of the servers, and accuses."""

    def __init__(self, played: Played) -> None:
        self.faults: list[str] = []
        #: The seconds that had to pass since the end of the previous exchange with the host.
        self.required: dict[int, float] = {}
        self._days = played.days
        self._acts = sorted(played.acts, key=lambda act: act.at)
        self._hosts: defaultdict[str, _HostLog] = defaultdict(_HostLog)
        self._copies: defaultdict[str, _Copy] = defaultdict(_Copy)
        self._busy: dict[int, Seen] = {}  # by run, the request that ended last
        # By run and hop: the origins whose robots.txt led there.
        self._fetched_for: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        self._listed: tuple[str, ...] = ()
        self._maybe_listed: tuple[str, ...] | None = None
        self._list_tried: Seen | None = None
        self._targets: set[str] = set()
        self._hops: set[tuple[int, str]] = set()  # by run, the targets of redirects
        self._visited: dict[str, Seen] = {}
        self._gone: dict[str, Seen] = {}
        self._etags: defaultdict[str, set[str]] = defaultdict(set)

    def see(self, seen: Seen) -> None:
        """Judge a request, and learn from its answer."""
        self._apply_acts(seen.hit.started)
        is_robots = self._is_robots(seen)
        self._check_pace(seen)
        self._check_holds(seen, is_robots=is_robots)
        self._check_list(seen)
        if not is_robots and seen.hit.url != LIST_URL:
            self._check_robots(seen)
            self._check_scope(seen)
            self._check_visit(seen)
        self._learn(seen, is_robots=is_robots)

    def accuse(self, rule: str, seen: Seen, words: str) -> None:
        """Add a fault."""
        self.faults.append(f"{rule}: {seen} {words}")

    def _apply_acts(self, now: float) -> None:
        while self._acts and self._acts[0].at <= now:
            act = self._acts.pop(0)
            if act.what == "release":
                self._hosts[act.subject].holds.clear()
            elif act.what == "resume":
                self._gone.pop(act.subject, None)
                self._visited.pop(act.subject, None)
            else:
                self._hosts[act.subject].operator_delay = act.seconds

    def _is_robots(self, seen: Seen) -> bool:
        is_hop = self._fetched_for[id(seen.run), seen.hit.url]
        return seen.hit.path == "/robots.txt" or bool(is_hop)

    # ---- R4 and R5 ----

    def _check_pace(self, seen: Seen) -> None:
        hit, log = seen.hit, self._hosts[seen.hit.host]
        busy = self._busy.get(id(seen.run))
        if busy and hit.started < busy.hit.ended - TINY:
            self.accuse("R4", seen, f"was sent before the end of {busy}")
        if log.last is None:
            return
        gap = hit.started - log.last.hit.ended
        if gap < -TINY:
            self.accuse("R4", seen, f"was sent to the host during {log.last}")
        delay = max(log.delay, self._delay_of(hit.origin))
        if log.last.is_known:
            delay = max(delay, log.last.hit.ended - log.last.hit.started)
        if hit.host == LIST_HOST:
            delay = min(delay, LIST_WAIT)
        delay = max(1.0, delay, log.operator_delay)
        self.required[id(hit)] = delay
        if gap < delay - _forward(log.last.run, seen.run) - TINY:
            self.accuse("R4", seen, f"came {gap:.3f} s after {log.last}, and not {delay:.3f} s")

    def _delay_of(self, origin: str) -> float:
        copy = self._copies[origin]
        delays = [rules.delay for rules in (copy.rules, copy.before) if rules]
        if copy.is_certain:
            return copy.rules.delay if copy.rules else 0.0
        return min(delays) if len(delays) == 2 else 0.0

    def _check_holds(self, seen: Seen, *, is_robots: bool) -> None:
        hit = seen.hit
        for hold in self._hosts[hit.host].holds:
            until = hold.until
            if hit.host == LIST_HOST:
                until = min(until, hold.cause.hit.ended + LIST_WAIT)
            early = until - _forward(hold.cause.run, seen.run) - hit.started
            if early > TINY:
                self.accuse("R5", seen, f"came {early:.3f} s before the end of {hold.cause}'s hold")

    def _learn_hold(self, seen: Seen, *, is_robots: bool) -> None:
        hit, log = seen.hit, self._hosts[seen.hit.host]
        is_refused = hit.status in _REFUSALS or (
            is_robots and (hit.status >= 500 or not hit.status)
        )
        if not seen.is_written:
            return
        asked = _retry_after(hit)
        until = hit.ended + (asked if hit.status >= 300 else 0.0)
        if is_refused or (hit.status >= 500 and asked):
            before = log.refusal
            is_row = before is not None and hit.ended - before.hit.ended < QUIET
            is_row = (
                is_row and before is not None and before.run.crawl.ahead == seen.run.crawl.ahead
            )
            log.row = log.row + 1 if is_row else 1
            log.refusal = seen
        # By a clock that is behind, a date that has just passed is still to come: it is a wait.
        is_date_ahead = seen.run.crawl.ahead < 0.0 and hit.answered("Retry-After") is not None
        if is_refused and not asked and not is_date_ahead:
            first, longest = BACKOFF
            until = hit.ended + min(first * 2.0 ** (log.row - 1), longest)
        if until > hit.ended:
            log.holds.append(_Hold(until, seen))

    # ---- R3 ----

    def _check_list(self, seen: Seen) -> None:
        hit = seen.hit
        if hit.host == LIST_HOST:
            return
        names = set(self._listed)
        if self._maybe_listed is not None:
            names &= set(self._maybe_listed)
        for name in names:
            if hit.host == name or hit.host.endswith(f".{name}"):
                self.accuse("R3", seen, f"reached {name}, which is on the blocklist")
        tried = self._list_tried
        if tried is None:
            self.accuse("R3", seen, "came before any request for the blocklist")
            return
        age = hit.started - tried.hit.ended - _backward(tried.run, seen.run)
        is_on_hold = any(hold.until > hit.started - LATE for hold in self._hosts[LIST_HOST].holds)
        if age > REFRESH + LATE and not is_on_hold:
            self.accuse("R3", seen, f"came {age:.0f} s after {tried}, without a newer list")

    def _learn_list(self, seen: Seen) -> None:
        hit = seen.hit
        if hit.url != LIST_URL:
            return
        self._list_tried = seen
        shown = phase_at(self._days.blocklist, hit.started).page
        if hit.status in {200, 304} and isinstance(shown, OptOuts) and shown.is_valid:
            self._maybe_listed = None if _is_last_of_run(seen) else self._maybe_listed
            if seen.run.is_killed and _is_last_of_run(seen):
                self._maybe_listed = self._listed
            self._listed = shown.domains

    # ---- R2 ----

    def _check_robots(self, seen: Seen) -> None:
        hit, copy = seen.hit, self._copies[seen.hit.origin]
        if hit.host == PRIVATE_HOST:
            return
        if copy.tried_by is None:
            self.accuse("R2", seen, "came before any request for its robots.txt")
            return
        age = hit.started - copy.tried_at - _backward(copy.tried_by, seen.run)
        # The delay of the file before is remembered for a while, and a page waits for it too.
        waits = any(rules.delay or rules.opens for rules in (copy.rules, copy.before) if rules)
        if age > DAY + LATE and not waits:
            self.accuse("R2", seen, f"came {age:.0f} s after the last request for its robots.txt")
        readings = [copy.rules] if copy.is_certain else [copy.rules, copy.before]
        path = urlsplit(hit.url).path
        if all(rules and path.startswith(rules.disallow or "-") for rules in readings):
            self.accuse("R2", seen, "is denied by robots.txt")
        wall = (hit.started + seen.run.crawl.ahead) % DAY
        if all(rules and _is_closed(rules, wall) for rules in readings):
            self.accuse("R2", seen, "came outside of the Visit-time")

    def _learn_robots(self, seen: Seen) -> None:
        hit = seen.hit
        run = id(seen.run)
        if origins := self._fetched_for[run, hit.url]:
            origin = origins.pop(0)
        elif hit.path == "/robots.txt":
            origin = hit.origin
        else:
            return
        copy = self._copies[origin]
        copy.tried_at, copy.tried_by = hit.ended, seen.run
        if (target := redirect_target(hit)) is not None:
            self._fetched_for[run, target].append(origin)
            return
        if hit.status == 429 or hit.status >= 500 or not hit.status:
            return
        # A 304 says that the crawler has the file of this phase, by whose ETag it asked.
        is_good = hit.status in {200, 304}
        phases = self._phases(hit)
        shown = phase_at(phases, hit.started).page if phases and is_good else None
        rules = shown if isinstance(shown, Robots) else None
        is_certain = seen.is_known or hit.status == 304
        self._copies[origin] = _Copy(rules, copy.rules, is_certain, hit.ended, seen.run)

    def _phases(self, hit: Hit) -> Phases:
        for host in self._days.hosts:
            if host.name == hit.host:
                return host.robots if hit.path == "/robots.txt" else dict(host.pages)[hit.path]
        return ()

    # ---- R6 to R8 ----

    def _check_scope(self, seen: Seen) -> None:
        hit = seen.hit
        if hit.host == PRIVATE_HOST:
            self.accuse("R6", seen, "a redirect led to a private host")
        elif hit.url not in seen.run.crawl.sources and hit.url not in self._targets:
            self.accuse("R6", seen, "is neither declared nor the target of a redirect")
        sent = hit.header("If-None-Match")
        if sent is not None and sent not in self._etags[hit.url]:
            self.accuse("R7", seen, f"has {sent}, which is no validator of this URL")

    def _check_visit(self, seen: Seen) -> None:
        hit = seen.hit
        if (id(seen.run), hit.url) in self._hops:
            return
        if hit.url in self._gone:
            self.accuse("R8", seen, f"was sent after {self._gone[hit.url]}")
        before = self._visited.get(hit.url)
        if before and not seen.run.crawl.force and not before.run.is_killed:
            gap = hit.started - before.hit.started + _forward(before.run, seen.run)
            ahead = before.run.crawl.ahead - seen.run.crawl.ahead - (hit.started - before.hit.ended)
            # A visit that seems to be more than an hour in the future says nothing (decision 39).
            if gap < DAY - TINY and ahead < HOUR:
                self.accuse("R8", seen, f"came {gap:.0f} s after {before}")

    # ---- all ----

    def _learn(self, seen: Seen, *, is_robots: bool) -> None:
        hit, run = seen.hit, id(seen.run)
        if run not in self._busy or self._busy[run].hit.ended < hit.ended:
            self._busy[run] = seen
        self._learn_robots(seen)
        self._learn_list(seen)
        self._learn_hold(seen, is_robots=is_robots)
        if not is_robots and hit.url != LIST_URL:
            self._learn_visit(seen)
        log = self._hosts[hit.host]
        if log.last is None or log.last.hit.ended <= hit.ended:
            log.last, log.delay = seen, self._delay_of(hit.origin)

    def _learn_visit(self, seen: Seen) -> None:
        hit = seen.hit
        if (target := redirect_target(hit)) is not None:
            self._targets.add(target)
            self._hops.add((id(seen.run), target))
        is_hop = (id(seen.run), hit.url) in self._hops
        if hit.status == 410 and seen.is_known and not is_hop:
            self._gone[hit.url] = seen
        if hit.status in {200, 304} and hit.complete and not is_hop:
            self._visited[hit.url] = seen
        if (etag := hit.answered("ETag")) is not None and hit.status in {200, 304}:
            self._etags[hit.url].add(etag)


def _is_last_of_run(seen: Seen) -> bool:
    return seen.run.is_killed and seen.run.log[-1] is seen.hit


def _forward(earlier: Run, later: Run) -> float:
    return later.forward - earlier.forward


def _backward(earlier: Run, later: Run) -> float:
    return later.backward - earlier.backward


def _is_closed(rules: Robots, wall: float) -> bool:
    if rules.opens is None:
        return False
    first, last = rules.opens
    return not first * HOUR - TINY <= wall <= last * HOUR + 60.0


def _retry_after(hit: Hit) -> float:
    """Return the seconds from the end of an exchange that its Retry-After asks for."""
    value = hit.answered("Retry-After")
    if value is None:
        return 0.0
    if value.isdecimal():
        return float(value)
    ended_at = hit.wall + hit.ended - hit.started
    return max(0.0, parsedate_to_datetime(value).timestamp() - ended_at)


# ---- the rules of `walsh_scrapy.testing.politeness` ----


def _by_politeness(played: Played, seen: Sequence[Seen]) -> Iterator[str]:
    """Yield the violations of each part of the days in which no clock was set."""
    lists = [phase.page for phase in played.days.blocklist]
    always: set[str] = set()
    is_always_valid = all(isinstance(one, OptOuts) and one.is_valid for one in lists)
    if is_always_valid:
        always = set.intersection(*(set(one.domains) for one in lists if isinstance(one, OptOuts)))
    delays = {}
    for host in played.days.hosts:
        rules = [phase.page for phase in host.robots]
        if all(isinstance(one, Robots) for one in rules):
            delays[host.name] = min(one.delay for one in rules if isinstance(one, Robots))
    declared = {url for run in played.runs for url in run.crawl.sources}
    targets = {target for one in seen if (target := redirect_target(one.hit))}
    parts: dict[float, list[Seen]] = {}
    for one in seen:
        parts.setdefault(one.run.forward + one.run.backward, []).append(one)
    releases = any(act.what == "release" for act in played.acts)
    for number, part in enumerate(parts.values()):
        is_alone = all(len(one.run.crawl.workers) == 1 for one in part)
        has_kill = any(one.run.is_killed for one in part)
        hits = [one.hit for one in part]
        if releases:
            hits = [_without_retry_after(hit) for hit in hits]
        yield from (
            f"politeness {sentence}"
            for sentence in violations(
                hits,
                crawl_delays=delays,
                serial=is_alone,
                blocked=always,
                declared=declared | targets,
                robots_first=not number,
                robots_exempt=[LIST_URL],
                robots_ttl=0.0 if has_kill else DAY,
                documents_ttl=REFRESH if is_always_valid and not has_kill else 0.0,
            )
        )


def _without_retry_after(hit: Hit) -> Hit:
    """Return a hit without its hold, which the operator may have released."""
    fields = tuple(field for field in hit.answer if field[0] != "Retry-After")
    return replace(hit, answer=fields)


# ---- what the state says ----


def _by_items(played: Played) -> Iterator[str]:
    """Yield a sentence for each entry that was reported twice."""
    reported = Counter((item["source"], item["id"]) for run in played.runs for item in run.items)
    for (source, name), count in reported.items():
        if count > 1:
            yield f"R7: {name} of {source} was reported {count} times"


def _by_audit(state: State, played: Played) -> Iterator[str]:
    ahead = max([0.0, *(run.crawl.ahead for run in played.runs)])
    with state.log() as log:
        attested = attest(log, EPOCH + played.until + ahead + 3 * DAY)
    for row in attested.rows:
        for finding in row["findings"]:
            first = finding["first"]
            yield f"attest row {row['row']}: {finding['kind']}, {first['at']} {first['what']}"


def _by_gaps(state: State, seen: Sequence[Seen], oracle: Oracle) -> Iterator[str]:
    """Compare `request_gaps` with the log of the servers, request by request."""
    with state.log() as log:
        query = "SELECT id, requested_at, url, host FROM requests"
        times = {row.id: row for row in log.connection.execute(text(query))}
    gaps = {row["id"]: row for row in state.rows("request_gaps")}
    by_url: defaultdict[str, list[Any]] = defaultdict(list)
    for row in times.values():
        by_url[row.url].append(row)
    last: dict[str, Seen] = {}
    for one in seen:
        hit = one.hit
        at = EPOCH + hit.started + one.run.crawl.ahead
        near = [row for row in by_url[hit.url] if abs(row.requested_at - at) < TOLERANCE]
        before = last.get(hit.host)
        if before is None or before.hit.ended <= hit.ended:
            last[hit.host] = one
        if not near:
            yield f"request_gaps: {one} is not in the state"
            continue
        row = gaps[near[0].id]
        if row["problem"]:
            yield f"request_gaps: {one} is {row['problem']}: {row['gap']} of {row['required_gap']}"
        is_comparable = before is not None and before.run.crawl.ahead == one.run.crawl.ahead
        if not is_comparable or before is None or row["gap_unknown"]:
            continue
        gap = hit.started - before.hit.ended
        if abs(row["gap"] - gap) > TOLERANCE + DRIFT * abs(gap):
            yield f"request_gaps: {one} came after {gap:.3f} s, and not {row['gap']:.3f} s"
        required = oracle.required[id(hit)]
        if row["required_gap"] < required - TOLERANCE and hit.host != LIST_HOST:
            yield f"request_gaps: {one} had to wait {required:.3f} s, not {row['required_gap']:.3f}"
