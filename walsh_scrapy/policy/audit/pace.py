"""Rows 4, 5 and 8: delays, holds, one at a time, and revisits (R4, R5, R8; decisions 2, 3, 5, 31).

`walsh_scrapy.checks` decides which gaps are too short, as for the log of a server. Here it gets the
rows of the request log: the delay and the hold that counted for each, and why they are not known.
`GapCheck` answers for every command; `walsh attest` counts, `walsh report` and `walsh why` show
it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.checks import RECORD, AtOnce, Delay, Exchange, Hold, Retries
from walsh_scrapy.policy.audit.checklist import Finding, Kind
from walsh_scrapy.policy.audit.clocks import CLOCK_SET, TOLERANCE
from walsh_scrapy.policy.audit.record import (
    AFTER_UNKNOWN,
    DAY,
    END_UNKNOWN,
    NO_RUN,
    Check,
    LoggedRequest,
)
from walsh_scrapy.policy.backoff import RETRIED_STATUSES, is_refusal
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST, QUIET_SECONDS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.checks import Gap
    from walsh_scrapy.policy.audit.checklist import Findings
    from walsh_scrapy.policy.audit.permission import RobotsFetches
    from walsh_scrapy.policy.audit.record import Basis, RunFacts

#: R4: one request per second.
_LEAST: Final = 1.0
#: The doubt about a refusal whose answer did not come as a whole.
_UNFINISHED: Final = "was refused by an answer that did not end"


class RequestGap(NamedTuple):
    """The time between the end of an exchange with a host and the next request to it.

    All are seconds from that end. ``kept`` is None if ``doubt`` has the reason, and for the first
    request that is known.
    """

    kept: float | None  #: negative if the exchange was not over
    delay: float  #: the one in force; at least one second
    hold: float = -math.inf  #: the rest of the host's hold, if it had one
    is_overlap: bool = False  #: whether the exchange before was not over
    is_short: bool = False  #: whether it was over, and the gap was shorter than the delay
    in_hold: Gap | None = None  #: the gap since the hold began, if the request came during it
    #: When the operator ended the hold that went on, in epoch seconds: it counts no more.
    released_at: float | None = None
    doubt: str = ""

    @property
    def least(self) -> float:
        """The least gap: the delay, or the hold if that is longer."""
        return max(self.delay, self.hold)

    @property
    def is_broken(self) -> bool:
        """Whether the request came too soon, for any of these reasons."""
        return self.is_overlap or self.is_short or self.in_hold is not None


class CheckedRequest(NamedTuple):
    """One request, and the gap before it."""

    record: LoggedRequest
    gap: RequestGap


def exchange_of(sent: LoggedRequest) -> Exchange:
    """Return a row as an exchange; one whose end is not known ends when it begins."""
    return Exchange(sent.requested_at, sent.ended, sent.host, sent.url, sent.status or 0)


class _Host:
    """One host, as far as its requests were seen."""

    def __init__(self) -> None:
        self.at_once = AtOnce(RECORD)
        self.delay = Delay(RECORD)
        self.hold = Hold(RECORD)
        self.last: LoggedRequest | None = None  #: the request that ended last


class GapCheck:
    """Finds the gap before each request.

    Requests come host by host, of all runs, and for each host in the order of their times.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._overrides: dict[tuple[str, str], list[float]] = {}
        for each in basis.overrides:
            self._overrides.setdefault((each.override, each.host), []).append(each.made_at)
        self._name: str | None = None
        self._host = _Host()

    def check(self, sent: LoggedRequest) -> RequestGap:
        """Return the gap before a request."""
        if sent.host != self._name:
            self._name, self._host = sent.host, _Host()
        host, exchange = self._host, exchange_of(sent)
        last, delay = host.last, self._delay(sent, host.last)
        before, spaced = host.at_once.see(exchange), host.delay.see(exchange, delay)
        released_at = self._release(sent, host.hold)
        is_for_list = self._basis.is_for_list(sent)
        held = host.hold.see(exchange, LONGEST_FOR_BLOCKLIST if is_for_list else math.inf)
        gap = RequestGap(None, delay)
        if last is not None and before is not None and spaced is not None:
            left = -math.inf
            if released_at is not None and released_at < last.ended:
                released_at = None  # before the exchange before
            elif held and released_at is None:
                left = held.before.end + held.least - last.ended
            gap = RequestGap(
                before.seconds,
                delay,
                left,
                is_overlap=before.is_early,
                is_short=spaced.is_early and not before.is_early,
                in_hold=held if held and held.is_early else None,
                released_at=released_at,
            )
            gap = self._certain(gap, sent, last)
        if last is None or sent.ended >= last.ended:
            host.last = sent
        if sent.hold and sent.ended + sent.hold > host.hold.until + TOLERANCE:
            host.hold.begin(exchange, sent.ended + sent.hold)
        return gap

    def _certain(self, gap: RequestGap, sent: LoggedRequest, last: LoggedRequest) -> RequestGap:
        """Return a gap without its uncertain parts: a clock was set, or an end is not known."""
        since = gap.in_hold.before.end if gap.in_hold else last.ended
        if gap.is_broken and not self._basis.clocks.are_certain(since, sent.requested_at):
            return RequestGap(None, gap.delay, gap.hold, doubt=CLOCK_SET)
        if last.is_open:
            return gap._replace(kept=None, is_overlap=False, is_short=False, doubt=AFTER_UNKNOWN)
        return gap

    def _delay(self, sent: LoggedRequest, last: LoggedRequest | None) -> float:
        recorded = sent.delay
        # One that the operator set during the exchange did not count yet.
        if self._overrides_between("delay", sent.host, sent.requested_at, sent.ended):
            recorded = 0.0
        by_robots = 0.0 if sent.purpose == "robots" else self._basis.robots_delay(sent)
        slow = 0.0 if last is None else last.duration or 0.0
        delay = max(_LEAST, recorded, by_robots, slow)
        return min(delay, LONGEST_FOR_BLOCKLIST) if self._basis.is_for_list(sent) else delay

    def _release(self, sent: LoggedRequest, hold: Hold) -> float | None:
        """End the hold at which a request was sent, if the operator did; return when."""
        if hold.cause is None:
            return None
        since = hold.cause.end
        released_at = min(
            self._overrides_between("release", sent.host, since, sent.requested_at), default=None
        )
        if released_at is not None:
            hold.release(released_at)
        return released_at

    def _overrides_between(
        self, override: str, host: str, since: float, until: float
    ) -> list[float]:
        times = self._overrides.get((override, host), ())
        return [at for at in times if since - TOLERANCE <= at <= until + TOLERANCE]


