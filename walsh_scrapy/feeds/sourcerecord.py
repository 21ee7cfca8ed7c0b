"""The row of a source after a visit, without the time of the next one (decisions 17, 20, 21)."""

from __future__ import annotations

import logging
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from walsh_scrapy.crawl.messages import conditions_of
from walsh_scrapy.crawl.ticket import first_url, hops_of
from walsh_scrapy.feeds.freshness import (
    move_after_document,
    move_after_failure,
    permanent_targets,
)
from walsh_scrapy.feeds.moves import move_of, moved
from walsh_scrapy.feeds.result import visited
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.durations import CLOCK_SKEW
from walsh_scrapy.state.records import REFUSED, LlmsTxtRecord, SourceRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy import Request

    from walsh_scrapy.feeds.freshness import Move
    from walsh_scrapy.feeds.result import Result

    MoveAfter = Callable[[Move | None, str, str, Sequence[str], float], Move | None]

logger = logging.getLogger(__name__)

Record = TypeVar("Record", SourceRecord, LlmsTxtRecord)


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
        if result.outcome == "failed":
            record = replace(record, failures=previous.failures + 1)
            if result.response is not None and result.response.status in RETRIED_STATUSES:
                record = after_refusal(record, result.response.status, now)
        return _after_failure(record, request, now)
    record = replace(record, failures=0)
    if result.feed is not None and result.response is not None:
        body_sha256: str | None = None
        if result.is_complete and not is_of_llmstxt:
            body_sha256 = sha256(result.response.body).hexdigest()
        was_conditional = any(conditions_of(request).values())
        is_unchanged = body_sha256 is not None and body_sha256 == previous.body_sha256
        is_resent = was_conditional and is_unchanged
        hints = result.feed.hints
        record = replace(
            record,
            format=result.feed.format,
            body_sha256=body_sha256,
            resent=previous.resent + 1 if is_resent else 0,
            feed_interval=hints.interval,
            skip_hours=",".join(map(str, sorted(hints.skip_hours))),
            skip_days=",".join(sorted(hints.skip_days)),
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


def after_refusal(record: SourceRecord, status: int, now: float) -> SourceRecord:
    """Return the row after a refusal (429, 503) at ``now``; the start of a streak stays."""
    since = start_of_streak(record.refused_since, now)
    return replace(record, outcome=REFUSED, status=status, refused_since=since)


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
