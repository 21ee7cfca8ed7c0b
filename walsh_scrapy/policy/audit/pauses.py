"""Rows 4 and 5: pauses, holds, and two requests at once (R4, R5; decisions 2, 3, 5 and 31).

`PauseJudge` decides for every command whether a host was asked too soon. `scrapy attest` counts
what it finds, `scrapy report` and `scrapy why` show it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import CLOCK_SET, TOLERANCE
from walsh_scrapy.policy.audit.record import (
    AFTER_UNKNOWN,
    END_UNKNOWN,
    NO_RUN,
)
from walsh_scrapy.policy.audit.refusals import RefusalJudge
from walsh_scrapy.policy.backoff import is_refusal
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.findings import Findings
    from walsh_scrapy.policy.audit.record import Basis, LoggedRequest
    from walsh_scrapy.policy.audit.robots import RobotsFetches

#: R4: one request a second.
_LEAST: Final = 1.0
#: What a refusal lacks whose answer did not come as a whole.
_UNFINISHED: Final = "was refused by an answer that did not end"
#: Begin and end of the hold of a host that has none.
_NOT_HELD: Final = (0.0, -math.inf)


class Pause(NamedTuple):
    """What lies between the end of an exchange with a host and the next request to it.

    All are seconds from that end. ``kept`` is None for the first request that is known, where a
    pause seems to be too short because a clock was set, and where that end is not known.
    """

    kept: float | None  #: negative if the exchange was not over
    delay: float  #: that was asked for; at least one second
    hold: float = -math.inf  #: what was left of the hold of the host, if it had one
    is_uncertain: bool = False  #: whether it seems to be too short because a clock was set
    is_unknown: bool = False  #: whether the end of the exchange before is not known

    @property
    def asked(self) -> float:
        """What had to pass: the delay, or the hold if that is longer."""
        return max(self.delay, self.hold)

    @property
    def is_overlap(self) -> bool:
        """Whether the exchange before was not over."""
        return self.kept is not None and self.kept < -TOLERANCE

    @property
    def is_short(self) -> bool:
        """Whether the host was asked after the exchange, and sooner than its delay allows."""
        return self._is_before(self.delay) and not self.is_overlap

    @property
    def is_in_hold(self) -> bool:
        """Whether the host was asked before its hold was over."""
        return self._is_before(self.hold)

    @property
    def is_breach(self) -> bool:
        """Whether the host was asked too soon, for any of these reasons."""
        return self._is_before(self.asked)

    def _is_before(self, end: float) -> bool:
        return self.kept is not None and self.kept < end - TOLERANCE


class JudgedRequest(NamedTuple):
    """One request, and the pause before it."""

    record: LoggedRequest
    pause: Pause


class PauseJudge:
    """Finds the pause before each request.

    Requests come host by host, of all runs, and for each host in the order of their times.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._overrides: dict[tuple[str, str], list[float]] = {}
        for each in basis.overrides:
            self._overrides.setdefault((each.override, each.host), []).append(each.at)
        self._host: str | None = None
        self._ended = -math.inf
        self._is_open = False  # whether the end of its last exchange is not known
        self._slow = 0.0  # seconds: the pause that its last exchange asks for by its duration
        self._held = _NOT_HELD  # begin and end of the hold of the host

    def judge(self, sent: LoggedRequest) -> Pause:
        """Return the pause before a request."""
        self._turn_to(sent.host)
        delay = self._delay(sent)
        pause = Pause(None, delay)
        if self._ended > -math.inf:
            hold = self._held_until(sent) - self._ended
            kept = None if self._is_open else sent.sent_at - self._ended
            pause = Pause(kept, delay, hold, is_unknown=self._is_open)
            pause = self._certain(pause, sent)
        if sent.ended >= self._ended:
            self._is_open = sent.is_open
            self._ended, self._slow = sent.ended, sent.seconds or 0.0
        if sent.hold:
            self._hold(sent)
        return pause

    def _turn_to(self, host: str) -> None:
        """Forget the host before, when the requests of another one begin."""
        if host != self._host:
            self._host, self._ended, self._slow = host, -math.inf, 0.0
            self._held = _NOT_HELD

    def _certain(self, pause: Pause, sent: LoggedRequest) -> Pause:
        """Return a pause that is too short as unknown if a clock was set meanwhile."""
        since = self._held[0] if pause.is_in_hold else self._ended
        if not pause.is_breach or self._basis.clocks.are_certain(since, sent.sent_at):
            return pause
        return pause._replace(kept=None, is_uncertain=True)

    def _delay(self, sent: LoggedRequest) -> float:
        recorded = sent.pause
        # One that the operator asked for during the exchange did not count yet.
        if self._overrides_between("delay", sent.host, sent.sent_at, sent.ended):
            recorded = 0.0
        rules = None if sent.purpose == "robots" else self._basis.rules(sent)
        crawl_delay = rules.crawl_delay if rules else None
        delay = max(_LEAST, recorded, crawl_delay or 0.0, self._slow)
        return min(delay, LONGEST_FOR_BLOCKLIST) if self._basis.is_for_list(sent) else delay

    def _held_until(self, sent: LoggedRequest) -> float:
        """Return the end of the hold at which a request was sent; a release ends it."""
        since, until = self._held
        if self._basis.is_for_list(sent):
            until = min(until, since + LONGEST_FOR_BLOCKLIST)
        return min([until, *self._overrides_between("release", sent.host, since, sent.sent_at)])

    def _hold(self, sent: LoggedRequest) -> None:
        """Keep the hold; ``sent.hold`` seconds of it are left at the end of the exchange."""
        since, until = self._held
        is_the_same = sent.ended + sent.hold <= until + TOLERANCE
        if not is_the_same or self._overrides_between("release", sent.host, since, sent.sent_at):
            since = sent.ended
        self._held = since, sent.ended + sent.hold

    def _overrides_between(
        self, override: str, host: str, since: float, until: float
    ) -> list[float]:
        times = self._overrides.get((override, host), ())
        return [at for at in times if since - TOLERANCE <= at <= until + TOLERANCE]


