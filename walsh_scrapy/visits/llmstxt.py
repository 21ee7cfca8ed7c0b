"""The outcome of a request for a host's llms.txt, which its sources share (R9, decision 17)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from walsh_scrapy.policy.freshness import LastVisit, due
from walsh_scrapy.runtime.requestmeta import visit_of
from walsh_scrapy.state.llmstxt import LlmsTxtRecord
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.visits.lifetimes import freshness_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.runtime.requestmeta import Validators

Record = TypeVar("Record", SourceRecord, LlmsTxtRecord)


def llmstxt_after(
    context: Context, request: Request, answer: Response | None, trouble: str = ""
) -> LlmsTxtRecord | None:
    """Return the new record of the llms.txt that was requested; None for any other request.

    An llms.txt is due again after the freshness lifetimes of its own responses, and not before
    ``WALSH_MIN_REVISIT`` (decision 20). ``trouble`` says why it could not be used.
    """
    visit = visit_of(request)
    if visit is None or visit.llmstxt is None:
        return None
    now, hops = context.clock.now(), request.meta.get("redirect_urls", ())
    asked = [each.until - now for each in visit.lifetimes if each.url in hops]
    if answer is not None:
        asked.append(freshness_of(answer).lifetime(now))
    last = LastVisit(now, server_interval=max(asked, default=0.0))
    due_at = due(last, context.options.min_revisit, now).at
    known = context.state.llmstxt.find(visit.llmstxt) or LlmsTxtRecord(url=visit.llmstxt)
    return replace(known, asked_at=now, due_at=due_at, trouble=trouble)


def with_validators(record: Record, given: Validators | None) -> Record:
    """Return a record with these validators, or without any."""
    return replace(
        record,
        validator_url=given.url if given else None,
        etag=given.etag if given else None,
        last_modified=given.last_modified if given else None,
    )


def with_renewed_validators(record: Record, given: Validators) -> Record:
    """Return a record with the validators of a 304; one that the 304 does not have stays."""
    return replace(
        record,
        etag=given.etag or record.etag,
        last_modified=given.last_modified or record.last_modified,
    )
