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

from walsh_scrapy.crawl.lifetimes import fresh_until, freshness_of, lifetime_of
from walsh_scrapy.crawl.result import Result, is_gone_here, result_of, visited
from walsh_scrapy.crawl.sourcerecord import (
    after_refusal,
    record_after,
    start_of_row,
    with_move,
    with_validators,
)
from walsh_scrapy.crawl.ticket import (
    DATA_LOSS,
    PageResult,
    hops_of,
    set_visit,
    source_of,
    ticket_of,
)
from walsh_scrapy.crawl.transactions import HostLost
from walsh_scrapy.exceptions import (
    BadAnswer,
    HostDeferred,
    NotDue,
    NotModified,
    RequestDeferred,
    StateUnavailable,
    StillDue,
)
from walsh_scrapy.policy.freshness import NEVER, UpdateHints, move_after_intermediate, not_before
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.errors import RefusedValues
from walsh_scrapy.state.records import MAX_RESENT, LlmsTxtRecord, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy import Request
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.problems import Problems
    from walsh_scrapy.crawl.scrapyinternals import Engine
    from walsh_scrapy.crawl.ticket import Visit
    from walsh_scrapy.crawl.visits import Visits
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.state.entries import EntryRecord

logger = logging.getLogger(__name__)

_RESENT: Final = (
    "%s came again as a whole and unchanged, %d times in a row, although its validators were sent: "
    "its server seems not to use 304; `%s sources` shows more"
)


