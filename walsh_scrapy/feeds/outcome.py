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
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.hosts.ownedhosts import HostLost
from walsh_scrapy.crawl.messages import conditions_of
from walsh_scrapy.crawl.ticket import (
    DATA_LOSS,
    Validators,
    first_url,
    hops_of,
    set_visit,
    ticket_of,
)
from walsh_scrapy.exceptions import (
    AlreadyRead,
    BadAnswer,
    Denied,
    HostDeferred,
    NotDue,
    NotModified,
    RequestDeferred,
    RobotsUnavailable,
    StateUnavailable,
    StillDue,
    Unreachable,
)
from walsh_scrapy.feeds.freshness import (
    NEVER,
    FeedIdentity,
    Move,
    UpdateHints,
    are_permanent,
    describe_replacement,
    move_after_deferral,
    move_after_document,
    move_after_failure,
    move_after_intermediate,
    not_before,
    permanent_targets,
    update_hints,
)
from walsh_scrapy.feeds.metadata.formats import ABSENT
from walsh_scrapy.feeds.sourcevisit import (
    Lifetime,
    PageResult,
    freshness_of,
    lifetime_of,
    source_of,
    source_visit_of,
)
from walsh_scrapy.feeds.stores.entrywriter import Written
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.durations import CLOCK_SKEW, MAX_REVISIT_SECONDS, format_moment
from walsh_scrapy.policy.problems import MAX_FAILED_SECONDS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.engine import RefusedValues
from walsh_scrapy.state.records import (
    MAX_RESENT,
    NO_ROBOTS,
    REFUSED,
    REPLACED,
    TOO_SLOW,
    LlmsTxtRecord,
    SourceRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy import Request

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.feeds.feedcrawl import FeedCrawl
    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.sources.source import Source
    from walsh_scrapy.feeds.sourcevisit import SourceVisit
    from walsh_scrapy.feeds.stores.entrywriter import EntryRecord

    MoveAfter = Callable[[Move | None, str, str, Sequence[str], float], Move | None]

logger = logging.getLogger(__name__)

_RESENT: Final = (
    "%s came again as a whole and unchanged, %d times in a row, although its validators were sent: "
    "its server seems not to use 304; `%s sources` shows more"
)
_GONE: Final = "%s is gone (410) and not requested again; `%s sources resume %s` resumes it"

Record = TypeVar("Record", SourceRecord, LlmsTxtRecord)


class Outcomes:
    """Records how visits end: the outcome, the validators, and when the next visit is due.

    A source whose request is deferred stays due, even if the state fails. The methods take the last
    request of the visit, and raise StateUnavailable if the state fails.
    """

    def __init__(self, crawl: Crawl, feed_crawl: FeedCrawl) -> None:
        self._stats = crawl.stats
        self._engine = crawl.engine
        self._problems = feed_crawl.problems
        self._visits = feed_crawl.visits
        self._context = crawl.context
        self._clock = crawl.context.clock
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
        repeated: int = 0,
    ) -> Written:
        """Commit a document with its entries; return what it changed.

        The validators of a response that was cut off are not kept, because they stand for all of
        it. ``left_out`` is the number of entries beyond the limits of one document, ``repeated``
        of those that it lists once more.
        """
        _, source = visited(request)
        is_complete = feed.is_complete and DATA_LOSS not in response.flags
        # The parser of a feed saw its end: only what came after the end is missing.
        has_end = feed.is_complete and source.kind == "feed"
        subject = "the document" if response.url == source.url else response.url
        detail = ""
        if not is_complete and not has_end:
            detail = f"{subject} was cut off: only a part of it came"
            self._stats.inc_value("walsh/sources/cut_off")
        if left_out:
            detail = f"{subject} has too many entries; skipped the oldest {left_out}"
            self._stats.inc_value("walsh/entries/left_out", left_out)
        if detail:
            logger.warning("%s: %s", source.url, detail)
        known = self._find_record(request)
        link_host = host_of(feed.link or "")
        if replacement := describe_replacement(
            FeedIdentity(known.feed_title, known.feed_host), FeedIdentity(feed.title, link_host)
        ):
            logger.warning("%s failed: %s", source.url, replacement)
            return self._end_visit(request, Result(REPLACED, replacement, response))
        result = Result(
            "fetched", detail, response, response.url, feed, is_complete, repeated=repeated
        )
        return self._end_visit(request, result, entries)

    def record_entries(self, request: Request, entries: Sequence[EntryRecord]) -> Written:
        """Commit entries of a visit that goes on; return what they changed.

        When the source is due does not change. If the database refuses the entries, the visit
        fails when it ends.
        """
        try:
            return self._commit(request, self._find_record(request), entries)
        except RefusedValues as error:
            self._refusals[visited(request)[1].url] = error
            return Written()

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
                self._record_deferral(request, error)
                self._visits.end(source)

    def _record_deferral(self, request: Request, error: RequestDeferred) -> None:
        """Commit why a site makes a visit wait for long: see `_reason_to_wait`.

        The source has not failed, and stays due.
        """
        now = self._clock.now()
        try:
            self._settle_move(request, error, now)
            reason = self._reason_to_wait(request, error, now)
            if reason is None:
                return
            record = after_deferral(self._find_record(request), reason, now)
            until = None if reason.outcome == REFUSED else error.until  # a hold may be released
            self._commit(request, replace(record, deferred_until=until))
            if self._was_requested(request):
                self._count_unread(request, record.refused_since, now)
        except (HostLost, RefusedValues, StateUnavailable) as failure:
            logger.debug("the reason to wait is not recorded: %s", failure)

    def _settle_move(self, request: Request, error: RequestDeferred, now: float) -> None:
        """Let the next visit begin where permanent redirects of a slow host led.

        If each visit began at the old URL, the delay after that would defer each of them again.
        """
        host = self._context.host(request.url)
        is_on_its_way = any(self._context.host(hop.url) == host for hop in hops_of(request))
        if type(error) is not RequestDeferred or not is_on_its_way:
            return
        if self._context.state.hosts.find(host).hold:  # it is over some day, a delay is not
            return
        record = self._find_record(request)
        settled = with_move(move_after_deferral, record, request, request.url, now)
        if settled != record:
            self._commit(request, settled)

    def _was_requested(self, request: Request) -> bool:
        """Return True if a crawl has requested the host of a request since this run began."""
        snapshot = self._context.state.hosts.find(self._context.host(request.url))
        ended_at = snapshot.times.request_ended_at
        return ended_at is not None and ended_at >= self._context.started_at

    def _count_unread(self, request: Request, since: float | None, now: float) -> None:
        """Note that a source was not read, unless that is so for long and says nothing of a run."""
        if since is None or now - since < MAX_FAILED_SECONDS:
            self._problems.unread(request.url)

    def _reason_to_wait(
        self, request: Request, error: RequestDeferred, now: float
    ) -> Deferral | None:
        """Return why a site makes a visit wait; None if it does not, or not for long.

        It refuses requests (429, 503), its robots.txt does not come, or its delay is longer than
        any source waits.
        """
        status = error.refused if isinstance(error, HostDeferred) else None
        if isinstance(error, RobotsUnavailable):
            return Deferral(NO_ROBOTS, status, str(error))
        # The other subclasses are trouble of this machine or of the state.
        if type(error) in (RequestDeferred, StillDue):
            snapshot = self._context.state.hosts.find(self._context.host(request.url))
            status = snapshot.times.refused if snapshot.hold else None
        if status is not None:
            return Deferral(REFUSED, status, f"its site answers {status}")
        if type(error) is RequestDeferred and error.until > now + MAX_REVISIT_SECONDS:
            return Deferral(TOO_SLOW, None, str(error))
        return None

    def _find_record(self, request: Request) -> SourceRecord:
        """Return the row of the source of a request, with the move that its page showed."""
        visit, source = visited(request)
        record = self._visits.find_record(source) or SourceRecord(url=source.url, kind=source.kind)
        record = replace(record, kind=source.kind)
        return moved(record, visit.page.move) if visit.page else record

    def _end_visit(
        self, request: Request, result: Result, entries: Sequence[EntryRecord] = ()
    ) -> Written:
        """Commit how a visit ended; return what its entries changed.

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

    def _end_refused_visit(self, request: Request, refusal: RefusedValues) -> Written:
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
    ) -> Written:
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
        server_interval = visit.fresh_until(record.address, now) - now
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
            read_at=now if result.document_url else record.read_at,
            server_interval=server_interval,
            not_before=due_at,
            failing_since=start_of_streak(record.failing_since, now) if record.failures else None,
            refused_since=record.refused_since if record.is_refused else None,
            deferred_until=None,
        )
        written = self._commit(request, record, entries, llmstxt, ends=True)
        self._visits.end(source)
        is_failed = record.is_refused or record.outcome == REPLACED
        name = "failed" if is_failed else record.outcome.replace("denied by ", "denied/")
        self._stats.inc_value(f"walsh/sources/{name}")
        if name == "failed":
            self._problems.failed(request.url, record.detail)
            self._count_unread(request, record.failing_since, now)
        return written

    def _commit(
        self,
        request: Request,
        record: SourceRecord,
        entries: Sequence[EntryRecord] = (),
        llmstxt: LlmsTxtRecord | None = None,
        *,
        ends: bool = False,
    ) -> Written:
        """Commit the row of the source of a request; return what its entries changed.

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


