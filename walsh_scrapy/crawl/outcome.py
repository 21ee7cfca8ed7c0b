"""The result of a visit, the row of its source after it, and its commit (R7, R8).

    the last response of a visit, or its exception -> Result -> `record_after` -> one transaction

A visit owns its host, so its source is as it was known when the visit began (decisions 17, 20, 21).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.messages import conditions_of
from walsh_scrapy.crawl.ticket import (
    DATA_LOSS,
    Lifetime,
    PageResult,
    Validators,
    Visit,
    first_url,
    hops_of,
    set_visit,
    source_of,
    ticket_of,
    visit_of,
)
from walsh_scrapy.crawl.transactions import HostLost
from walsh_scrapy.exceptions import (
    AlreadyRead,
    BadAnswer,
    Denied,
    HostDeferred,
    NotDue,
    NotModified,
    RequestDeferred,
    StateUnavailable,
    StillDue,
    Unreachable,
)
from walsh_scrapy.metadata.alternates import ABSENT
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import (
    CLOCK_SKEW,
    NEVER,
    Freshness,
    UpdateHints,
    are_permanent,
    move_after_document,
    move_after_failure,
    move_after_intermediate,
    not_before,
    permanent_targets,
)
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import ReasonGroups
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.database import RefusedValues
from walsh_scrapy.state.records import MOST_RESENT, REFUSED, LlmsTxtRecord, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy import Request
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.scrapyinternals import Engine
    from walsh_scrapy.crawl.visits import Visits
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.policy.freshness import Move
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state.entries import EntryRecord

    MoveAfter = Callable[[Move | None, str, str, Sequence[str], float], Move | None]

logger = logging.getLogger(__name__)

_RESENT: Final = (
    "%s came again as a whole and unchanged, %d times in a row, although its validators were sent: "
    "its server seems not to use 304; `%s sources` shows more"
)
_GONE: Final = "%s is gone (410) and not requested again; `%s sources resume %s` resumes it"

Record = TypeVar("Record", SourceRecord, LlmsTxtRecord)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a visit."""

    outcome: str  #: fetched, unchanged, failed, gone, or "denied by GATE"
    detail: str = ""  #: a sentence
    answer: Response | None = None  #: the last response, if it is of this visit
    url: str = ""  #: where its document is; empty if it brought none
    feed: Feed | None = None  #: the document, if it came
    is_whole: bool = True  #: it was not cut off
    is_shared: bool = False  #: the document was read for another source
    is_unconnected: bool = False  #: it failed before any connection

    @property
    def validators(self) -> Validators | None:
        """The validators of the whole document; None if not all of it came."""
        return (
            Validators.from_response(self.answer)
            if self.answer is not None and self.is_whole
            else None
        )


