"""What a run knows of its hosts: which are put off, and which tries are waited for (R5)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

from walsh_scrapy.exceptions import PutOff, Unreachable
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.wording import format_seconds

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _PutOff:
    reason: str
    until: float  #: the earliest time of the next request to the host, in epoch seconds
    refused: int | None = None  #: 429 or 503 if that is why
    is_told: bool = False  #: the log says so
    #: The error of a failed request for robots.txt, until a target has failed with it.
    owed: Unreachable | None = None


class PutOffHosts:
    """The hosts that may not be tried again in this run, by their names.

    A host is the name in a URL, whatever its scheme and port, also with
    ``WALSH_PACE_BY = "domain"``: the other hosts of its domain may be reached.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _PutOff] = {}

    def add(self, host: str, reason: str, until: float, refused: int | None = None) -> None:
        """Put off all further requests to a host.

        ``refused`` is 429 or 503 if the host refused requests with that status.
        """
        self._hosts[host] = _PutOff(reason, until, refused)

    def add_unreachable(self, host: str, error: Unreachable, rank: Rank, until: float) -> None:
        """Put off all further requests to a host that cannot be reached (decision 28).

        ``rank`` is the rank of the request that failed. If that was for robots.txt, the next target
        fails with the same error.
        """
        owed = error if rank is Rank.ROBOTS else None
        self._hosts[host] = _PutOff(str(error), until, owed=owed)

    def has(self, host: str) -> bool:
        """Return True if requests to a host are put off."""
        return host in self._hosts

    def check(self, host: str, rank: Rank = Rank.TARGET) -> None:
        """Raise PutOff for a request of ``rank`` to a host that is put off.

        Raises Unreachable instead for the first target after a robots.txt that failed with it.
        """
        put_off = self._hosts.get(host)
        if put_off is None:
            return
        if put_off.owed is not None and rank is not Rank.ROBOTS:
            self._hosts[host] = replace(put_off, owed=None)
            raise put_off.owed
        reason = f"{host} is not tried again now: {put_off.reason}"
        if not put_off.is_told:
            self._hosts[host] = replace(put_off, is_told=True)
            logger.info("%s; its other requests are deferred", reason)
        raise PutOff(put_off.until, reason, put_off.refused)


class Retry(NamedTuple):
    """The next try of a refused request: its number, of how many, and when (monotonic seconds)."""

    number: int
    most: int
    at: float
    why: str  #: what the host did: `answered 503`
    for_blocklist: bool

    def sentence(self, now: float) -> str:
        """Return when it comes, in words: `try 3 of 5 in 8 s`."""
        return f"try {self.number} of {self.most} in {format_seconds(self.at - now)}"


class Retries:
    """The next try of each host that refused a request. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._by_host: dict[str, Retry] = {}

    def note(self, host: str, retry: Retry) -> None:
        """Keep the next try of a host."""
        self._by_host[host] = retry

    def find(self, host: str, now: float) -> Retry | None:
        """Return the try for which a host waits at ``now``, or None."""
        retry = self._by_host.get(host)
        return retry if retry is not None and retry.at > now else None

    def of_blocklist(self, now: float) -> Retry | None:
        """Return the try of the blocklist, or of its host's robots.txt, that all wait for."""
        waited_for = (each for each in self._by_host.values() if each.for_blocklist)
        return next((each for each in waited_for if each.at > now), None)
