"""What came of each visit of a source, written into its line (R7, R8; rulings 17, 20, 21)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.passing import Passed, freshness_of, passed_by
from walsh_scrapy.policy.freshness import NEVER, Wishes
from walsh_scrapy.policy.moves import led_to, move_of
from walsh_scrapy.state.sources import SourceRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.exceptions import Denied
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.sources import EntryRecord

logger = logging.getLogger(__name__)

GONE = 410


class Visits:
    """Ends the visit of a source: its outcome, its validators, and when it is due again."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawl = Crawl.of(crawler)
        self._stats = crawler.stats

    def fetched(
        self,
        source: Source,
        request: Request,
        response: Response,
        feed: Feed,
        entries: Sequence[EntryRecord],
    ) -> frozenset[str]:
        """Commit a document with its entries; return the keys of those never seen before.

        Validators vouch for all of a document: those of one that was cut off are not kept.
        """
        validators = meta.Validators.of(response)
        record = replace(
            self._known(source).wishing(Wishes.of(feed)),
            outcome="fetched",
            detail="",
            failures=0,
            validator_url=validators.url if feed.is_whole else None,
            etag=validators.etag if feed.is_whole else None,
            last_modified=validators.last_modified if feed.is_whole else None,
        )
        moved = self._moved(record, request, response.url)
        return self._end(moved, source, request, response, entries)

    def unchanged(self, source: Source, request: Request, response: Response) -> None:
        """Go on with what is known of a document that its server says is still the newest (304)."""
        known, given = self._known(source), meta.Validators.of(response)
        record = replace(
            known,
            outcome="unchanged",
            detail="",
            failures=0,
            etag=given.etag or known.etag,
            last_modified=given.last_modified or known.last_modified,
        )
        self._end(self._moved(record, request, response.url), source, request, response)

    def passed_by(self, source: Source, request: Request, response: Response) -> None:
        """Note where a page moved that a visit only came by, on its way to another document."""
        if request.meta.get("redirect_urls"):
            record = self._moved(self._known(source), request, response.url)
            self._crawl.state.sources.commit(record)

    def denied(self, source: Source, request: Request, error: Denied) -> None:
        """Note which gate denied a source, and why."""
        logger.info("%s is denied by %s: %s", source.url, error.gate, error.reason)
        record = replace(
            _at_home(self._known(source)), outcome=f"denied by {error.gate}", detail=error.reason
        )
        self._end(record, source, request, None, count=f"denied/{error.gate}")

    def failed(
        self, source: Source, request: Request, reason: str, answer: Response | None
    ) -> None:
        """Note a failure; one after another, they double the time to the next visit.

        What is gone for good (410) rests until the operator says otherwise.
        """
        known = self._known(source)
        record = replace(
            _at_home(known), outcome="failed", detail=reason, failures=known.failures + 1
        )
        if answer is not None and answer.status == GONE and request.url == source.url:
            logger.warning(
                "%s is gone (410): it rests until you say `scrapy sources resume %s`",
                source.url,
                source.url,
            )
            self._end(replace(record, outcome="gone"), source, request, answer)
            return
        logger.warning("%s failed: %s", source.url, reason)
        self._end(record, source, request, answer)

    def _end(
        self,
        record: SourceRecord,
        source: Source,
        request: Request,
        answer: Response | None,
        entries: Sequence[EntryRecord] = (),
        count: str | None = None,
    ) -> frozenset[str]:
        now = self._crawl.now()
        visited = replace(
            record,
            fetched_at=now,
            due_at=now,
            status=answer.status if answer is not None else None,
            asked_interval=max(0.0, _asked_until(record, request, answer, now) - now),
        )
        least = source.pause(self._crawl.options.min_revisit)
        due_at = NEVER if record.outcome == "gone" else visited.due(least, now).at
        record = replace(visited, due_at=due_at)
        new = self._crawl.state.sources.commit(record, entries)
        self._stats.inc_value(f"walsh/sources/{count or record.outcome}")
        return new

    def _moved(self, record: SourceRecord, request: Request, last: str) -> SourceRecord:
        asked = _asked(request)
        if asked not in (record.url, record.moved_to):
            return record  # a document beside it: an llms.txt, say
        hops = [*request.meta.get("redirect_urls", ()), last]
        target = led_to(hops, request.meta.get("redirect_reasons", ()))
        move = move_of(record.move, record.url, asked, target, self._crawl.now())
        if move and move.is_settled and not record.move_settled:
            logger.info("%s moved to %s, and is asked for there now", record.url, move.to)
        return record.moving(move)

    def _known(self, source: Source) -> SourceRecord:
        known = self._crawl.state.sources.find(source.url)
        return replace(known or SourceRecord(url=source.url, kind=""), kind=source.kind)


def _at_home(record: SourceRecord) -> SourceRecord:
    """Forget the address that a source settled at: its next visit begins at the declared one."""
    return record.moving(None) if record.move_settled else record


def _asked(request: Request) -> str:
    """Return the address with which a visit began."""
    hops: list[str] = request.meta.get("redirect_urls") or [request.url]
    return hops[0]


def _asked_until(
    record: SourceRecord, request: Request, answer: Response | None, now: float
) -> float:
    """Return until when the answers of a visit ask to be left alone, each for its own address.

    The hops to an address at which a source settled are not asked again, whenever that is.
    """
    passed = list(passed_by(request))
    if answer is not None:
        passed.append(Passed(answer.url, now + freshness_of(answer).lifetime(now)))
    places = [each.url for each in passed]
    start = places.index(record.address) if record.address in places else 0
    return max((each.until for each in passed[start:]), default=now)