class HostPace(Check):
    """Counts gaps, holds and overlaps of hosts.

    ``fetches`` has taken the requests for robots.txt before.
    """

    rows = LoggedRequest
    order = "host"

    def __init__(self, findings: Findings, basis: Basis, fetches: RobotsFetches) -> None:
        super().__init__(findings, basis)
        self._fetches = fetches
        self._gaps = GapCheck(basis)
        self._refusals = _Refusals(basis)
        self._host: str | None = None
        self._hosts = 0

    def see(self, sent: LoggedRequest) -> None:
        """Check one request."""
        self._hosts += sent.host != self._host
        self._host = sent.host
        gap = self._gaps.check(sent)
        if gap.kept is not None and not gap.is_overlap:
            least = round(gap.kept - gap.delay, 3)
            self._findings.count("4", gaps=1, seconds_to_spare=least)
        self._findings.decide("4", self._pacing(sent, gap), lacking=self._lacking(sent, gap))
        is_refused = _is_refused(sent)
        lacking = CLOCK_SET if gap.doubt == CLOCK_SET else END_UNKNOWN if sent.is_open else ""
        if is_refused and sent.error and not sent.hold:
            lacking = lacking or _UNFINISHED
        rows = "5" if is_refused or lacking else ""
        self._findings.decide(rows, self._holding(sent, gap, is_refused), lacking=lacking)

    def end(self) -> None:
        """Check all holds together, and note the number of hosts."""
        self._findings.decide("", self._refusals.end())
        self._findings.count("4", hosts=self._hosts)

    def _pacing(self, sent: LoggedRequest, gap: RequestGap) -> Iterator[Finding]:
        name, kept = host_of(sent.url), gap.kept or 0.0
        if name != sent.host and not name.endswith(f".{sent.host}"):
            what = f"{sent.url} is recorded under {sent.host}"
            yield Finding.of(Kind.OTHER_HOST, sent, what)
        if gap.is_overlap:
            what = f"{sent.host} was requested {-kept:.3f} s before its last exchange was over"
            yield Finding.of(Kind.HOST_TWICE, sent, what, -kept)
        if gap.is_short:
            what = f"{sent.host} had a gap of {kept:.3f} s, with a delay of {gap.delay:.3f} s"
            yield Finding.of(Kind.SHORT_PAUSE, sent, what, gap.delay - kept)

    def _lacking(self, sent: LoggedRequest, gap: RequestGap) -> str:
        """Return why the delay in force and the gap before it are not known."""
        if gap.doubt or self._basis.run(sent) is None:
            return gap.doubt or NO_RUN
        is_first = sent.purpose == "robots" or sent.robots_at is None
        return "" if is_first else self._fetches.lacking(sent)

    def _holding(self, sent: LoggedRequest, gap: RequestGap, is_refused: bool) -> Iterator[Finding]:
        if gap.in_hold:
            early = gap.in_hold.missing
            what = f"{sent.host} was on hold for {format_seconds(early)} more"
            yield Finding.of(Kind.TOO_EARLY, sent, what, early)
        if is_refused and not sent.hold and not sent.error:
            yield Finding.of(Kind.NO_HOLD, sent, f"{sent.host} answered {sent.status}")
        if is_refused:
            yield from self._refusals.findings(sent)


