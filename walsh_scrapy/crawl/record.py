"""The outcome of a visit, written into the record of its source (R7, R8; decisions 17, 20, 21)."""

from __future__ import annotations

import logging
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from walsh_scrapy.crawl import moves
from walsh_scrapy.crawl.freshness import (
    fresh_until,
    freshness_of,
    lifetime_of,
    llmstxt_after,
    with_renewed,
    with_validators,
)
from walsh_scrapy.crawl.messages import conditions_of
from walsh_scrapy.crawl.ticket import (
    DATA_LOSS,
    Lifetime,
    PageResult,
    Validators,
    Visit,
    first_url,
    marks_of,
    set_visit,
    visit_of,
)
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.freshness import NEVER, UpdateHints
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state.sourcerecord import MOST_RESENT, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.hosts import Hosts
    from walsh_scrapy.crawl.outcome import Troubles
    from walsh_scrapy.exceptions import AlreadyRead, Denied
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.documents import LlmsTxtRecord
    from walsh_scrapy.state.entries import EntryRecord
    from walsh_scrapy.state.sources import Committed

logger = logging.getLogger(__name__)

_RESENT: Final = (
    "%s came again as a whole and unchanged, %d times in a row, although its validators were sent: "
    "its server seems to know no 304; `scrapy sources` says more"
)
_GONE: Final = "%s is gone (410) and not asked for again; `scrapy sources resume %s` resumes it"


