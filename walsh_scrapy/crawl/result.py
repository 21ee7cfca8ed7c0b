"""The result of a visit: its outcome, the reason, and the document that it brought."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.ticket import (
    Lifetime,
    Validators,
    first_url,
    hops_of,
    set_visit,
    visit_of,
)
from walsh_scrapy.exceptions import AlreadyRead, Denied, NotModified, Unreachable
from walsh_scrapy.metadata.alternates import ABSENT
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import are_permanent
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.ticket import Visit
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state.records import SourceRecord

logger = logging.getLogger(__name__)

_GONE: Final = "%s is gone (410) and not requested again; `%s sources resume %s` resumes it"


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
        return Validators.of(self.answer) if self.answer is not None and self.is_whole else None


def result_of(
    known: SourceRecord, request: Request, error: BaseException | None, answer: Response | None
) -> Result:
    """Return the result of a visit that an exception ends.

    Each further failure in a row doubles the operator's interval. A source that is gone
    permanently (410) is not requested until the operator resumes it. One that used up its tries
    is refused, and has failed too (decision 15).
    """
    is_shared = False
    match error:
        case NotModified(response=answer):
            return Result(outcome="unchanged", answer=answer, url=answer.url)
        case AlreadyRead():  # its entries are known, and its lifetime counts here too
            visit, _ = visited(request)
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
        error.is_connected or hops_of(request) or visited(request)[0].status
    )
    return Result("failed", reason, answer, is_shared=is_shared, is_unconnected=is_unconnected)


def is_gone_here(record: SourceRecord, request: Request, answer: Response) -> bool:
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
    visit, _ = visited(request)
    is_final = answer.status == HTTPStatus.OK or answer.status in ABSENT
    return is_gone_here(record, request, answer) or (is_final and visit.has_gone_page)


def visited(request: Request) -> tuple[Visit, Source]:
    """Return the visit that a request belongs to, and its source."""
    visit = visit_of(request)
    if visit is None or visit.source is None:
        raise ValueError(f"{request} is for no declared source")
    return visit, visit.source
