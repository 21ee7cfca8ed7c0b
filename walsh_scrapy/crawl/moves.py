"""Where a source is: its move, or that it is gone, as a visit shows it (decision 21)."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.ticket import first_url, hops_of, visit_of
from walsh_scrapy.metadata.alternates import ABSENT
from walsh_scrapy.policy.redirects import (
    are_permanent,
    move_after_document,
    move_after_failure,
    move_after_intermediate,
    permanent_targets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.policy.redirects import Move
    from walsh_scrapy.state.sourcerecord import SourceRecord

    MoveAfter = Callable[[Move | None, str, str, Sequence[str], float], Move | None]

logger = logging.getLogger(__name__)


def after_document(record: SourceRecord, request: Request, last: str, now: float) -> SourceRecord:
    """Return the record of a source after a visit whose document came from ``last``."""
    return _after(move_after_document, record, request, last, now)


def after_intermediate(
    record: SourceRecord, request: Request, last: str, now: float
) -> SourceRecord:
    """Return the record of a source after an intermediate page, which came from ``last``."""
    return _after(move_after_intermediate, record, request, last, now)


def after_failure(record: SourceRecord, request: Request, now: float) -> SourceRecord:
    """Return the record of a source after a failed visit."""
    asked = first_url(request)
    if asked not in (record.url, record.moved_to):
        asked = record.address  # another document failed, and so did the visit of the page
    move = move_after_failure(record.move, record.url, asked, now)
    if move and move.is_doubted and record.move_settled:
        logger.info("%s failed for a week: %s is requested again", move.to, record.url)
    return record.with_move(move)


def is_gone_here(record: SourceRecord, request: Request, answer: Response) -> bool:
    """Return True if a response says that a source is gone for good (410).

    It is of the source itself if no temporary redirect led to it.
    """
    if answer.status != HTTPStatus.GONE or first_url(request) not in (record.url, record.address):
        return False
    return are_permanent([hop.status for hop in hops_of(request)])


def is_gone(record: SourceRecord, request: Request, answer: Response) -> bool:
    """Return True if a source is gone for good, by its only response or by that of its page.

    If its page is gone, the last response shows whether another document is in its place.
    """
    if is_gone_here(record, request, answer):
        return True
    visit = visit_of(request)
    is_final = answer.status == HTTPStatus.OK or answer.status in ABSENT
    return is_final and visit is not None and visit.has_gone_page


def _after(
    move_after: MoveAfter, record: SourceRecord, request: Request, last: str, now: float
) -> SourceRecord:
    hops = hops_of(request)
    targets = permanent_targets([*(hop.url for hop in hops), last], [hop.status for hop in hops])
    move = move_after(record.move, record.url, first_url(request), targets, now)
    if move and move.is_settled and record.address != move.to:
        logger.info("%s moved to %s, and is requested there from now on", record.url, move.to)
    return record.with_move(move)