def record_after(known: SourceRecord, request: Request, result: Result, now: float) -> SourceRecord:
    """Return the row of a source after a visit, without its times and intervals.

    ``request`` is the last one of the visit, ``now`` its end in epoch seconds.
    """
    record = replace(
        known,
        outcome=result.outcome,
        detail=result.detail,
        unconnected=result.is_unconnected,
    )
    is_of_llmstxt = _visited(request)[0].llmstxt is not None
    if not result.url:
        if result.outcome == "gone":
            return replace(record, failures=known.failures + 1)
        if result.outcome == "failed":
            record = replace(record, failures=known.failures + 1)
            if result.answer is not None and result.answer.status in RETRIED_STATUSES:
                record = after_refusal(record, result.answer.status, now)
        return _after_failure(record, request, now)
    record = replace(record, failures=0)
    if result.feed is not None and result.answer is not None:
        is_known = result.is_whole and not is_of_llmstxt
        body_sha256 = sha256(result.answer.body).hexdigest() if is_known else None
        is_again = (
            any(conditions_of(request).values()) and body_sha256 == known.body_sha256 is not None
        )
        hints = result.feed.hints
        record = replace(
            record,
            format=result.feed.format,
            body_sha256=body_sha256,
            resent=known.resent + 1 if is_again else 0,
            feed_interval=hints.interval,
            skip_hours=",".join(map(str, sorted(hints.skip_hours))),
            skip_days=",".join(sorted(hints.skip_days)),
        )
    else:
        resent = known.resent if result.is_shared else 0
        record = replace(record, format=known.format or "shared", resent=resent)
    if is_of_llmstxt or result.is_shared:
        record = replace(record, validator_url=None, etag=None, last_modified=None)
    else:
        record = _with_validators(record, result)
    if result.is_shared and is_of_llmstxt:
        return record
    return _after(move_after_document, record, request, result.url, now)


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
        is_whole = feed.is_whole and DATA_LOSS not in response.flags
        detail = "" if is_whole else f"{response.url} was cut off: only a part of it came"
        if left_out:
            detail = f"{response.url} has too many entries: {left_out}, the oldest, are left out"
            self._stats.inc_value("walsh/entries/left_out", left_out)
        if detail:
            logger.warning("%s: %s", _visited(request)[1].url, detail)
        result = Result("fetched", detail, response, response.url, feed, is_whole)
        return self._end(request, result, entries)

    def found(self, request: Request, entries: Sequence[EntryRecord]) -> frozenset[str]:
        """Commit entries of a visit that goes on; return the keys of those never seen before.

        The source stays as due as it was. If the database refuses them, the visit will fail.
        """
        try:
            return self._commit(request, self._known(request), entries)
        except RefusedValues as error:
            self._refusals[_visited(request)[1].url] = error
            return frozenset()

    def carry(
        self, request: Request, ended: Response | BaseException | None, following: Request
    ) -> None:
        """Give the next request of a visit the facts of the visit, as the last one ``ended``.

        The freshness lifetime of a response counts when the visit ends. If a page led to the next
        request, its move counts too, and whether it is gone.
        """
        now, (visit, _) = self._clock.now(), _visited(request)
        response = ended if isinstance(ended, Response) else _response_of(ended)
        if response is not None:
            visit = visit.passed(lifetime_of(response, now), response.status)
        if isinstance(ended, Response):
            known = self._known(request)
            is_gone = visit.has_gone_page or _is_gone_here(known, request, ended)
            if ended.status < 400:
                known = _after(move_after_intermediate, known, request, ended.url, now)
            visit = replace(visit, page=PageResult(is_gone, known.move))
        set_visit(following, visit.carried_to(_visited(following)[0]))

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
                self._visits.end(_visited(request)[1])
                self._stats.inc_value("walsh/sources/not_due")
                self._stats.inc_value("walsh/sources/due", -1)
                self._stats.min_value("walsh/sources/next_due", error.due_at)
                return
            self._end(request, self._result_of(request, error, answer or _response_of(error)))

    def _result_of(
        self, request: Request, error: BaseException | None, answer: Response | None
    ) -> Result:
        """Return the result of a visit that an exception ends.

        Each further failure in a row doubles the operator's interval. A source that is gone
        permanently (410) is not requested until the operator resumes it. One that used up its tries
        is refused, and has failed too (decision 15).
        """
        known, is_shared = self._known(request), False
        match error:
            case NotModified(response=answer):
                return Result(outcome="unchanged", answer=answer, url=answer.url)
            case AlreadyRead():  # its entries are known, and its lifetime counts here too
                visit, _ = _visited(request)
                set_visit(request, visit.passed(Lifetime(error.url, error.due_at)))
                if not error.problem:
                    detail = f"{error.url} was read already, at {format_moment(error.requested_at)}"
                    return Result("unchanged", detail, url=request.url, is_shared=True)
                reason, is_shared = error.problem, True
            case Denied():
                reason = error.reason
                if first_url(request) != request.url:
                    reason = f"it redirects to {request.url}: {reason}"
                logger.info("%s is denied by %s: %s", known.url, error.gate, reason)
                return Result(f"denied by {error.gate}", reason)
            case _:
                reason = reason_of(error, answer.url if answer is not None else request.url)
        if answer is not None and _is_gone(known, request, answer):
            logger.warning(_GONE, known.url, program_name(), known.url)
            return Result("gone", reason, answer)
        logger.warning("%s failed: %s", known.url, reason)
        is_unconnected = isinstance(error, Unreachable) and not (
            error.is_connected or hops_of(request) or _visited(request)[0].status
        )
        return Result("failed", reason, answer, is_shared=is_shared, is_unconnected=is_unconnected)

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
        visit, source = _visited(request)
        record = self._visits.find_record(source) or SourceRecord(url=source.url, kind=source.kind)
        record = replace(record, kind=source.kind)
        return record.with_move(visit.page.move) if visit.page else record

    def _end(
        self, request: Request, result: Result, entries: Sequence[EntryRecord] = ()
    ) -> frozenset[str]:
        """Commit how a visit ended; return the keys of the entries never seen before.

        A visit whose result the database refuses has failed: its source backs off, and is not read
        again in every run (decision 29).
        """
        refusal = self._refusals.pop(_visited(request)[1].url, None)
        if refusal is None:
            try:
                return self._commit_end(request, result, entries)
            except RefusedValues as error:
                refusal = error
        return self._end_refused(request, refusal)

    def _end_refused(self, request: Request, refusal: RefusedValues) -> frozenset[str]:
        """Commit that a visit failed whose values were refused, and end the run."""
        url = _visited(request)[1].url
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
        now, (visit, source), answer = self._clock.now(), _visited(request), result.answer
        known, status = self._known(request), ticket_of(request).answered or visit.status
        if answer is not None:
            visit, status = visit.passed(lifetime_of(answer, now)), answer.status
        record = record_after(known, request, result, now)
        if record.resent == MOST_RESENT > known.resent:
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
            failing_since=_first(record.failing_since, now) if record.failures else None,
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
        _, source = _visited(request)
        known, host = self._visits.find_record(source), self._context.host(record.address)
        store = self._context.state.sources
        work = store.outcome(known, record, entries, llmstxt, host=host)
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
        return _with_validators(record, result) if result.url else record


