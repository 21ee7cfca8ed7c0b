"""The summary of a run as a JSON object: what the state keeps, and ``WALSH_SUMMARY`` writes.

``walsh_scrapy/summary.schema.json`` is its schema.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.tools.files import atomic_file
from walsh_scrapy.tools.summary.counts import RequestCounts, SourceCounts, is_by_source
from walsh_scrapy.tools.summary.text import next_steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from walsh_scrapy.crawl import Crawl
    from walsh_scrapy.visits.outcome import Troubles

#: Reasons of failures in the object, hosts of each, and hosts that are deferred.
MOST_REASONS: Final = 50
MOST_HOSTS: Final = 20
MOST_DEFERRED: Final = 100


def summary_of(crawl: Crawl, how: str) -> dict[str, Any]:
    """Return the summary of a crawl; ``how`` is how it ended, as Scrapy names it.

    Each call for a crawl returns the same object, so that the state and a file agree.
    """
    if crawl.summary is None:
        context, spider = crawl.context, crawl.crawler.spider
        now = context.clock.now()
        crawl.summary = {
            "run": context.run,
            "spider": spider.name if spider else "",
            "begun": context.started_at,
            "ended": now,
            "how": how,
        } | counts_of(crawl.stats.get_stats(), crawl.troubles, how, now)
    return crawl.summary


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write a summary as a file that is whole or not there at all. Raises OSError."""
    with atomic_file(path) as file:
        file.write(json.dumps(summary, indent=2).encode() + b"\n")


def counts_of(stats: Mapping[str, Any], troubles: Troubles, how: str, now: float) -> dict[str, Any]:
    """Return what a run did: by source with its troubles, or by request without any.

    ``now`` is its end, in epoch seconds.
    """
    if not is_by_source(stats):
        return asdict(RequestCounts.of(stats))
    counts = SourceCounts.of(stats)
    until = sorted(troubles.deferred.items(), key=lambda each: each[1])
    return asdict(counts) | {
        "not_reached": counts.not_reached,
        "failures": [
            {
                "reason": group.reason,
                "sources": group.sources,
                "hosts": group.hosts[:MOST_HOSTS],
                "more_hosts": max(0, len(group.hosts) - MOST_HOSTS),
            }
            for group in troubles.failures.largest_first()[:MOST_REASONS]
        ],
        "deferred_hosts": dict(until[:MOST_DEFERRED]),
        "next": next_steps(counts, how, now),
    }