class VisitRecorder:
    """Records visits: the outcome, the validators, and when the source is due again.

    Methods take the last request of the visit. They raise StateUnavailable if the state fails.
    """

    def __init__(
        self, context: Context, stats: StatsCollector, troubles: Troubles, hosts: Hosts
    ) -> None:
        self._context = context
        self.hosts = hosts
        self._clock = context.clock
        self._stats = stats
        self._troubles = troubles

    def fetched(
        self,
        request: Request,
        response: Response,
        feed: Feed,
        entries: Sequence[EntryRecord],
        *,
        left_out: int = 0,
    ) -> frozenset[str]:
        """Commit a document with its entries; return the keys of the entries never seen before.

        The validators of a document that was cut off are not kept, because they stand for the
        whole document. ``left_out`` are the entries beyond its budget (decision 34).
        """
        is_whole = feed.is_whole and DATA_LOSS not in response.flags
        given = Validators.of(response) if is_whole else None
        llmstxt = llmstxt_after(self._context, request, response)
        hints = UpdateHints.of(feed)
        detail = "" if is_whole else f"{response.url} was cut off: only a part of it came"
        if left_out:
            detail = f"{response.url} has too many entries: {left_out}, the oldest, are left out"
            self._stats.inc_value("walsh/entries/left_out", left_out)
        if detail:
            logger.warning("%s: %s", _unseen(request).url, detail)
        body_hash = sha256(response.body).hexdigest() if is_whole and not llmstxt else None
        is_conditional = any(conditions_of(request).values())

        def change(known: SourceRecord) -> SourceRecord:
            record = replace(
                known, outcome="fetched", detail=detail, failures=0, format=feed.format
            )
            record = record.with_body(body_hash, is_conditional=is_conditional)
            if record.resent == MOST_RESENT:
                logger.warning(_RESENT, known.url, record.resent)
            record = with_validators(record, None if llmstxt else given).with_update_hints(hints)
            return moves.after_document(record, request, response.url, self._clock.now())

        renewed = with_validators(llmstxt, given) if llmstxt else None
        return self._end(request, change, response, entries, llmstxt=renewed)

    def found(self, request: Request, entries: Sequence[EntryRecord]) -> frozenset[str]:
        """Commit entries of a visit that goes on; return the keys of those never seen before.

        The source stays as due as it was.
        """
        return self._commit(request, lambda stored: stored or _unseen(request), entries).new

    def unchanged(self, request: Request, response: Response) -> None:
        """Commit that a document is unchanged (304)."""
        given = Validators.of(response)
        llmstxt = llmstxt_after(self._context, request, response)
        is_silent = freshness_of(response).is_unspecified and llmstxt is None

        def change(known: SourceRecord) -> SourceRecord:
            record = replace(_read_again(known), detail="", resent=0)
            record = with_validators(record, None) if llmstxt else with_renewed(record, given)
            return moves.after_document(record, request, response.url, self._clock.now())

        renewed = with_renewed(llmstxt, given) if llmstxt else None
        self._end(request, change, response, llmstxt=renewed, keeps_interval=is_silent)

    def shared(self, request: Request, known: AlreadyRead) -> None:
        """Commit that a document was already fetched for another source: its entries are known.

        Its freshness lifetime counts for this source too.
        """
        visit, _ = _visited(request)
        set_visit(request, visit.passed(Lifetime(known.url, known.due_at)))
        if known.trouble:
            self._fail(request, known.trouble, None)
            return
        detail = f"{known.url} was read already, at {format_moment(known.asked_at)}"

        def change(before: SourceRecord) -> SourceRecord:
            record = replace(with_validators(_read_again(before), None), detail=detail)
            after = moves.after_document(record, request, request.url, self._clock.now())
            return record if visit.llmstxt else after

        self._end(request, change, None)

    def goes_on(self, request: Request, response: Response, following: Request) -> None:
        """Add to the next request of a visit what the response of this page says.

        The page's freshness lifetime, its move and whether it is gone count when the visit ends.
        """
        now, (visit, source) = self._clock.now(), _visited(request)
        known = _known(request, self._context.state.sources.find(source.url))
        visit = visit.passed(lifetime_of(response, now), response.status)
        is_gone = visit.has_gone_page or moves.is_gone_here(known, request, response)
        if response.status < 400:
            known = moves.after_intermediate(known, request, response.url, now)
        page = PageResult(is_gone, known.move)
        set_visit(following, replace(visit, page=page).carried_to(_visited(following)[0]))

    def denied(self, request: Request, error: Denied) -> None:
        """Commit which gate denied a source, and why."""
        reason = error.reason
        if first_url(request) != request.url:
            reason = f"it redirects to {request.url}: {reason}"

        def change(known: SourceRecord) -> SourceRecord:
            logger.info("%s is denied by %s: %s", known.url, error.gate, reason)
            record = moves.after_failure(known, request, self._clock.now())
            return replace(record, outcome=f"denied by {error.gate}", detail=reason)

        self._end(request, change, None)

    def refused(self, request: Request, status: int) -> None:
        """Commit that a site refuses requests (429, 503), so that this one is put off.

        The source has not failed, and stays as due as it was (decision 15).
        """
        now = self._clock.now()

        def change(stored: SourceRecord | None) -> SourceRecord:
            record = (stored or _unseen(request)).after_refusal(status, now)
            return replace(record, detail=f"its site answers {status}")

        self._commit(request, change)
        self._stats.inc_value("walsh/sources/refused")

    def failed(self, request: Request, reason: str, answer: Response | None) -> None:
        """Commit a failure; each further one in a row doubles the operator's interval.

        A source that is gone for good (410) is not requested until the operator resumes it. One
        that used up its tries is refused, and has failed too (decision 15).
        """
        self._fail(request, reason, answer, llmstxt_after(self._context, request, answer, reason))

    def _fail(
        self,
        request: Request,
        reason: str,
        answer: Response | None,
        llmstxt: LlmsTxtRecord | None = None,
    ) -> None:
        def change(known: SourceRecord) -> SourceRecord:
            record = replace(known, outcome="failed", detail=reason, failures=known.failures + 1)
            if answer is not None and moves.is_gone(known, request, answer):
                logger.warning(_GONE, known.url, known.url)
                return replace(record, outcome="gone")
            logger.warning("%s failed: %s", known.url, reason)
            if answer is not None and answer.status in RETRIED_STATUSES:
                record = record.after_refusal(answer.status, self._clock.now())
            return moves.after_failure(record, request, self._clock.now())

        self._end(request, change, answer, llmstxt=llmstxt)

    def _commit(
        self,
        request: Request,
        change: Callable[[SourceRecord | None], SourceRecord],
        entries: Sequence[EntryRecord] = (),
        llmstxt: LlmsTxtRecord | None = None,
        *,
        ends: bool = False,
    ) -> Committed:
        """Commit a change of the source of a request, with the end of that exchange.

        With ``ends`` its visit ends, and with the last one its host is let go.
        """
        url, (_, source) = _unseen(request).url, _visited(request)
        work = self._context.state.sources.outcome(url, change, entries, llmstxt)
        return self.hosts.commit(source, work, ends=ends)

    def _end(
        self,
        request: Request,
        change: Callable[[SourceRecord], SourceRecord],
        answer: Response | None,
        entries: Sequence[EntryRecord] = (),
        llmstxt: LlmsTxtRecord | None = None,
        *,
        keeps_interval: bool = False,
    ) -> frozenset[str]:
        """Commit the record that ``change`` makes of the known one; return the new entries' keys.

        With ``keeps_interval`` what the last visit's response asked for stays in force, if that
        visit did not fail.
        """
        now, (visit, source) = self._clock.now(), _visited(request)
        least = source.revisit_interval(self._context.options.min_revisit)
        status = answer.status if answer else marks_of(request).answered or visit.status

        def visited(stored: SourceRecord | None) -> SourceRecord:
            known = _known(request, stored)
            record = change(known)
            asked = known.asked_interval if keeps_interval and not known.failures else 0.0
            until = fresh_until(visit, answer, record.address, now)
            record = replace(record, status=status, due_at=now).after_visit(now)
            record = replace(record, asked_interval=max(asked, until - now))
            is_gone = record.outcome == "gone"
            return replace(record, due_at=NEVER if is_gone else record.due(least, now).at)

        record, new = self._commit(request, visited, entries, llmstxt, ends=True)
        self.hosts.end_visit(source)
        what = "failed" if record.is_refused else record.outcome.replace("denied by ", "denied/")
        self._stats.inc_value(f"walsh/sources/{what}")
        if what == "failed":
            self._troubles.failed(request.url, record.detail)
        return new


def _read_again(known: SourceRecord) -> SourceRecord:
    """Return the record of a source whose document is unchanged; another one may have read it."""
    return replace(known, outcome="unchanged", failures=0, format=known.format or "shared")


def _visited(request: Request) -> tuple[Visit, Source]:
    """Return the visit that a request belongs to, and its source."""
    visit = visit_of(request)
    if visit is None or visit.source is None:
        raise ValueError(f"{request} is for no declared source")
    return visit, visit.source


def _unseen(request: Request) -> SourceRecord:
    """Return the record of the source of a request if the state has none."""
    _, source = _visited(request)
    return SourceRecord(url=source.url, kind=source.kind)


def _known(request: Request, stored: SourceRecord | None) -> SourceRecord:
    """Return what is known of the source of a request; ``stored`` is its record in the state."""
    visit, source = _visited(request)
    record = replace(stored or _unseen(request), kind=source.kind)
    # The move that the page of this visit showed is written when the visit ends.
    return record.with_move(visit.page.move) if visit.page else record
