"""R8: a source is asked for once a day or less; a run asks only for those that are due."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.frontier import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.crawler import Crawler

    from walsh_scrapy.sources import Source

logger = logging.getLogger(__name__)


def agenda(crawler: Crawler, sources: Iterable[Source], *, force: bool) -> list[Source]:
    """Return the sources that are due, in the order in which to ask, and say how many are not.

    ``force`` sets the waiting aside, and no other gate (ruling 20).
    """
    crawl = Crawl.of(crawler)
    now, known = crawl.now(), crawl.state.sources.due_times()
    due: list[tuple[str, float, Source]] = []
    later: list[float] = []
    for source in sources:
        due_at = known.get(source.url, 0.0)
        if force or due_at <= now:
            due.append((crawl.host(source.url), due_at, source))
        else:
            later.append(due_at)
    crawler.stats.set_value("walsh/sources/due", len(due))
    if later:
        crawler.stats.set_value("walsh/sources/not_due", len(later))
        crawler.stats.set_value("walsh/sources/next_due", min(later))
        when = format_moment(min(later))
        logger.info("%d sources are not due yet, the next one at %s", len(later), when)
    return in_turn(due, crawl.intervals)