# ---- the result of a visit ----


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a visit."""

    outcome: str  #: fetched, unchanged, failed, replaced, gone, or "denied by GATE"
    detail: str = ""  #: a sentence
    response: Response | None = None  #: the last response of the visit, if it has one of its own
    document_url: str = ""  #: the URL of its document; empty if it has none
    feed: Feed | None = None  #: its document, if that was read in this visit
    is_complete: bool = True  #: False if the response was cut off
    is_shared: bool = False  #: the document was read for another source
    failed_before_connection: bool = False  #: no server was connected to
    repeated: int = 0  #: entries that the document lists once more

    @property
    def validators(self) -> Validators | None:
        """The validators of a complete response; None if there is none."""
        if self.response is None or not self.is_complete:
            return None
        return Validators.from_response(self.response)


def result_of(
    record: SourceRecord, request: Request, error: BaseException | None, response: Response | None
) -> Result:
    """Return the result of a visit that ended in an exception.

    ``record`` is the row of the source before the visit. ``response`` is the last response, if any.
    A source that is gone permanently (410) is not requested until the operator resumes it.
    """
    is_shared = False
    match error:
        case NotModified(response=not_modified):
            return Result("unchanged", response=not_modified, document_url=not_modified.url)
        case AlreadyRead():  # the lifetime of that response counts for this source too
            visit, _ = visited(request)
            set_visit(request, visit.passed(Lifetime(error.url, error.due_at)))
            if not error.problem:
                detail = f"{error.url} was read already, at {format_moment(error.requested_at)}"
                return Result("unchanged", detail, document_url=request.url, is_shared=True)
            reason = error.problem
            is_shared = True
        case Denied():
            reason = error.reason
            if first_url(request) != request.url:
                reason = f"it redirects to {request.url}: {reason}"
            logger.info("%s is denied by %s: %s", record.url, error.gate, reason)
            return Result(f"denied by {error.gate}", reason)
        case _:
            reason = reason_of(error, request.url if response is None else response.url)
    if response is not None and _is_gone(record, request, response):
        logger.warning(_GONE, record.url, program_name(), record.url)
        return Result("gone", reason, response)
    logger.warning("%s failed: %s", record.url, reason)
    failed_before_connection = isinstance(error, Unreachable) and not (
        error.is_connected or hops_of(request) or visited(request)[0].status
    )
    return Result(
        "failed",
        reason,
        response,
        is_shared=is_shared,
        failed_before_connection=failed_before_connection,
    )


def is_gone_here(record: SourceRecord, request: Request, response: Response) -> bool:
    """Return True if a response shows that a source is gone permanently (410).

    A response after a temporary redirect says nothing about the source.
    """
    if response.status != HTTPStatus.GONE or first_url(request) not in (record.url, record.address):
        return False
    return are_permanent([hop.status for hop in hops_of(request)])


def _is_gone(record: SourceRecord, request: Request, response: Response) -> bool:
    """Return True if a source is gone permanently, or its page is and nothing is in its place.

    The last response of the visit shows whether another document is in the place of the page.
    """
    visit, _ = visited(request)
    is_final = response.status == HTTPStatus.OK or response.status in ABSENT
    return is_gone_here(record, request, response) or (is_final and visit.has_gone_page)


def visited(request: Request) -> tuple[SourceVisit, Source]:
    """Return the visit that a request belongs to, and its source."""
    visit = source_visit_of(request)
    if visit is None or visit.source is None:
        raise ValueError(f"{request} is for no declared source")
    return visit, visit.source


# ---- the row of a source after a visit, without the time of the next one ----


def record_after(
    previous: SourceRecord, request: Request, result: Result, now: float
) -> SourceRecord:
    """Return the row of a source after a visit, except for its times and intervals.

    ``previous`` is the row before the visit, ``request`` the last request of the visit, and ``now``
    the end of the visit in epoch seconds.
    """
    record = replace(
        previous,
        outcome=result.outcome,
        detail=result.detail,
        unconnected=result.failed_before_connection,
    )
    is_of_llmstxt = visited(request)[0].llmstxt is not None
    if not result.document_url:
        if result.outcome == "gone":
            return replace(record, failures=previous.failures + 1)
        if result.outcome == REPLACED:  # it is visited as often as before: it may come back
            record = replace(record, failures=1)
        if result.outcome == "failed":
            record = replace(record, failures=previous.failures + 1)
            if result.response is not None and result.response.status in RETRIED_STATUSES:
                refused = Deferral(REFUSED, result.response.status, result.detail)
                record = after_deferral(record, refused, now)
        return _after_failure(record, request, now)
    record = replace(record, failures=0)
    if result.feed is not None and result.response is not None:
        body_sha256: str | None = None
        if result.is_complete and not is_of_llmstxt:
            body_sha256 = sha256(result.response.body).hexdigest()
        was_conditional = any(conditions_of(request).values())
        is_unchanged = body_sha256 is not None and body_sha256 == previous.body_sha256
        is_resent = was_conditional and is_unchanged
        hints = update_hints(result.feed)
        record = replace(
            record,
            format=result.feed.format,
            body_sha256=body_sha256,
            resent=previous.resent + 1 if is_resent else 0,
            feed_interval=hints.interval,
            skip_hours=",".join(map(str, sorted(hints.skip_hours))),
            skip_days=",".join(sorted(hints.skip_days)),
            repeated=result.repeated,
            feed_title=result.feed.title or previous.feed_title,
            feed_host=host_of(result.feed.link or "") or previous.feed_host,
        )
    else:
        resent = previous.resent if result.is_shared else 0
        record = replace(record, format=previous.format or "shared", resent=resent)
    if is_of_llmstxt or result.is_shared:
        record = replace(record, validator_url=None, etag=None, last_modified=None)
    else:
        record = with_validators(record, result)
    if result.is_shared and is_of_llmstxt:
        return record
    return with_move(move_after_document, record, request, result.document_url, now)


class Deferral(NamedTuple):
    """Why a site makes a source wait."""

    outcome: str  #: `REFUSED`, `NO_ROBOTS` or `TOO_SLOW`
    status: int | None  #: of the answer that refused
    detail: str  #: a sentence


def after_deferral(record: SourceRecord, reason: Deferral, now: float) -> SourceRecord:
    """Return the row after a visit that was refused or deferred; the start of a streak stays."""
    since = start_of_streak(record.refused_since, now)
    return replace(
        record,
        outcome=reason.outcome,
        status=reason.status,
        detail=reason.detail,
        refused_since=since,
    )


def start_of_streak(since: float | None, now: float) -> float:
    """Return when problems began that go on at ``now``; a start in the future is ignored."""
    if since is None or since > now + CLOCK_SKEW:
        return now
    return since


def with_validators(record: Record, result: Result) -> Record:
    """Return a record with the validators of a response; a 304 replaces only those it has."""
    validators = result.validators
    if result.feed is not None:
        return replace(
            record,
            validator_url=validators.url if validators else None,
            etag=validators.etag if validators else None,
            last_modified=validators.last_modified if validators else None,
        )
    if validators is None:
        return record
    return replace(
        record,
        etag=validators.etag or record.etag,
        last_modified=validators.last_modified or record.last_modified,
    )


def with_move(
    move_after: MoveAfter, record: SourceRecord, request: Request, last: str, now: float
) -> SourceRecord:
    """Return the row of a source after a page or a document with the URL ``last``."""
    hops = hops_of(request)
    targets = permanent_targets([*(hop.url for hop in hops), last], [hop.status for hop in hops])
    move = move_after(move_of(record), record.url, first_url(request), targets, now)
    if move and move.is_settled and record.address != move.to:
        logger.info("%s moved to %s, and is requested there from now on", record.url, move.to)
    return moved(record, move)


def _after_failure(record: SourceRecord, request: Request, now: float) -> SourceRecord:
    """Return the row of a source after a failed visit."""
    requested = first_url(request)
    if requested not in (record.url, record.moved_to):
        requested = record.address  # another document failed, and so did the visit of the page
    move = move_after_failure(move_of(record), record.url, requested, now)
    if move and move.is_doubted and record.move_settled:
        logger.info("%s failed for a week: %s is requested again", move.to, record.url)
    return moved(record, move)


# ---- the move of a source, as its row has it ----


def move_of(record: SourceRecord) -> Move | None:
    """Return where permanent redirects lead, settled or not; None if they lead nowhere."""
    if record.moved_to is None:
        return None
    onward = None
    if record.onward_to is not None:
        onward = Move(record.onward_to, record.onward_since or 0.0, is_settled=False)
    since = record.moved_since or 0.0
    return Move(record.moved_to, since, record.move_settled, onward, record.move_failing_since)


def moved(record: SourceRecord, move: Move | None) -> SourceRecord:
    """Return the record with another move, or without one."""
    onward = move.onward if move else None
    return replace(
        record,
        moved_to=move.to if move else None,
        moved_since=move.since if move else None,
        move_settled=bool(move and move.is_settled),
        move_failing_since=move.failing_since if move else None,
        onward_to=onward.to if onward else None,
        onward_since=onward.since if onward else None,
    )