class HostAudit:
    """Counts pauses, holds and overlaps of hosts; requests come as `PauseJudge` takes them.

    ``fetches`` has taken the requests for robots.txt before.
    """

    def __init__(self, findings: Findings, basis: Basis, fetches: RobotsFetches) -> None:
        self._findings = findings
        self._basis = basis
        self._fetches = fetches
        self._judge = PauseJudge(basis)
        self._refusals = RefusalJudge(basis)
        self._host: str | None = None
        self._hosts = 0

    def see(self, sent: LoggedRequest) -> None:
        """Judge one request."""
        self._hosts += sent.host != self._host
        self._host = sent.host
        pause = self._judge.judge(sent)
        if pause.kept is not None and not pause.is_overlap:
            least = round(pause.kept - pause.delay, 3)
            self._findings.count("4", pauses=1, least_beyond_asked=least)
        self._findings.judge("4", self._pacing(sent, pause), lacking=self._lacking(sent, pause))
        is_refused = _is_refused(sent)
        lacking = CLOCK_SET if pause.is_uncertain else END_UNKNOWN if sent.is_open else ""
        if is_refused and sent.error and not sent.hold:
            lacking = lacking or _UNFINISHED
        rows = "5" if is_refused or lacking else ""
        self._findings.judge(rows, self._holding(sent, pause, is_refused), lacking=lacking)

    def end(self) -> None:
        """Judge all holds together, and note how many hosts there were."""
        self._findings.judge("", self._refusals.end())
        self._findings.count("4", hosts=self._hosts)

    def _pacing(self, sent: LoggedRequest, pause: Pause) -> Iterator[Breach]:
        name, kept = host_of(sent.url), pause.kept or 0.0
        if name != sent.host and not name.endswith(f".{sent.host}"):
            what = f"{sent.url} is recorded under {sent.host}"
            yield Breach(Kind.OTHER_HOST, Case.of(sent, what))
        if pause.is_overlap:
            what = f"{sent.host} was asked {-kept:.3f} s before its last exchange was over"
            yield Breach(Kind.HOST_TWICE, Case.of(sent, what), -kept)
        if pause.is_short:
            asked = f"{pause.delay:.3f} s were asked for"
            what = f"{sent.host} had a pause of {kept:.3f} s, and {asked}"
            yield Breach(Kind.SHORT_PAUSE, Case.of(sent, what), pause.delay - kept)

    def _lacking(self, sent: LoggedRequest, pause: Pause) -> str:
        """Return why it is not known what was asked for before it, and what its host had got."""
        if pause.is_uncertain:
            return CLOCK_SET
        if pause.is_unknown:
            return AFTER_UNKNOWN
        if self._basis.run(sent) is None:
            return NO_RUN
        is_first = sent.purpose == "robots" or sent.robots_at is None
        return "" if is_first else self._fetches.lacking(sent)

    def _holding(self, sent: LoggedRequest, pause: Pause, is_refused: bool) -> Iterator[Breach]:
        if pause.is_in_hold:
            early = pause.hold - (pause.kept or 0.0)
            what = f"{sent.host} was on hold for {format_seconds(early)} more"
            yield Breach(Kind.TOO_EARLY, Case.of(sent, what), early)
        if is_refused and not sent.hold and not sent.error:
            yield Breach(Kind.NO_HOLD, Case.of(sent, f"{sent.host} answered {sent.status}"))
        if is_refused:
            yield from self._refusals.breaches(sent)


def _is_refused(sent: LoggedRequest) -> bool:
    for_robots = sent.purpose == "robots"
    return sent.status is not None and is_refusal(sent.status, for_robots=for_robots)
