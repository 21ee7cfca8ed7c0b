"""What came of each visit of a source, written into its line (R7, R8; decisions 17, 20, 21)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from walsh_scrapy.policy.freshness import NEVER, UpdateHints
from walsh_scrapy.policy.moves import (
    are_permanent,
    move_after_document,
    move_after_failure,
    move_after_intermediate,
    permanent_targets,
)
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.negotiation import ABSENT
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.visits.lifetimes import Passed, asked_until, freshness_of, go_on, passed_by
from walsh_scrapy.visits.llmstxt import index_after, renewed, vouched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.exceptions import AlreadyRead, Denied
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.policy.moves import Move
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.entries import EntryRecord
    from walsh_scrapy.state.indexes import IndexRecord

#: How a visit changes what is known of a move.
Rule = Callable[["Move | None", str, str, "Sequence[str]", float], "Move | None"]

logger = logging.getLogger(__name__)

GONE = HTTPStatus.GONE


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
        is_whole = feed.is_whole and meta.DATA_LOSS not in response.flags
        given = meta.Validators.of(response) if is_whole else None
        index = index_after(self._crawl, request, response)
        known = self._known(source, request).wishing(UpdateHints.of(feed))
        detail = "" if is_whole else f"{response.url} was cut off on its way: not all of it came"
        if detail:
            logger.warning("%s: %s", source.url, detail)
        record = replace(known, outcome="fetched", detail=detail, failures=0)
        record = vouched(record, None if index else given)
        return self._end(
            self._moved(record, request, response.url),
            source,
            request,
            response,
            entries,
            index=vouched(index, given) if index else None,
        )

    def unchanged(self, source: Source, request: Request, response: Response) -> None:
        """Go on with what is known of a document that its server says is still the newest (304)."""
        given, index = meta.Validators.of(response), index_after(self._crawl, request, response)
        known = self._known(source, request)
        holds_on = freshness_of(response).is_unspecified and known.failures == 0 and index is None
        record = replace(known, outcome="unchanged", detail="", failures=0)
        record = vouched(record, None) if index else renewed(record, given)
        moved = self._moved(record, request, response.url)
        index = renewed(index, given) if index else None
        asked = known.asked_interval if holds_on else 0.0
        self._end(moved, source, request, response, index=index, asked=asked)

    def shared(self, source: Source, request: Request, known: AlreadyRead) -> None:
        """Go by a document that was asked for on another source's account: its entries are known.

        What it asks for counts for this source too.
        """
        request.meta[meta.PASSED] = (*passed_by(request), Passed(known.url, known.due_at))
        if known.trouble:
            self._fail(source, request, known.trouble, None)
            return
        record = replace(
            vouched(self._known(source, request), None),
            outcome="unchanged",
            detail=f"{known.url} was read already, at {format_moment(known.asked_at)}",
            failures=0,
        )
        if meta.index(request) is None:
            record = self._moved(record, request, request.url)
        self._end(record, source, request, None)

    def goes_on(
        self, source: Source, request: Request, response: Response, following: Request
    ) -> None:
        """Let the next request of a visit know what the page says that led to it.

        It asks for a time to be left alone, and it may have moved or be gone; all of it counts when
        the visit ends.
        """
        go_on(following, request, response, self._crawl.now())
        known = self._known(source, request)
        is_gone = response.status == GONE and _is_for_good(known, request)
        following.meta[meta.GONE] = is_gone or request.meta.get(meta.GONE, False)
        if response.status < 400:
            known = self._moved(known, request, response.url, move_after_intermediate)
        following.meta[meta.MOVE] = known.move

    def denied(self, source: Source, request: Request, error: Denied) -> None:
        """Note which gate denied a source, and why."""
        logger.info("%s is denied by %s: %s", source.url, error.gate, error.reason)
        record = replace(
            self._lost(self._known(source, request), request),
            outcome=f"denied by {error.gate}",
            detail=error.reason,
        )
        self._end(record, source, request, None, count=f"denied/{error.gate}")

    def failed(
        self, source: Source, request: Request, reason: str, answer: Response | None
    ) -> None:
        """Note a failure; one after another, they double the time to the next visit.

        What is gone for good (410) rests until the operator says otherwise.
        """
        self._fail(
            source, request, reason, answer, index_after(self._crawl, request, answer, reason)
        )

    def _fail(
        self,
        source: Source,
        request: Request,
        reason: str,
        answer: Response | None,
        index: IndexRecord | None = None,
    ) -> None:
        known = self._known(source, request)
        record = replace(known, outcome="failed", detail=reason, failures=known.failures + 1)
        if answer is not None and _is_gone(known, request, answer):
            logger.warning(
                "%s is gone (410): it rests until you say `scrapy sources resume %s`",
                source.url,
                source.url,
            )
            self._end(replace(record, outcome="gone"), source, request, answer, index=index)
            return
        logger.warning("%s failed: %s", source.url, reason)
        self._end(self._lost(record, request), source, request, answer, index=index)

    def _end(
        self,
        record: SourceRecord,
        source: Source,
        request: Request,
        answer: Response | None,
        entries: Sequence[EntryRecord] = (),
        count: str | None = None,
        index: IndexRecord | None = None,
        asked: float = 0.0,
    ) -> frozenset[str]:
        """Commit what is known after a visit; ``asked`` are seconds that hold on from the last."""
        now = self._crawl.now()
        visited = replace(
            record,
            fetched_at=now,
            due_at=now,
            status=answer.status if answer is not None else None,
            asked_interval=max(asked, asked_until(request, answer, record.address, now) - now),
        )
        least = source.pause(self._crawl.options.min_revisit)
        due_at = NEVER if record.outcome == "gone" else visited.due(least, now).at
        record = replace(visited, due_at=due_at)
        new = self._crawl.state.sources.commit(record, entries, index)
        self._stats.inc_value(f"walsh/sources/{count or record.outcome}")
        return new

    def _moved(
        self, record: SourceRecord, request: Request, last: str, rule: Rule = move_after_document
    ) -> SourceRecord:
        hops = [*request.meta.get("redirect_urls", ()), last]
        way = permanent_targets(hops, request.meta.get("redirect_reasons", ()))
        move = rule(record.move, record.url, _asked(request), way, self._crawl.now())
        if move and move.is_settled and record.address != move.to:
            logger.info("%s moved to %s, and is asked for there now", record.url, move.to)
        return record.moving(move)

    def _lost(self, record: SourceRecord, request: Request) -> SourceRecord:
        """Return the line with what a visit that brought nothing does to its move."""
        asked = _asked(request)
        if asked not in (record.url, record.moved_to):
            asked = record.address  # a document beside it failed: so did the visit there
        move = move_after_failure(record.move, record.url, asked, self._crawl.now())
        if move and move.is_doubted and record.move_settled:
            logger.info("%s fails for a week: %s is asked again", move.to, record.url)
        return record.moving(move)

    def _known(self, source: Source, request: Request) -> SourceRecord:
        # Not as it was when it was asked for: the operator or another crawl may have changed it.
        known = self._crawl.state.sources.find(source.url)
        record = replace(known or SourceRecord(url=source.url, kind=""), kind=source.kind)
        # What was learned of its move on the way to this request is written with its end.
        return record.moving(request.meta[meta.MOVE]) if meta.MOVE in request.meta else record


def _is_gone(record: SourceRecord, request: Request, answer: Response) -> bool:
    """Tell whether a source is gone for good, by its only answer or by that of its page.

    Of a page that is gone the last answer says whether there is anything in its place.
    """
    if answer.status == GONE and _is_for_good(record, request):
        return True
    is_final = answer.status == HTTPStatus.OK or answer.status in ABSENT
    return is_final and request.meta.get(meta.GONE, False)


def _is_for_good(record: SourceRecord, request: Request) -> bool:
    """Tell whether an answer speaks for the source itself: no temporary redirect led to it."""
    is_its_own = _asked(request) in (record.url, record.address)
    return is_its_own and are_permanent(request.meta.get("redirect_reasons", ()))


def _asked(request: Request) -> str:
    """Return the address with which a visit began."""
    hops: list[str] = request.meta.get("redirect_urls") or [request.url]
    return hops[0]
