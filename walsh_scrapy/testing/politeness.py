"""Judges a crawl by its servers' log: whether every site got what R1 to R8 promise it.

    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=["optedout.example"])

There is no tolerance. A server reads a request after the crawler has sent it, and begins its last
write before the crawler can have seen the end: the gap in the log is never shorter than the gap
that was kept. For several runs over one state give the log of all of them.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Unpack

from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.manners import Manners, Terms
from walsh_scrapy.testing.rules import RULES

__all__ = ["Manners", "Terms", "assert_polite", "most_in_flight", "violations"]


def violations(log: Iterable[Hit], **terms: Unpack[Terms]) -> list[str]:
    """Return a sentence for each rule broken: rule, host, the hits by number, and the figures."""
    manners = Manners(**terms)
    hits = sorted(log, key=lambda hit: hit.started)
    return [sentence for rule in RULES for sentence in rule(hits, manners)]


def assert_polite(log: Iterable[Hit], **terms: Unpack[Terms]) -> None:
    """Raise an AssertionError that lists every violation; an empty log proves nothing either."""
    hits = list(log)
    if not hits:
        raise AssertionError("the log is empty: no request was made, so nothing is shown")
    if broken := violations(hits, **terms):
        lines = "\n".join(f"- {sentence}" for sentence in broken)
        raise AssertionError(f"{len(broken)} time(s) a rule was broken:\n{lines}")


def most_in_flight(log: Iterable[Hit]) -> int:
    """Return how many requests were going on at once, at most."""
    # At the same instant an end comes first: (t, -1) sorts before (t, 1).
    edges = sorted(edge for hit in log for edge in ((hit.started, 1), (hit.ended, -1)))
    return max(accumulate(change for _, change in edges), default=0)
