"""The result of a visit: its outcome, the reason, and the document that it brought."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.ticket import Validators, first_url, hops_of, set_visit
from walsh_scrapy.exceptions import AlreadyRead, Denied, NotModified, Unreachable
from walsh_scrapy.feeds.freshness import are_permanent
from walsh_scrapy.feeds.lifetimes import Lifetime
from walsh_scrapy.feeds.metadata.alternates import ABSENT
from walsh_scrapy.feeds.sourcevisit import source_visit_of
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.sources.source import Source
    from walsh_scrapy.feeds.sourcevisit import SourceVisit
    from walsh_scrapy.state.records import SourceRecord

logger = logging.getLogger(__name__)

_GONE: Final = "%s is gone (410) and not requested again; `%s sources resume %s` resumes it"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a visit."""

    outcome: str  #: fetched, unchanged, failed, gone, or "denied by GATE"
    detail: str = ""  #: a sentence
    response: Response | None = None  #: the last response of the visit, if it has one of its own
    document_url: str = ""  #: the URL of its document; empty if it has none
    feed: Feed | None = None  #: its document, if that was read in this visit
    is_complete: bool = True  #: False if the response was cut off
    is_shared: bool = False  #: the document was read for another source
    failed_before_connection: bool = False  #: no server was connected to

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
