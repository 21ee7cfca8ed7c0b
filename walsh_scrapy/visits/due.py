"""R8: a source is asked for once a day or less; a run asks only for those that are due."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.frontier import in_turn
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.state.sourcerecord import Known, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.crawler import Crawler

    from walsh_scrapy.sources import Source

logger = logging.getLogger(__name__)


class Visit(NamedTuple):
    """A source to ask for, and the address to begin with: its own, or where it moved to."""

    source: Source
    url: str


def agenda(crawler: Crawler, sources: Sequence[Source], *, force: bool) -> list[Visit]:
    """Return the sources that are due, in the order in which to ask, and say how many are not.

    ``force`` sets the due times aside, and no gate (decision 20); what is gone (410) rests until
    the operator says otherwise (`scrapy sources resume`).
    """
    crawl = Crawl.of(crawler)
    now, revisit = crawl.now(), crawl.options.min_revisit
    due: list[tuple[str, float, Visit]] = []
    later: list[float] = []
    for source, known in zip(sources, _known(crawl, sources), strict=True):
        record = known or SourceRecord(url=source.url, kind=source.kind)
        due_at = record.due(source.pause(revisit), now).at
        if due_at <= now or (force and due_at < NEVER):
            visit = Visit(source, record.spelled(source.url).address)
            due.append((crawl.host(visit.url), due_at, visit))
        else:
            later.append(due_at)
    _say(crawler, len(due), later)
    return in_turn(due, crawl.intervals)


def _known(crawl: Crawl, sources: Sequence[Source]) -> list[SourceRecord | None]:
    """Return what is known of each; what has a new spelling in the file goes on under that."""
    known = Known(crawl.state.sources.all())
    records = [known.of(source.url) for source in sources]
    found = zip(records, (source.url for source in sources), strict=True)
    spellings = {record.url: url for record, url in found if record and record.url != url}
    if spellings:
        crawl.state.sources.respell(spellings)
    return records


def _say(crawler: Crawler, due: int, later: list[float]) -> None:
    crawler.stats.set_value("walsh/sources/due", due)
    waiting = [due_at for due_at in later if due_at < NEVER]
    if resting := len(later) - len(waiting):
        crawler.stats.set_value("walsh/sources/resting", resting)
    if waiting:
        crawler.stats.set_value("walsh/sources/not_due", len(waiting))
        crawler.stats.set_value("walsh/sources/next_due", min(waiting))
        when = format_moment(min(waiting))
        logger.info("%d sources are not due yet, the next one at %s", len(waiting), when)
