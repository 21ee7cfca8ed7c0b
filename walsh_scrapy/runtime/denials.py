"""What is done with each denial: a number in the stats, a row in the state, a line in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requests import evidence_of, rank_of, source_of
from walsh_scrapy.runtime.startup import in_force
from walsh_scrapy.state.log import DenialRecord

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.settings import BaseSettings
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.runtime.context import Context

logger = logging.getLogger(__name__)


class Denials:
    """The denials of one crawl. ``DenialsMiddleware`` calls ``add`` for each ``Denied`` it sees.

    Where that middleware is not in force, the gate that denies adds the denial itself.
    """

    def __init__(self, settings: BaseSettings, stats: StatsCollector, context: Context) -> None:
        self._stats = stats
        self._context = context
        self._is_alone = not in_force(settings, Gate.DENIALS)

    def deny(self, request: Request, gate: str, reason: str) -> Denied:
        """Return the exception by which a gate denies a request."""
        error = Denied(gate, reason)
        if self._is_alone:
            self.add(request, error)
        return error

    def add(self, request: Request, error: Denied) -> None:
        """Count a denial, write it into the state, and log it (DEBUG).

        Requests for declared sources are logged where their outcome is recorded.
        """
        self._stats.inc_value(f"walsh/{error.gate}/denied")
        self.write(request, error)
        if source_of(request) is None and rank_of(request) is Rank.TARGET:
            logger.debug("%s is denied by %s: %s", request.url, error.gate, error.reason)

    def write(self, request: Request, error: Denied) -> None:
        """Write a denial and its evidence into the state (decision 33)."""
        record = DenialRecord(
            at=self._context.clock.now(),
            host=host_of(request.url),
            url=request.url,
            gate=error.gate,
            reason=error.reason,
            run=self._context.run,
            evidence=evidence_of(request).of_gate(error.gate),
        )
        self._context.state.evidence.deny(record)