def _is_refused(sent: LoggedRequest) -> bool:
    for_robots = sent.purpose == "robots"
    return sent.status is not None and is_refusal(sent.status, for_robots=for_robots)


class _Refusals:
    """Checks the hold after each refusal; requests come as `GapCheck` takes them (decision 15).

    The seconds of a Retry-After count as they were recorded. Without any, the holds of refusals in
    a row double, and chance makes each of them longer. The request log may lack refusals, so a row
    has at least those that it shows. In doubt a new row begins: where requests stand in another
    order than they were written in, clocks were set.
    """

    #: Chance adds up to half of a hold; with it, so many differ by more than this part.
    CHANCE: Final = 1.5
    MANY: Final = 5
    ALIKE: Final = 0.001

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._retries = Retries()
        self._last: LoggedRequest | None = None  # the last one that counted
        # The parts of the holds that chance added, and the last request with one.
        self._added: list[float] = []
        self._added_last: LoggedRequest | None = None

    def findings(self, sent: LoggedRequest) -> Iterator[Finding]:
        """Check the hold that a refusal began."""
        last = self._last
        if last is None or not self._is_next(last, sent):
            self._retries, last = Retries(), None
        number = self._retries.see(exchange_of(sent), is_refused=True)
        if not number:
            return  # it was sent before the host refused: both are one burst
        self._last = sent
        if sent.error or not sent.hold:
            return
        if sent.retry_after:
            missing = sent.retry_after - sent.hold
            if missing > TOLERANCE:
                had, asked = format_seconds(sent.hold), format_seconds(sent.retry_after)
                what = f"{sent.host} had a hold of {had}, with a Retry-After of {asked}"
                yield Finding.of(Kind.SHORT_HOLD, sent, what, missing, sent.ended)
            return
        run = self._basis.run(sent)
        if run is None or not run.facts.backoff_base:
            return
        least = self._least(number, run.facts)
        if sent.hold < least - TOLERANCE:
            had = f"{format_seconds(sent.hold)} after {number} refusals in a row"
            what = f"{sent.host} was on hold for {had}"
            since = sent.ended if last is None else last.ended
            yield Finding.of(Kind.NO_GROWTH, sent, what, least - sent.hold, since)
        part, has_room = sent.hold / least, self.CHANCE * run.facts.backoff_base
        is_by_chance = run.facts.backoff_max >= has_room and part <= self.CHANCE + self.ALIKE
        if is_by_chance and len(self._added) < 1000:
            self._added.append(part)
            self._added_last = sent

    def end(self) -> Iterator[Finding]:
        """Check whether there was any chance in the holds."""
        if self._added_last is None or len(self._added) < self.MANY:
            return
        if max(self._added) - min(self._added) < self.ALIKE:
            what = f"{len(self._added)} holds have no chance in them"
            yield Finding.of(Kind.NO_JITTER, self._added_last, what)

    @staticmethod
    def _is_next(last: LoggedRequest, sent: LoggedRequest) -> bool:
        is_in_order = sent.host == last.host and sent.id > last.id
        return is_in_order and sent.ended - last.ended < QUIET_SECONDS - TOLERANCE

    def _least(self, number: int, facts: RunFacts) -> float:
        """Return the seconds of a hold without chance."""
        longest = max(facts.backoff_base, facts.backoff_max / self.CHANCE)
        return Retries.least_wait(number, facts.backoff_base, longest)