class Outcomes:
    """Records visits: the outcome, the validators, and the time until the next one.

    A source whose request is deferred stays due, even if the state fails. Methods take the last
    request of the visit. They raise StateUnavailable if the state fails.
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
        # By the URLs of the sources whose visits go on: the refusal of an earlier document.
        self._refusals: dict[str, RefusedValues] = {}

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
        _, source = visited(request)
        is_whole = feed.is_whole and DATA_LOSS not in response.flags
        detail = ""
        if not is_whole:
            has_all = feed.is_whole and source.kind == "feed"  # its parser saw its end
            part = "behind the end of the feed" if has_all else "only a part of it came"
            detail = f"{response.url} was cut off: {part}"
            self._stats.inc_value("walsh/sources/cut_off")
        if left_out:
            detail = f"{response.url} has too many entries: {left_out}, the oldest, are left out"
            self._stats.inc_value("walsh/entries/left_out", left_out)
        if detail:
            logger.warning("%s: %s", source.url, detail)
        result = Result("fetched", detail, response, response.url, feed, is_whole)
        return self._end(request, result, entries)

    def found(self, request: Request, entries: Sequence[EntryRecord]) -> frozenset[str]:
        """Commit entries of a visit that goes on; return the keys of those never seen before.

        The source stays as due as it was. If the database refuses them, the visit will fail.
        """
        try:
            return self._commit(request, self._known(request), entries)
        except RefusedValues as error:
            self._refusals[visited(request)[1].url] = error
            return frozenset()

    def carry(
        self, request: Request, ended: Response | BaseException | None, following: Request
    ) -> None:
        """Give the next request of a visit the facts of the visit, as the last one ``ended``.

        The freshness lifetime of a response counts when the visit ends. If a page led to the next
        request, its move counts too, and whether it is gone.
        """
        now, (visit, _) = self._clock.now(), visited(request)
        response = ended if isinstance(ended, Response) else _response_of(ended)
        if response is not None:
            visit = visit.passed(lifetime_of(response, now), response.status)
        if isinstance(ended, Response):
            known = self._known(request)
            is_gone = visit.has_gone_page or is_gone_here(known, request, ended)
            if ended.status < 400:
                known = with_move(move_after_intermediate, known, request, ended.url, now)
            visit = replace(visit, page=PageResult(is_gone, known.move))
        set_visit(following, visit.carried_to(visited(following)[0]))

    def ended(
        self, request: Request, error: BaseException | None, answer: Response | None = None
    ) -> None:
        """Record the outcome of a visit that ended in an exception.

        ``answer`` is the response that could not be read, if that is why.
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
            self._end(
                request,
                result_of(self._known(request), request, error, answer or _response_of(error)),
            )

    @contextmanager
    def deferring(self, request: Request) -> Iterator[None]:
        """Leave the source of a request as due as it was if the block raises RequestDeferred."""
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
                self._refused(request, error)
                self._visits.end(source)

    def _refused(self, request: Request, error: RequestDeferred) -> None:
        """Commit that a site refuses requests (429, 503), if one of a source is deferred for that.

        The source has not failed, and stays as due as it was (decision 15).
        """
        status = error.refused if isinstance(error, HostDeferred) else None
        try:
            if type(error) in (RequestDeferred, StillDue):
                snapshot = self._context.state.hosts.find(self._context.host(request.url))
                status = snapshot.times.refused if snapshot.hold else None
            if status is not None:
                record = after_refusal(self._known(request), status, self._clock.now())
                self._commit(request, replace(record, detail=f"its site answers {status}"))
                self._stats.inc_value("walsh/sources/refused")
        except (HostLost, RefusedValues, StateUnavailable) as failure:
            logger.debug("the refusal is not recorded: %s", failure)

    def _known(self, request: Request) -> SourceRecord:
        """Return the row of the source of a request, with the move that its page showed."""
        visit, source = visited(request)
        record = self._visits.known(source) or SourceRecord(url=source.url, kind=source.kind)
        record = replace(record, kind=source.kind)
        return record.with_move(visit.page.move) if visit.page else record

    def _end(
        self, request: Request, result: Result, entries: Sequence[EntryRecord] = ()
    ) -> frozenset[str]:
        """Commit how a visit ended; return the keys of the entries never seen before.

        A visit whose result the database refuses has failed: its source backs off, and is not read
        again in every run (decision 29).
        """
        refusal = self._refusals.pop(visited(request)[1].url, None)
        if refusal is None:
            try:
                return self._commit_end(request, result, entries)
            except RefusedValues as error:
                refusal = error
        return self._end_refused(request, refusal)

    def _end_refused(self, request: Request, refusal: RefusedValues) -> frozenset[str]:
        """Commit that a visit failed whose values were refused, and end the run."""
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
        now, (visit, source), answer = self._clock.now(), visited(request), result.answer
        known, status = self._known(request), ticket_of(request).answered or visit.status
        if answer is not None:
            visit, status = visit.passed(lifetime_of(answer, now)), answer.status
        record = record_after(known, request, result, now)
        if record.resent == MAX_RESENT > known.resent:
            logger.warning(_RESENT, record.url, record.resent, program_name())
        llmstxt = None if result.is_shared else self._llmstxt_after(request, visit, result)
        wished = fresh_until(visit, record.address, now) - now
        if result.outcome == "unchanged" and answer is not None and llmstxt is None:
            # A 304 without such headers keeps those of the stored response.
            keeps = freshness_of(answer).is_unspecified and not known.failures
            wished = max(wished, known.server_interval if keeps else 0.0)
        least = source.revisit_interval(self._context.options.min_revisit)
        hours = frozenset(map(int, filter(None, record.skip_hours.split(","))))
        days = frozenset(filter(None, record.skip_days.split(",")))
        hints = UpdateHints(record.feed_interval, hours, days)
        is_gone = record.outcome == "gone"
        until = NEVER if is_gone else not_before(now, wished, hints, least, record.failures)
        record = replace(
            record,
            status=status,
            first_visited_at=record.first_visited_at or now,
            visited_at=now,
            server_interval=wished,
            not_before=until,
            failing_since=start_of_row(record.failing_since, now) if record.failures else None,
            refused_since=record.refused_since if record.is_refused else None,
        )
        new = self._commit(request, record, entries, llmstxt, ends=True)
        self._visits.end(source)
        what = "failed" if record.is_refused else record.outcome.replace("denied by ", "denied/")
        self._stats.inc_value(f"walsh/sources/{what}")
        if what == "failed":
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
        """Commit the row of the source of a request, with the end of that exchange.

        With ``ends`` its visit ends, and with the last one its host is let go.
        """
        _, source = visited(request)
        known, host = self._visits.known(source), self._context.host(record.address)
        store = self._context.state.sources
        work = store.outcome_writer(known, record, entries, llmstxt, host=host)
        return self._visits.hosts.commit(source, work, store.is_written(record), ends=ends)

    def _llmstxt_after(
        self, request: Request, visit: Visit, result: Result
    ) -> LlmsTxtRecord | None:
        """Return the new record of the llms.txt that was requested; None for any other request.

        An llms.txt is shared by the sources of its host (R9). It is due again after the freshness
        lifetimes of its responses, and not before ``WALSH_MIN_REVISIT`` (decision 20).
        """
        if visit.llmstxt is None or result.outcome.startswith("denied"):
            return None
        now, revisit = self._clock.now(), self._context.options.min_revisit
        own = {request.url, *(hop.url for hop in hops_of(request))}
        wished = [each.until - now for each in visit.lifetimes if each.url in own]
        until = not_before(now, max(wished, default=0.0), UpdateHints(), revisit)
        known = self._context.state.llmstxt.find(visit.llmstxt) or LlmsTxtRecord(url=visit.llmstxt)
        problem = "" if result.url else result.detail
        record = replace(known, requested_at=now, due_at=max(until, now + revisit), problem=problem)
        return with_validators(record, result) if result.url else record


def _response_of(error: BaseException | None) -> Response | None:
    """Return the response that came, although it is of no use."""
    return error.response if isinstance(error, HttpError | BadAnswer | NotModified) else None
