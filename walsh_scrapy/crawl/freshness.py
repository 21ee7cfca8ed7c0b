"""How long the next visit waits: the lifetimes of this visit's responses, and of an llms.txt.

A redirect, or a page that is left for another document, leads to the next request, and its lifetime
counts as well (R8, decision 20). An llms.txt is shared by the sources of its host (R9).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from walsh_scrapy.crawl.ticket import Lifetime, hops_of, visit_of
from walsh_scrapy.policy.freshness import Freshness, LastVisit, due
from walsh_scrapy.state.documents import LlmsTxtRecord
from walsh_scrapy.state.sourcerecord import SourceRecord

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.ticket import Validators, Visit


def freshness_of(response: Response) -> Freshness:
    """Return the headers of a response that say how long it is fresh."""

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


def fresh_until(visit: Visit, answer: Response | None, home: str, now: float) -> float:
    """Return until when the next visit has to wait for the lifetimes of this one, in epoch seconds.

    A lifetime is about its own URL. The next visit begins at ``home`` and does not ask for the hops
    before that, so these do not count.
    """
    lifetimes = list(visit.lifetimes)
    if answer is not None:
        lifetimes.append(lifetime_of(answer, now))
    urls = [each.url for each in lifetimes]
    start = urls.index(home) if home in urls else 0
    return max((each.until for each in lifetimes[start:]), default=now)


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
    now, hops = context.clock.now(), {hop.url for hop in hops_of(request)}
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


def with_renewed(record: Record, given: Validators) -> Record:
    """Return a record with the validators of a 304; one that the 304 does not have stays."""
    return replace(
        record,
        etag=given.etag or record.etag,
        last_modified=given.last_modified or record.last_modified,
    )