class Problems:
    """The failures of a crawl by their reasons, and until when each host is deferred."""

    def __init__(self) -> None:
        self.failures = ReasonGroups()
        self.deferred: dict[str, float] = {}  #: by host: the earliest time, in epoch seconds

    def failed(self, url: str, reason: str) -> None:
        """Count a source that failed; ``reason`` is one sentence."""
        self.failures.add(host_of(url), reason)

    def defer(self, url: str, until: float) -> None:
        """Note that a request is deferred until a time in epoch seconds."""
        host = host_of(url)
        self.deferred[host] = min(until, self.deferred.get(host, until))


# ---- the wait for the next visit ----


def freshness_of(response: Response) -> Freshness:
    """Return the headers of a response that set its freshness."""

    def lines(name: str) -> list[str]:
        return [line.decode("latin-1") for line in response.headers.getlist(name)]

    def first(name: str) -> str | None:
        return next(iter(lines(name)), None)

    return Freshness(
        cache_control=", ".join(lines("Cache-Control")),
        expires=first("Expires"),
        date=first("Date"),
        age=first("Age"),
        retry_after="\n".join(lines("Retry-After")),
    )


def lifetime_of(response: Response, now: float) -> Lifetime:
    """Return until when a response is fresh; ``now`` is in epoch seconds."""
    return Lifetime(response.url, now + freshness_of(response).lifetime(now))


def fresh_until(visit: Visit, home: str, now: float) -> float:
    """Return the end of the lifetimes of a visit, before which no other begins, in epoch seconds.

    A redirect, or a page that is left for another document, leads to the next request, and its
    lifetime counts as well (R8, decision 20). A lifetime is about one URL. The next visit begins at
    ``home`` and does not request the hops before that, so these do not count.
    """
    urls = [each.url for each in visit.lifetimes]
    start = urls.index(home) if home in urls else 0
    return max((each.until for each in visit.lifetimes[start:]), default=now)


def after_refusal(record: SourceRecord, status: int, now: float) -> SourceRecord:
    """Return the row after a refusal (429, 503) at ``now``; several in a row have one start."""
    since = _first(record.refused_since, now)
    return replace(record, outcome=REFUSED, status=status, refused_since=since)


def _first(since: float | None, now: float) -> float:
    """Return when a row of problems began that goes on at ``now``; a wrong clock does not count."""
    return now if since is None or since > now + CLOCK_SKEW else since


def _with_validators(record: Record, result: Result) -> Record:
    """Return a record with the validators of a document; those that a 304 does not have stay."""
    given = result.validators
    if result.feed is not None:
        return replace(
            record,
            validator_url=given.url if given else None,
            etag=given.etag if given else None,
            last_modified=given.last_modified if given else None,
        )
    if given is None:
        return record
    etag, last_modified = given.etag or record.etag, given.last_modified or record.last_modified
    return replace(record, etag=etag, last_modified=last_modified)


# ---- where a source is (decision 21) ----


def _after(
    move_after: MoveAfter, record: SourceRecord, request: Request, last: str, now: float
) -> SourceRecord:
    """Return the row of a source after a page or a document, which came from ``last``."""
    hops = hops_of(request)
    targets = permanent_targets([*(hop.url for hop in hops), last], [hop.status for hop in hops])
    move = move_after(record.move, record.url, first_url(request), targets, now)
    if move and move.is_settled and record.address != move.to:
        logger.info("%s moved to %s, and is requested there from now on", record.url, move.to)
    return record.with_move(move)


def _after_failure(record: SourceRecord, request: Request, now: float) -> SourceRecord:
    """Return the row of a source after a failed visit."""
    requested = first_url(request)
    if requested not in (record.url, record.moved_to):
        requested = record.address  # another document failed, and so did the visit of the page
    move = move_after_failure(record.move, record.url, requested, now)
    if move and move.is_doubted and record.move_settled:
        logger.info("%s failed for a week: %s is requested again", move.to, record.url)
    return record.with_move(move)


def _is_gone_here(record: SourceRecord, request: Request, answer: Response) -> bool:
    """Return True if a response shows that a source is gone permanently (410).

    It is of the source itself if no temporary redirect led to it.
    """
    if answer.status != HTTPStatus.GONE or first_url(request) not in (record.url, record.address):
        return False
    return are_permanent([hop.status for hop in hops_of(request)])


def _is_gone(record: SourceRecord, request: Request, answer: Response) -> bool:
    """Return True if a source is gone permanently, by its only response or by that of its page.

    If its page is gone, the last response shows whether another document is in its place.
    """
    visit, _ = _visited(request)
    is_final = answer.status == HTTPStatus.OK or answer.status in ABSENT
    return _is_gone_here(record, request, answer) or (is_final and visit.has_gone_page)


def _visited(request: Request) -> tuple[Visit, Source]:
    """Return the visit that a request belongs to, and its source."""
    visit = visit_of(request)
    if visit is None or visit.source is None:
        raise ValueError(f"{request} is for no declared source")
    return visit, visit.source


def _response_of(error: BaseException | None) -> Response | None:
    """Return the response that came, although it is of no use."""
    return error.response if isinstance(error, HttpError | BadAnswer | NotModified) else None