class Serial(Check):
    """Finds requests of one run that were out at once."""

    rows = LoggedRequest

    def __init__(self, findings: Findings, basis: Basis) -> None:
        super().__init__(findings, basis)
        self._runs: dict[int, AtOnce] = {}

    def see(self, sent: LoggedRequest) -> None:
        """Check one request."""
        if sent.run is None:
            return
        run = self._basis.run(sent)
        if run and run.facts.is_of_another_bot and run.facts.serial is False:
            self._findings.waive("4", "this bot is not serial (WALSH_SERIAL = False)")
            return
        gap = self._runs.setdefault(sent.run, AtOnce(RECORD)).see(exchange_of(sent))
        if gap is not None and gap.is_early:
            early = f"{gap.missing:.3f} s before its last one had ended"
            what = f"run {sent.run} requested {sent.host} {early}"
            finding = Finding.of(Kind.RUN_TWICE, sent, what, gap.missing, gap.before.end)
            self._findings.decide("", [finding])


class _Visit(NamedTuple):
    at: float
    run: int


class Frequency(Check):
    """Finds URLs that two runs requested within a day.

    A request that was refused, or got no answer, leaves its source due, so the next one is not a
    second visit. Redirect hops and retries of one run are one visit. Requests by `-a force=1`, and
    those of a command and a crawl within a day, are not shown: a command is not a run (decision
    39).
    """

    rows = LoggedRequest
    order = "host"
    #: The doubts about a second visit within a day.
    FORCED: Final = "was requested before it was due, by the operator (force)"
    BY_HAND: Final = "was requested by hand and by another run within a day"
    #: URLs of one host in memory before the requests of more than a day ago are forgotten.
    MOST: Final = 10_000

    def __init__(self, findings: Findings, basis: Basis) -> None:
        super().__init__(findings, basis)
        self._host: str | None = None
        self._visits: dict[tuple[str, bool], _Visit] = {}  # by URL and ``by_hand``
        self._most = self.MOST

    def see(self, sent: LoggedRequest) -> None:
        """Check one request."""
        if sent.purpose != "target":
            return
        run = self._basis.run(sent)
        if sent.run is None or run is None:
            self._findings.decide("78", lacking=NO_RUN)
            return
        if sent.host != self._host:
            self._host = sent.host
            self._visits.clear()
        by_hand = bool(run.command)
        known = {each: self._visits.get((sent.url, each)) for each in (False, True)}
        others = {each: last for each, last in known.items() if last and last.run != sent.run}
        if others:
            self._findings.decide("7")
            self._findings.count("7", asked_again=1, unchanged=int(sent.status == 304))
        recent = {
            each: last
            for each, last in others.items()
            if RECORD.is_before(sent.requested_at, last.at + DAY)
        }
        findings, lacking = list[Finding](), ""
        if False in recent and not by_hand and not run.facts.force:
            at = recent[False].at
            what = f"{sent.url} was requested again after {format_seconds(sent.requested_at - at)}"
            findings.append(Finding.of(Kind.TOO_OFTEN, sent, what, at - sent.requested_at, at))
        elif recent:
            lacking = self.FORCED if run.facts.force else self.BY_HAND
        self._findings.decide("8", findings, lacking=lacking)
        is_whole = sent.status is not None and not sent.error  # else a part of it is missing
        is_answered = is_whole and sent.status not in RETRIED_STATUSES
        last = known[by_hand]
        if is_answered and (last is None or last.run != sent.run):
            self._keep((sent.url, by_hand), _Visit(sent.requested_at, sent.run))

    def _keep(self, key: tuple[str, bool], visit: _Visit) -> None:
        if len(self._visits) >= self._most:
            recent = visit.at - DAY
            self._visits = {each: last for each, last in self._visits.items() if last.at > recent}
            self._most = max(self.MOST, 2 * len(self._visits))
        self._visits[key] = visit
