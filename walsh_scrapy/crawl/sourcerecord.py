"""The row of a source after a visit, without the time of the next one (decisions 17, 20, 21)."""

from __future__ import annotations

import logging
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from walsh_scrapy.crawl.messages import conditions_of
from walsh_scrapy.crawl.result import visited
from walsh_scrapy.crawl.ticket import first_url, hops_of
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.freshness import (
    CLOCK_SKEW,
    move_after_document,
    move_after_failure,
    permanent_targets,
)
from walsh_scrapy.state.records import REFUSED, LlmsTxtRecord, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request

    from walsh_scrapy.crawl.result import Result
    from walsh_scrapy.policy.freshness import Move

    MoveAfter = Callable[[Move | None, str, str, Sequence[str], float], Move | None]

logger = logging.getLogger(__name__)

Record = TypeVar("Record", SourceRecord, LlmsTxtRecord)


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
    is_of_llmstxt = visited(request)[0].llmstxt is not None
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
        record = with_validators(record, result)
    if result.is_shared and is_of_llmstxt:
        return record
    return with_move(move_after_document, record, request, result.url, now)


def after_refusal(record: SourceRecord, status: int, now: float) -> SourceRecord:
    """Return the row after a refusal (429, 503) at ``now``; several in a row have one start."""
    since = start_of_row(record.refused_since, now)
    return replace(record, outcome=REFUSED, status=status, refused_since=since)


def start_of_row(since: float | None, now: float) -> float:
    """Return when a row of problems began that goes on at ``now``; a wrong clock does not count."""
    return now if since is None or since > now + CLOCK_SKEW else since


def with_validators(record: Record, result: Result) -> Record:
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


def with_move(
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
