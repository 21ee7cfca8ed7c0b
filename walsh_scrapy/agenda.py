"""R8: a source is asked for once a day or less; a run asks only for those that are due."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.frontier import in_turn
from walsh_scrapy.policy.urls import canonical_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy.crawler import Crawler

    from walsh_scrapy.sources import Source

logger = logging.getLogger(__name__)


class Visit(NamedTuple):
    """A source to ask for, and the address to begin with: its own, or where it moved to."""

    source: Source
    url: str


def agenda(crawler: Crawler, sources: Iterable[Source], *, force: bool) -> list[Visit]:
    """Return the sources that are due, in the order in which to ask, and say how many are not.

    ``force`` sets the waiting aside, and no other gate (ruling 20); what is gone (410) rests until
    the operator says otherwise (`scrapy sources resume`).
    """
    crawl = Crawl.of(crawler)
    now, store = crawl.now(), crawl.state.sources
    known, peculiar = store.due_times(), store.peculiar()
    due: list[tuple[str, float, Visit]] = []
    later: list[float] = []
    elsewhere = _Respelled(known)
    for source in sources:
        due_at, url = known.get(source.url), source.url
        if due_at is None:
            due_at = elsewhere.due_at(url)
        if record := peculiar.get(url):
            due_at, url = record.due_from(now), record.address
        if due_at <= now or (force and due_at < NEVER):
            due.append((crawl.host(url), known.get(source.url, 0.0), Visit(source, url)))
        else:
            later.append(due_at)
    _say(crawler, len(due), later)
    return in_turn(due, crawl.intervals)


class _Respelled:
    """When sources are due that the state knows in another spelling: `/feed` and `/feed/`."""

    def __init__(self, known: Mapping[str, float]) -> None:
        self._known = known

    def due_at(self, url: str) -> float:
        """Return when the same source is due under another spelling; 0 if it is new."""
        return self._by_page.get(canonical_url(url), 0.0)

    @cached_property
    def _by_page(self) -> dict[str, float]:
        return {canonical_url(url): due_at for url, due_at in self._known.items()}


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
