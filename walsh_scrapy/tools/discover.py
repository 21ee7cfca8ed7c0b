"""``walsh discover URL...``: the sources of a site, as lines for ``sources.toml``.

It requests from each site, through every middleware, robots.txt; the page, as markdown if the
server has that; the feeds that its headers or its HTML head declare (link rel=alternate), at most
three; and only if none is a feed, /llms.txt. Nothing else of the page is read.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.isolated import TooCostly
from walsh_scrapy.crawl.ticket import (
    Visit,
    content_type_of,
    links_of,
    request_of,
    set_visit,
    visit_of,
)
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.metadata.alternates import (
    ABSENT,
    ACCEPT_LLMSTXT,
    ACCEPT_MARKDOWN,
    FeedLink,
    declared_feeds,
    feed_alternates,
    feeds_in_head,
)
from walsh_scrapy.metadata.document import (
    Document,
    is_html,
    is_markdown,
    may_be_feed,
    may_be_llms,
)
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.sources.source import Source, SourcesError, target_url
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.offers import (
    Candidate,
    Form,
    Role,
    SiteOffer,
    as_dict,
    offers_for,
    report_lines,
)
from walsh_scrapy.tools.show import print_lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.sources.source import Kind
    from walsh_scrapy.tools.call import Call

logger = logging.getLogger(__name__)

_FEEDS: Final = (
    "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, "
    "text/xml;q=0.9, */*;q=0.1"
)
#: The Accept header of a request. A page is wanted as markdown, or else as it is.
_ACCEPT: Final[dict[Role, str]] = {
    "page": f"{ACCEPT_MARKDOWN}, {_FEEDS}",
    "feed": _FEEDS,
    "llms.txt": ACCEPT_LLMSTXT,
}
#: Most requests for feeds that one page declares.
MAX_FEED_REQUESTS: Final = 3

_MAX_WAIT_SECONDS = 60


def run(call: Call) -> int:
    """Run the spider, and print its result."""
    offers = offers_for(call.arguments.urls)
    call.crawl(DiscoverSpider, _MAX_WAIT_SECONDS, offers=offers)
    if not sys.stdout.isatty():  # TOML is UTF-8, whatever the locale is
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    if call.arguments.json:
        print_lines(json.dumps(as_dict(offer)) for offer in offers)
    else:
        print_lines(report_lines(offers))
    return 0 if all(offer.is_usable for offer in offers) else 1


class DiscoverSpider(DeclaringSpider):
    """Requests each page as markdown, then the feeds that it declares, in its headers and its head.

    If there is no feed, the llms.txt of the host is requested. Only the head of HTML is read
    (decision 16). Requests have no source, so the state keeps only pacing, robots.txt and the log
    of requests. ``sources`` makes ScopeMiddleware take the URLs for declared targets.
    """

    name = "discover"

    def __init__(self, offers: Iterable[SiteOffer] = (), **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.offers = tuple(offers)
        self.sources = tuple(Source(offer.url, "llms") for offer in self.offers)

    async def start(self) -> AsyncIterator[Any]:
        """Request each page; a URL that is an llms.txt is requested as one."""
        for offer in self.offers:
            if offer.page is offer.llms_txt:
                for request in self._llms_txt(offer):
                    yield request
            else:
                offer.page.mark_requested()
                yield self._request(offer, offer.page, Visit(None, may_be_feed, reads_head=True))

    async def parse(
        self, response: Response, offer: SiteOffer, candidate: Candidate
    ) -> AsyncIterator[Request]:
        """Read a document; if it is not the last to request, request the next.

        Unless the page is a feed, these are its declared feeds, and the llms.txt.
        """
        links: tuple[FeedLink, ...] = ()
        if candidate.role == "page":
            links = declared_feeds(
                (*feed_alternates(links_of(response), response.url), *await self._head(response))
            )
        await self._read(response, candidate, len(links))
        if candidate.role == "page" and candidate.form != "feed":
            offer.feeds = tuple(_feed_candidates(links, offer.page.url))
        elif candidate.role != "feed":
            return
        for request in self._next_feed(offer):
            yield request

    async def _head(self, response: Response) -> tuple[FeedLink, ...]:
        """Return the feeds that the head of a page declares; an error page declares none."""
        content_type = content_type_of(response.headers)
        if response.status in ABSENT or not is_html(content_type):
            return ()
        reader = Crawl.of(self.crawler).reader
        page = response.body, content_type, response.url
        try:
            return await reader.call(response.url, feeds_in_head, *page)
        except TooCostly as error:
            logger.warning("%s", error)
            return ()

    async def _read(self, response: Response, candidate: Candidate, feeds: int = 0) -> None:
        """Set the outcome of a candidate: a feed, markdown, or why it is neither.

        ``feeds`` is the number that it declares.
        """
        content_type = content_type_of(response.headers)
        visit = visit_of(request_of(response))
        is_links = candidate.role == "llms.txt" or is_markdown(content_type)
        form: Form = "markdown" if is_links else "feed"
        if response.status in ABSENT:
            candidate.end(f"answered {response.status}")
        elif visit and visit.unread is not None:
            candidate.end(f"answered as {content_type[:80]}; its body was not read")
        elif candidate.role == "page" and is_html(content_type):
            declared = count_of(feeds, "feed") if feeds else "no feed"
            candidate.end(f"answered as {content_type[:80]}; it declares {declared}")
        else:
            kind: Kind = "llms" if is_links else "feed"
            document = Document(kind, response.body, response.url, content_type, candidate.url)
            try:
                feed = await Crawl.of(self.crawler).reader.read(document)
                candidate.found(feed, form, response.url)
            except NotAFeed as error:
                candidate.end(str(error))

    def failed(self, failure: Failure) -> list[Request]:
        """Keep the reason; if robots.txt denies a document, request the next one."""
        request, error = request_of(failure), failure.value
        offer, candidate = request.cb_kwargs["offer"], request.cb_kwargs["candidate"]
        if isinstance(error, Denied):
            candidate.end(f"denied by {error.gate}: {error.reason}")
        else:
            is_deferred = isinstance(error, RequestDeferred)
            reason = str(error) if is_deferred else reason_of(error, request.url)
            candidate.end(reason, unsure=True)
        if candidate.role == "feed":  # the next may be on another host
            return list(self._next_feed(offer))
        by_robots = isinstance(error, Denied) and error.gate == "robots"
        return list(self._llms_txt(offer)) if by_robots and candidate.role == "page" else []

    def _next_feed(self, offer: SiteOffer) -> Iterator[Request]:
        """Request the next feed that the page declares; after the last, the llms.txt."""
        requested = sum(each.requested for each in offer.feeds)
        if requested < min(len(offer.feeds), MAX_FEED_REQUESTS):
            candidate = offer.feeds[requested]
            candidate.mark_requested()
            # ScopeMiddleware lets it pass: the operator wants the declared feeds of the page.
            visit = Visit(None, may_be_feed, announced=(candidate.url,), declared_by=offer.page.url)
            yield self._request(offer, candidate, visit)
        elif not offer.has_feed and not any(each.unsure for each in offer.feeds):
            yield from self._llms_txt(offer)

    def _llms_txt(self, offer: SiteOffer) -> Iterator[Request]:
        if offer.llms_txt.mark_requested():
            yield self._request(offer, offer.llms_txt, Visit(None, may_be_llms))

    def _request(self, offer: SiteOffer, candidate: Candidate, visit: Visit) -> Request:
        request = Request(
            candidate.url,
            errback=self.failed,
            headers={"Accept": _ACCEPT[candidate.role]},
            cb_kwargs={"offer": offer, "candidate": candidate},
            meta={"handle_httpstatus_list": ABSENT},
            dont_filter=True,
        )
        set_visit(request, visit)
        return request


def _feed_candidates(links: Iterable[FeedLink], page: str) -> Iterator[Candidate]:
    for link in links:
        with suppress(SourcesError):  # it could not be declared
            url = target_url(link.url)
            if url != page:
                yield Candidate(url, "feed", title=link.title, link=link)
