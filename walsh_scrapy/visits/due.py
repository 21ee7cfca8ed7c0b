"""Which declared sources are due: each is requested once a day or less (R8)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.frontier import start_order
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.state.sourcerecord import KnownSources, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.runtime.context import Context, Pauses
    from walsh_scrapy.sources import Source

logger = logging.getLogger(__name__)


class DueSource(NamedTuple):
    """A source that is due, and the URL to request: its own, or where it moved to."""

    source: Source
    url: str


def due_sources(
    context: Context,
    stats: StatsCollector,
    pauses: Pauses,
    sources: Sequence[Source],
    *,
    force: bool = False,
) -> list[DueSource]:
    """Return the sources that are due, in the order of their requests; log how many are not.

    ``force`` ignores the due times, but no gate (decision 20). A source that is gone (410) is left
    out until the operator resumes it (`scrapy sources resume`). Raises StateUnavailable if the
    state fails.
    """
    now, revisit = context.clock.now(), context.options.min_revisit
    histories = context.state.sources.histories() if context.options.adaptive else {}
    due: list[tuple[str, float, DueSource]] = []
    later: list[float] = []
    for source, known in zip(sources, _known(context, sources), strict=True):
        record = known or SourceRecord(url=source.url, kind=source.kind)
        history = histories.get(record.url)
        due_at = record.due(source.revisit_interval(revisit), now, history).at
        if due_at <= now or (force and due_at < NEVER):
            found = DueSource(source, record.with_url(source.url).address)
            due.append((context.host(found.url), due_at, found))
        else:
            later.append(due_at)
    _report(stats, len(due), later)
    return start_order(due, pauses.intervals, context.late_hosts)


def _known(context: Context, sources: Sequence[Source]) -> list[SourceRecord | None]:
    """Return the record of each source; rename those whose URL has a new spelling in the file."""
    known = KnownSources(context.state.sources.all())
    records = [known.find(source.url) for source in sources]
    found = zip(records, (source.url for source in sources), strict=True)
    spellings = {record.url: url for record, url in found if record and record.url != url}
    if spellings:
        context.state.sources.rename(spellings)
    return records


def _report(stats: StatsCollector, due: int, later: list[float]) -> None:
    stats.set_value("walsh/sources/due", due)
    waiting = [due_at for due_at in later if due_at < NEVER]
    if gone := len(later) - len(waiting):
        stats.set_value("walsh/sources/resting", gone)
    if waiting:
        stats.set_value("walsh/sources/not_due", len(waiting))
        stats.set_value("walsh/sources/next_due", min(waiting))
        sources, when = count_of(len(waiting), "source"), format_moment(min(waiting))
        logger.info("not due yet: %s, the next one at %s", sources, when)
