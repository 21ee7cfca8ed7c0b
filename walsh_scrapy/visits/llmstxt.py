"""What came of the llms.txt of a host, for all sources that go by it (R9; decisions 17, 20)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from walsh_scrapy.policy.freshness import LastVisit, due
from walsh_scrapy.runtime import meta
from walsh_scrapy.state.indexes import IndexRecord
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.visits.lifetimes import freshness_of, passed_by

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.runtime.context import Crawl

Record = TypeVar("Record", SourceRecord, IndexRecord)


def index_after(
    crawl: Crawl, request: Request, answer: Response | None, trouble: str = ""
) -> IndexRecord | None:
    """Return the line of the llms.txt that a request was for, if it was for one.

    It is due by its own answers, and at most as often as sources are.
    """
    url = meta.index(request)
    if url is None:
        return None
    now, hops = crawl.now(), request.meta.get("redirect_urls", ())
    asked = [each.until - now for each in passed_by(request) if each.url in hops]
    if answer is not None:
        asked.append(freshness_of(answer).lifetime(now))
    visit = LastVisit(now, server_interval=max(asked, default=0.0))
    due_at = due(visit, crawl.options.min_revisit, now).at
    known = crawl.state.indexes.find(url) or IndexRecord(url=url)
    return replace(known, asked_at=now, due_at=due_at, trouble=trouble)


def vouched(record: Record, given: meta.Validators | None) -> Record:
    """Return a line with validators, or none, in the place of those it had."""
    return replace(
        record,
        validator_url=given.url if given else None,
        etag=given.etag if given else None,
        last_modified=given.last_modified if given else None,
    )


def renewed(record: Record, given: meta.Validators) -> Record:
    """Return a line with the validators of a 304, as far as it had any."""
    return replace(
        record,
        etag=given.etag or record.etag,
        last_modified=given.last_modified or record.last_modified,
    )
