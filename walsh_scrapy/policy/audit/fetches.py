"""Row 2: which recorded request brought the robots.txt that a request names (R2; decision 12)."""

from __future__ import annotations

import math
from collections import defaultdict
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.audit.checklist import Breach, Case, Kind
from walsh_scrapy.policy.audit.clocks import TOLERANCE
from walsh_scrapy.policy.audit.record import DAY
from walsh_scrapy.policy.robots.access import ALLOW_ALL, LONGEST_SETTLING
from walsh_scrapy.policy.urls import origin_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.policy.audit.record import Basis, LoggedRequest

#: The copy of a file that is not there.
_EMPTY: Final = sha256(ALLOW_ALL).hexdigest()
#: Seconds after which an origin that was not asked may have lost its copy.
_REMEMBERED: Final = 30 * DAY


class _Origin:
    """What the record says of the robots.txt of one scheme, host and port."""

    def __init__(self) -> None:
        self.fetches: dict[float, str | None] = {}  #: the copy after each, by its moment
        self.copies: set[str] = set()  #: all that were in force
        self.asked_at = -math.inf
        self.failed_at = -math.inf  #: when it last gave no file of its own
        self.redirects = False  #: whether that was a redirect


class RobotsFetches:
    """The requests for robots.txt of one host, by the origins that they were for.

    A request for robots.txt names the copy that counted after it, and when. What a redirect led to
    is the file of the origin that was asked first. What an answer may lead to is read by other code
    than that of the crawl. Requests come host by host, and for each host
    in the order of their times.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._origins: defaultdict[str, _Origin] = defaultdict(_Origin)
        self._last: LoggedRequest | None = None
        self._origin = _Origin()  # of the last request

    def take(self, sent: LoggedRequest) -> Iterator[Breach]:
        """Take a request for robots.txt; yield a breach if its answer was not the copy it names."""
        if sent.redirected_by is not None or sent.is_open:
            return
        origin = self._of(sent)
        if sent.sent_at - origin.asked_at > _REMEMBERED:
            origin.copies.clear()
        origin.asked_at = sent.sent_at
        status = sent.status or 599
        is_refused = status == 429 or status >= 500
        is_redirect = 300 <= status < 400 and status != 304
        if is_refused or is_redirect:
            origin.failed_at, origin.redirects = sent.sent_at, is_redirect
        if sent.robots_at is None:
            return
        may_be = True  # a redirect leads to any copy
        if 400 <= status < 500 and not is_refused:
            may_be = sent.robots == _EMPTY
        elif (status == 304 or is_refused) and origin.copies:
            may_be = sent.robots in origin.copies
        if not may_be:
            what = f"{sent.url} answered {sent.status}, and another copy was in force after that"
            yield Breach(Kind.OTHER_COPY, Case.of(sent, what), since=sent.sent_at)
        if sent.robots is not None:
            origin.copies.add(sent.robots)
        if -TOLERANCE <= sent.robots_at - sent.sent_at <= LONGEST_SETTLING + TOLERANCE:
            origin.fetches[sent.robots_at] = sent.robots

    def is_recorded(self, sent: LoggedRequest, asked_at: float) -> bool:
        """Return True if the request for the robots.txt that a request names is recorded."""
        origin = self._of(sent)
        return asked_at in origin.fetches or self._has_failed(origin, asked_at)

    def breaches(self, sent: LoggedRequest, asked_at: float) -> Iterator[Breach]:
        """Yield a breach if the recorded request for robots.txt brought another copy."""
        origin, run = self._of(sent), self._basis.run(sent)
        is_phased = run is not None and run.facts.robots_unreachable == "phased"
        if sent.robots is None:  # WALSH_ROBOTS_UNREACHABLE decided
            is_that = is_phased or not origin.copies
        elif asked_at in origin.fetches:
            is_that = sent.robots == origin.fetches[asked_at]
        else:  # its last try was never sent
            is_that = origin.redirects or not origin.copies or sent.robots in origin.copies
        if not is_that:
            what = f"{sent.url} names another copy than its robots.txt was"
            yield Breach(Kind.OTHER_COPY, Case.of(sent, what), since=asked_at)

    @staticmethod
    def _has_failed(origin: _Origin, asked_at: float) -> bool:
        """Return True if a fetch that failed had tries before the moment at which it ended."""
        return 0.0 <= asked_at - origin.failed_at <= DAY

    def _of(self, sent: LoggedRequest) -> _Origin:
        if sent is not self._last:  # each is asked about several times
            if self._last is None or sent.host != self._last.host:
                self._origins.clear()
            self._last, self._origin = sent, self._origins[origin_of(sent.url)]
        return self._origin
