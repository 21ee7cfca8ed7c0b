"""The hosts whose other requests a run puts off: unreachable, or refusing (decisions 15, 28)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from walsh_scrapy.exceptions import PutOff, Unreachable
from walsh_scrapy.policy.frontier import Rank

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _PutOff:
    reason: str
    until: float  #: the earliest time of the next request to the host, in epoch seconds
    refused: int | None = None  #: 429 or 503 if that is why
    is_told: bool = False  #: the log says so
    owed: Unreachable | None = (
        None  #: what a target fails with, as the attempt was for its robots.txt
    )


class PutOffHosts:
    """The hosts that may not be tried again in this run, by their names.

    A host is the name in a URL, whatever its scheme and port, also with
    ``WALSH_PACE_BY = "domain"``: the other hosts of its domain may be reached.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _PutOff] = {}

    def add(self, host: str, reason: str, until: float, refused: int | None = None) -> None:
        """Put off all further requests to a host: its request has failed, or nothing has.

        ``refused`` is 429 or 503 if it refused requests with that.
        """
        self._hosts[host] = _PutOff(reason, until, refused)

    def add_unreachable(self, host: str, error: Unreachable, rank: Rank, until: float) -> None:
        """Put off all further requests to a host that cannot be reached (decision 28).

        ``rank`` is that of the request that failed. If it was for robots.txt, the next target fails
        with the same error.
        """
        owed = error if rank is Rank.ROBOTS else None
        self._hosts[host] = _PutOff(str(error), until, owed=owed)

    def check(self, host: str, rank: Rank = Rank.TARGET) -> None:
        """Raise PutOff for a request of ``rank`` to a host that is put off.

        Raises Unreachable instead for the target that the attempt to reach it was made for.
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
