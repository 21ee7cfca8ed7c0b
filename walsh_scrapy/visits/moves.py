"""The move of a source, as the redirects of a visit show it (decision 21)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.redirects import (
    are_permanent,
    move_after_document,
    move_after_failure,
    move_after_intermediate,
    permanent_targets,
)
from walsh_scrapy.runtime.requests import first_url, hops_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request

    from walsh_scrapy.policy.redirects import Move
    from walsh_scrapy.state.sourcerecord import SourceRecord


def after_document(record: SourceRecord, request: Request, last: str, now: float) -> Move | None:
    """Return the move of a source after a visit whose document came from ``last``."""
    asked, hops = first_url(request), _permanent_hops(request, last)
    return move_after_document(record.move, record.url, asked, hops, now)


def after_intermediate(
    record: SourceRecord, request: Request, last: str, now: float
) -> Move | None:
    """Return the move of a source after an intermediate page, which came from ``last``."""
    asked, hops = first_url(request), _permanent_hops(request, last)
    return move_after_intermediate(record.move, record.url, asked, hops, now)


def after_failure(record: SourceRecord, request: Request, now: float) -> Move | None:
    """Return the move of a source after a failed visit."""
    asked = first_url(request)
    if asked not in (record.url, record.moved_to):
        asked = record.address  # another document failed, and so did the visit of the page
    return move_after_failure(record.move, record.url, asked, now)


def is_for_source(record: SourceRecord, request: Request) -> bool:
    """Return True if a response is of the source itself: no temporary redirect led to it."""
    is_its_own = first_url(request) in (record.url, record.address)
    return is_its_own and are_permanent([hop.status for hop in hops_of(request)])


def _permanent_hops(request: Request, last: str) -> Sequence[str]:
    hops = hops_of(request)
    return permanent_targets([*(hop.url for hop in hops), last], [hop.status for hop in hops])
