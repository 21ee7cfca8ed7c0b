"""The result of a visit, the row of its source after it, and its commit (R7, R8).

    the last response of a visit, or its exception -> Result -> `record_after` -> one transaction

A visit owns its host, so its source is as it was known when the visit began (decisions 17, 20, 21).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.crawl.hosts.ownedhosts import HostLost
from walsh_scrapy.crawl.ticket import DATA_LOSS, hops_of, set_visit, ticket_of
from walsh_scrapy.exceptions import (
    BadAnswer,
    HostDeferred,
    NotDue,
    NotModified,
    RequestDeferred,
    StateUnavailable,
    StillDue,
)
from walsh_scrapy.feeds.freshness import NEVER, UpdateHints, move_after_intermediate, not_before
from walsh_scrapy.feeds.lifetimes import fresh_until, freshness_of, lifetime_of
from walsh_scrapy.feeds.moves import move_of, moved
from walsh_scrapy.feeds.result import Result, is_gone_here, result_of, visited
from walsh_scrapy.feeds.sourcerecord import (
    after_refusal,
    record_after,
    start_of_streak,
    with_move,
    with_validators,
)
from walsh_scrapy.feeds.sourcevisit import PageResult, source_of
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.errors import RefusedValues
from walsh_scrapy.state.records import MAX_RESENT, LlmsTxtRecord, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy import Request
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.problems import Problems
    from walsh_scrapy.crawl.scrapyinternals import Engine
    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.sourcevisit import SourceVisit
    from walsh_scrapy.feeds.stores.entrystore import EntryRecord
    from walsh_scrapy.feeds.visits import Visits

logger = logging.getLogger(__name__)

_RESENT: Final = (
    "%s came again as a whole and unchanged, %d times in a row, although its validators were sent: "
    "its server seems not to use 304; `%s sources` shows more"
)


class Outcomes:
    """Records how visits end: the outcome, the validators, and when the next visit is due.

    A source whose request is deferred stays due, even if the state fails. The methods take the last
    request of the visit, and raise StateUnavailable if the state fails.
    """

    def __init__(
        self, stats: StatsCollector, problems: Problems, visits: Visits, engine: Engine
    ) -> None:
        self._stats = stats
        self._engine = engine
        self._problems = problems
        self._visits = visits
        self._context = visits.context
        self._clock = visits.context.clock
        # By source URL: why the database refused an earlier document of a visit that goes on.
        self._refusals: dict[str, RefusedValues] = {}

    def record_document(
        self,
        request: Request,
        response: Response,
        feed: Feed,
        entries: Sequence[EntryRecord],
        *,
        left_out: int = 0,
    ) -> frozenset[str]:
        """Commit a document with its entries; return the keys of the new entries.

        The validators of a response that was cut off are not kept, because they stand for all of
        it. ``left_out`` is the number of entries beyond the limits of one document.
        """
        _, source = visited(request)
        is_complete = feed.is_complete and DATA_LOSS not in response.flags
        detail = ""
        if not is_complete:
            has_end = feed.is_complete and source.kind == "feed"  # its parser saw the end
            part = "after the end of the feed" if has_end else "only a part of it came"
            detail = f"{response.url} was cut off: {part}"
            self._stats.inc_value("walsh/sources/cut_off")
        if left_out:
            detail = f"{response.url} has too many entries; skipped the oldest {left_out}"
            self._stats.inc_value("walsh/entries/left_out", left_out)
        if detail:
            logger.warning("%s: %s", source.url, detail)
        result = Result("fetched", detail, response, response.url, feed, is_complete)
        return self._end_visit(request, result, entries)

    def record_entries(self, request: Request, entries: Sequence[EntryRecord]) -> frozenset[str]:
        """Commit entries of a visit that goes on; return the keys of the new entries.

        When the source is due does not change. If the database refuses the entries, the visit
        fails when it ends.
        """
        try:
            return self._commit(request, self._find_record(request), entries)
        except RefusedValues as error:
            self._refusals[visited(request)[1].url] = error
            return frozenset()

    def continue_visit(
        self, request: Request, ended: Response | BaseException | None, following: Request
    ) -> None:
        """Pass the facts of a visit on to its next request.

        ``ended`` is the response or the exception of the last request. The lifetime of a response
        counts when the visit ends. So does a page that moved or is gone.
        """
        now = self._clock.now()
        visit, _ = visited(request)
        response = ended if isinstance(ended, Response) else _response_of(ended)
        if response is not None:
            visit = visit.passed(lifetime_of(response, now), response.status)
        if isinstance(ended, Response):
            record = self._find_record(request)
            is_gone = visit.has_gone_page or is_gone_here(record, request, ended)
            if ended.status < 400:
                record = with_move(move_after_intermediate, record, request, ended.url, now)
            visit = replace(visit, page=PageResult(is_gone, move_of(record)))
        set_visit(following, visit.carried_to(visited(following)[0]))

    def record_exception(
        self, request: Request, error: BaseException | None, response: Response | None = None
    ) -> None:
        """Record the outcome of a visit that ended in an exception.

        ``response`` is the response that could not be read, if that is the reason.
        """
        with self.deferring(request):
            if isinstance(error, RequestDeferred):
                raise error
            if isinstance(error, NotDue):  # a spider's own request
                self._visits.end(visited(request)[1])
                self._stats.inc_value("walsh/sources/not_due")
                self._stats.inc_value("walsh/sources/due", -1)
                self._stats.min_value("walsh/sources/next_due", error.due_at)
                return
            record = self._find_record(request)
            response = response or _response_of(error)
            self._end_visit(request, result_of(record, request, error, response))

    @contextmanager
    def deferring(self, request: Request) -> Iterator[None]:
        """Keep the source of a request due if the block raises RequestDeferred."""
        try:
            yield
        except RequestDeferred as error:
            source = source_of(request)
            url = source.url if source else request.url
            level = logging.DEBUG if isinstance(error, HostDeferred) else logging.INFO
            logger.log(level, "%s is deferred to a later run: %s", url, error)
            self._stats.inc_value("walsh/sources/deferred")
            self._stats.min_value("walsh/sources/deferred_until", error.until)
            self._problems.defer(request.url, error.until)
            if source:
                self._record_refusal(request, error)
                self._visits.end(source)

    def _record_refusal(self, request: Request, error: RequestDeferred) -> None:
        """Commit that a site refuses requests (429, 503), if a request is deferred for that reason.

        The source has not failed, and stays due.
        """
        status = error.refused if isinstance(error, HostDeferred) else None
        try:
            # The other subclasses are trouble of this machine or of the state.
            if type(error) in (RequestDeferred, StillDue):
                snapshot = self._context.state.hosts.find(self._context.host(request.url))
                status = snapshot.times.refused if snapshot.hold else None
            if status is not None:
                record = after_refusal(self._find_record(request), status, self._clock.now())
                self._commit(request, replace(record, detail=f"its site answers {status}"))
                self._stats.inc_value("walsh/sources/refused")
        except (HostLost, RefusedValues, StateUnavailable) as failure:
            logger.debug("the refusal is not recorded: %s", failure)

    def _find_record(self, request: Request) -> SourceRecord:
        """Return the row of the source of a request, with the move that its page showed."""
        visit, source = visited(request)
        record = self._visits.find_record(source) or SourceRecord(url=source.url, kind=source.kind)
        record = replace(record, kind=source.kind)
        return moved(record, visit.page.move) if visit.page else record

    def _end_visit(
        self, request: Request, result: Result, entries: Sequence[EntryRecord] = ()
    ) -> frozenset[str]:
        """Commit how a visit ended; return the keys of the new entries.

        If the database refuses the result, the visit has failed, so that the source backs off and
        is not read again in every run.
        """
        refusal = self._refusals.pop(visited(request)[1].url, None)
        if refusal is None:
            try:
                return self._commit_end(request, result, entries)
            except RefusedValues as error:
                refusal = error
        return self._end_refused_visit(request, refusal)

    def _end_refused_visit(self, request: Request, refusal: RefusedValues) -> frozenset[str]:
        """Commit that a visit failed because its values were refused, and end the run."""
        url = visited(request)[1].url
        reason = f"the state does not accept what it brought ({refusal})"
        try:
            new = self._commit_end(request, Result("failed", reason))
        except RefusedValues as error:
            line = f"{url} stays due: the state does not even accept that it failed ({error})"
            self._engine.end("state_failed", line)
            raise StateUnavailable(self._clock.now(), line) from error
        self._engine.end("state_failed", f"{url} failed: {reason}; the run ends")
        return new

    def _commit_end(
        self, request: Request, result: Result, entries: Sequence[EntryRecord] = ()
    ) -> frozenset[str]:
        now = self._clock.now()
        visit, source = visited(request)
        response = result.response
        previous = self._find_record(request)
        status = ticket_of(request).answered or visit.status
        if response is not None:
            visit = visit.passed(lifetime_of(response, now))
            status = response.status
        record = record_after(previous, request, result, now)
        if record.resent > previous.resent and record.resent == MAX_RESENT:
            logger.warning(_RESENT, record.url, record.resent, program_name())
        llmstxt = None if result.is_shared else self._llmstxt_after(request, visit, result)
        server_interval = fresh_until(visit, record.address, now) - now
        if result.outcome == "unchanged" and response is not None and llmstxt is None:
            # A 304 without a lifetime keeps the lifetime of the stored response.
            keeps_interval = freshness_of(response).is_unspecified and not previous.failures
            stored_interval = previous.server_interval if keeps_interval else 0.0
            server_interval = max(server_interval, stored_interval)
        min_interval = source.revisit_interval(self._context.options.min_revisit)
        hints = UpdateHints(
            record.feed_interval,
            frozenset(int(hour) for hour in record.skip_hours.split(",") if hour),
            frozenset(day for day in record.skip_days.split(",") if day),
        )
        due_at = not_before(now, server_interval, hints, min_interval, record.failures)
        if record.outcome == "gone":
            due_at = NEVER
        record = replace(
            record,
            status=status,
            first_visited_at=record.first_visited_at or now,
            visited_at=now,
            server_interval=server_interval,
            not_before=due_at,
            failing_since=start_of_streak(record.failing_since, now) if record.failures else None,
            refused_since=record.refused_since if record.is_refused else None,
        )
        new = self._commit(request, record, entries, llmstxt, ends=True)
        self._visits.end(source)
        name = "failed" if record.is_refused else record.outcome.replace("denied by ", "denied/")
        self._stats.inc_value(f"walsh/sources/{name}")
        if name == "failed":
            self._problems.failed(request.url, record.detail)
        return new

    def _commit(
        self,
        request: Request,
        record: SourceRecord,
        entries: Sequence[EntryRecord] = (),
        llmstxt: LlmsTxtRecord | None = None,
        *,
        ends: bool = False,
    ) -> frozenset[str]:
        """Commit the row of the source of a request; return the keys of the new entries.

        The end of the exchange is written with it. ``ends`` means that the visit ends; the host is
        let go with its last visit.
        """
        _, source = visited(request)
        previous = self._visits.find_record(source)
        host = self._context.host(record.address)
        store = self._visits.stores.sources
        work = store.outcome_writer(previous, record, entries, llmstxt, host=host)
        return self._visits.hosts.commit(source.url, work, store.is_written(record), ends=ends)

    def _llmstxt_after(
        self, request: Request, visit: SourceVisit, result: Result
    ) -> LlmsTxtRecord | None:
        """Return the new record of the llms.txt that was requested; None for any other request.

        The sources of a host share its llms.txt (R9). It is due again when its responses are no
        longer fresh, and ``WALSH_MIN_REVISIT`` is over.
        """
        if visit.llmstxt is None or result.outcome.startswith("denied"):
            return None
        now = self._clock.now()
        min_revisit = self._context.options.min_revisit
        urls = {request.url, *(hop.url for hop in hops_of(request))}
        intervals = [lifetime.until - now for lifetime in visit.lifetimes if lifetime.url in urls]
        due_at = not_before(now, max(intervals, default=0.0), UpdateHints(), min_revisit)
        due_at = max(due_at, now + min_revisit)
        record = self._visits.stores.llmstxt.find(visit.llmstxt) or LlmsTxtRecord(url=visit.llmstxt)
        problem = "" if result.document_url else result.detail
        record = replace(record, requested_at=now, due_at=due_at, problem=problem)
        return with_validators(record, result) if result.document_url else record


def _response_of(error: BaseException | None) -> Response | None:
    """Return the response of an exception, if it has one."""
    return error.response if isinstance(error, HttpError | BadAnswer | NotModified) else None
