"""What a gate says when it denies a request: a number in the stats, and a line in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requestmeta import evidence_of, rank_of, source_of
from walsh_scrapy.runtime.startup import in_force
from walsh_scrapy.state.evidence import DenialRecord

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


def denied(crawler: Crawler, request: Request, gate: str, reason: str) -> Denied:
    """Return the exception for a request that a gate denies; count the denial and record it.

    Where the gate is used alone, nothing else would log it.
    """
    crawler.stats.inc_value(f"walsh/{gate}/denied")
    error = Denied(gate, reason)
    context = Context.of(crawler)
    record_denial(context, request, error)
    is_alone = context.part("is_alone", lambda: not in_force(crawler.settings, Gate.DENIALS))
    if is_alone:
        log_denial(request, error)
    return error


def record_denial(context: Context, request: Request, error: Denied) -> None:
    """Write a denial and its evidence into the state (decision 33)."""
    record = DenialRecord(
        at=context.clock.now(),
        host=host_of(request.url),
        url=request.url,
        gate=error.gate,
        reason=error.reason,
        run=context.run,
        evidence=evidence_of(request).of_gate(error.gate),
    )
    context.state.evidence.deny(record)


def log_denial(request: Request, error: Denied) -> None:
    """Log a denied request (DEBUG), as Scrapy logs what robots.txt forbids.

    Requests for declared sources are logged where their outcome is recorded.
    """
    if source_of(request) is None and rank_of(request) is Rank.TARGET:
        logger.debug("%s is denied by %s: %s", request.url, error.gate, error.reason)
