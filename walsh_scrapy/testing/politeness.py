"""Judges by the log of the servers whether a crawl kept R1 to R8.

    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=["optedout.example"])
    assert_polite(result.log, connections=result.connections)

There is no tolerance, and none is needed. The server reads a request after the crawler has sent it,
and starts its last write before the crawler can have read the end. So a gap in the log is never
shorter than the pause that the crawler made. For several runs over one state, pass all their hits.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Unpack

from walsh_scrapy.testing.contacts import without_requests
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.manners import Manners, Terms
from walsh_scrapy.testing.rules import RULES

__all__ = ["Manners", "Terms", "assert_polite", "most_in_flight", "violations"]


def violations(log: Iterable[Hit], **terms: Unpack[Terms]) -> list[str]:
    """Return a sentence for each violation: the rule, the host, the hits and the numbers."""
    manners = Manners(**terms)
    seen = list(log)
    hits = [*seen, *without_requests(manners.connections, seen)]
    hits.sort(key=lambda hit: hit.started)
    return [sentence for rule in RULES for sentence in rule(hits, manners)]


def assert_polite(log: Iterable[Hit], **terms: Unpack[Terms]) -> None:
    """Raise AssertionError with every violation, or if the log is empty and so proves nothing."""
    hits = list(log)
    if not hits and not terms.get("connections"):
        raise AssertionError("the log is empty: no request was made, so it proves nothing")
    if broken := violations(hits, **terms):
        lines = "\n".join(f"- {sentence}" for sentence in broken)
        raise AssertionError(f"{len(broken)} violation{'s' * (len(broken) != 1)}:\n{lines}")


def most_in_flight(log: Iterable[Hit]) -> int:
    """Return the largest number of requests in flight at the same time."""
    # At the same moment, ends are counted first: (t, -1) sorts before (t, 1).
    edges = sorted(edge for hit in log for edge in ((hit.started, 1), (hit.ended, -1)))
    return max(accumulate(change for _, change in edges), default=0)
