"""Finding sources: ``walsh discover`` prints them as TOML, and ``walsh add`` adds them to the file.

Both take URLs, and ``walsh add`` also files, whose sources it adds without a request. For a URL
they request the page, as markdown if the server has it, and up to three feeds that the HTTP headers
or the HTML head of the page link to (rel=alternate). If none of them is a feed, /llms.txt is
requested. All requests pass every middleware, as in a crawl. The body of an HTML page is not read.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from scrapy import Request

from walsh_scrapy.crawl.childprocess import TooCostly
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.ticket import (
    content_type_of,
    links_of,
    note,
    request_of,
    set_visit,
    ticket_of,
)
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.feeds.feedcrawl import FeedCrawl
from walsh_scrapy.feeds.metadata.document import Document
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.formats import (
    ABSENT,
    ACCEPT_LLMSTXT,
    ACCEPT_MARKDOWN,
    FeedLink,
    declared_feeds,
    feed_alternates,
    feeds_in_head,
    is_html,
    is_markdown,
    may_be_feed,
    may_be_llms,
)
from walsh_scrapy.feeds.sources.source import Source, SourcesError, target_url
from walsh_scrapy.feeds.sourcevisit import SourceVisit, source_visit_of
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.call import warn
from walsh_scrapy.tools.offers import (
    Candidate,
    Form,
    Role,
    SiteOffer,
    as_dict,
    choose,
    offers_for,
    report_lines,
)
from walsh_scrapy.tools.show import print_lines
from walsh_scrapy.tools.sourcesfile import SourcesFile, is_file_name, read_listing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.feeds.sources.source import Kind
    from walsh_scrapy.tools.call import Call

logger = logging.getLogger(__name__)

_FEEDS: Final = (
    "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, "
    "text/xml;q=0.9, */*;q=0.1"
)
#: The Accept header for each role. Markdown is preferred for a page.
_ACCEPT: Final[dict[Role, str]] = {
    "page": f"{ACCEPT_MARKDOWN}, {_FEEDS}",
    "feed": _FEEDS,
    "llms.txt": ACCEPT_LLMSTXT,
}
#: The maximum number of requests for the feeds of one page.
MAX_FEED_REQUESTS: Final = 3

#: A request that must wait longer is deferred, and no source is found.
_MAX_WAIT_SECONDS: Final = 60


def run_discover(call: Call) -> int:
    """Run the spider, and print the sources that it found."""
    offers = offers_for(call.arguments.urls)
    call.crawl(DiscoverSpider, _MAX_WAIT_SECONDS, offers=offers)
    if not sys.stdout.isatty():  # because a TOML file must be UTF-8, whatever the locale is
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    if call.arguments.json:
        print_lines(json.dumps(as_dict(offer)) for offer in offers)
    else:
        print_lines(report_lines(offers))
    return 0 if all(offer.is_usable for offer in offers) else 1


class DiscoverSpider(DeclaringSpider):
    """Requests each page, then the feeds that the page declares, or else the llms.txt of the host.

    The requests have no source, so the state database stores no visit and no entry. The attribute
    ``sources`` makes ScopeMiddleware treat the URLs as declared.
    """

    name = "discover"

    def __init__(self, offers: Iterable[SiteOffer] = (), **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.offers = tuple(offers)
        self.sources = tuple(Source(offer.url, "llms") for offer in self.offers)

    async def start(self) -> AsyncIterator[Any]:
        """Request each page. A URL that ends in llms.txt is requested as an llms.txt."""
        for offer in self.offers:
            if offer.page is offer.llms_txt:
                for request in self._request_llms_txt(offer):
                    yield request
            else:
                visit = SourceVisit(None, may_be_feed, reads_head=True)
                yield self._request(offer, offer.page, visit)

    async def parse(
        self, response: Response, offer: SiteOffer, candidate: Candidate
    ) -> AsyncIterator[Request]:
        """Read a document, and request the next one of the site, if there is one."""
        links: tuple[FeedLink, ...] = ()
        if candidate.role == "page":
            links = declared_feeds(
                (
                    *feed_alternates(links_of(response), response.url),
                    *await self._read_head(response),
                )
            )
        await self._read_document(response, candidate, len(links))
        if candidate.role == "page" and candidate.form != "feed":
            offer.feeds = tuple(_build_candidates(links, offer.page.url))
            offer.public_only = ticket_of(request_of(response)).public_only
        elif candidate.role != "feed":
            return
        for request in self._request_next_feed(offer):
            yield request

    async def _read_head(self, response: Response) -> tuple[FeedLink, ...]:
        """Return the feeds that the HTML head of a page declares; none for an error page."""
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

    async def _read_document(
        self, response: Response, candidate: Candidate, feeds: int = 0
    ) -> None:
        """Set the outcome of a candidate: a feed, markdown, or why it is neither.

        ``feeds`` is the number of feeds that the page declares.
        """
        content_type = content_type_of(response.headers)
        visit = source_visit_of(request_of(response))
        is_links = candidate.role == "llms.txt" or is_markdown(content_type)
        form: Form = "markdown" if is_links else "feed"
        if response.status in ABSENT:
            candidate.set_outcome(f"answered {response.status}")
        elif visit and visit.unread is not None:
            candidate.set_outcome(f"{content_type[:80]}; the body was not read")
        elif candidate.role == "page" and is_html(content_type):
            number = count_of(feeds, "feed") if feeds else "no feed"
            candidate.set_outcome(f"{content_type[:80]}; the page declares {number}")
        else:
            kind: Kind = "llms" if is_links else "feed"
            document = Document(kind, response.body, response.url, content_type, candidate.url)
            try:
                feed = await FeedCrawl.of(Crawl.of(self.crawler)).read(document)
                candidate.set_feed(feed, form, response.url)
            except NotAFeed as error:
                candidate.set_outcome(str(error))

    def record_failure(self, failure: Failure) -> list[Request]:
        """Record the reason; request the next document if robots.txt denied this one."""
        request = request_of(failure)
        error = failure.value
        offer = request.cb_kwargs["offer"]
        candidate = request.cb_kwargs["candidate"]
        if isinstance(error, Denied):
            candidate.set_outcome(f"denied by {error.gate}: {error.reason}")
        else:
            is_deferred = isinstance(error, RequestDeferred)
            reason = str(error) if is_deferred else reason_of(error, request.url)
            candidate.set_outcome(reason, unsure=True)
        if candidate.role == "feed":  # because the next feed may be on another host
            return list(self._request_next_feed(offer))
        by_robots = isinstance(error, Denied) and error.gate == "robots"
        return list(self._request_llms_txt(offer)) if by_robots and candidate.role == "page" else []

    def _request_next_feed(self, offer: SiteOffer) -> Iterator[Request]:
        """Request the next feed that the page declares, or the llms.txt after the last one."""
        requested = sum(feed.requested for feed in offer.feeds)
        if requested < min(len(offer.feeds), MAX_FEED_REQUESTS):
            candidate = offer.feeds[requested]
            # `announced` makes ScopeMiddleware allow a feed that only the page declares.
            visit = SourceVisit(None, may_be_feed, announced=(candidate.url,))
            yield self._request(offer, candidate, visit)
        elif not offer.has_feed and not any(feed.unsure for feed in offer.feeds):
            yield from self._request_llms_txt(offer)

    def _request_llms_txt(self, offer: SiteOffer) -> Iterator[Request]:
        if not offer.llms_txt.requested:  # other pages of the host share it
            yield self._request(offer, offer.llms_txt, SourceVisit(None, may_be_llms))

    def _request(self, offer: SiteOffer, candidate: Candidate, visit: SourceVisit) -> Request:
        """Return a request for a document, which is marked as requested."""
        candidate.mark_requested()
        request = Request(
            candidate.url,
            errback=self.record_failure,
            headers={"Accept": _ACCEPT[candidate.role]},
            cb_kwargs={"offer": offer, "candidate": candidate},
            meta={"handle_httpstatus_list": ABSENT},
            dont_filter=True,
        )
        set_visit(request, visit)
        note(request, public_only=offer.public_only)
        return request


def _build_candidates(links: Iterable[FeedLink], page: str) -> Iterator[Candidate]:
    for link in links:
        with suppress(SourcesError):  # a URL that no source may have
            url = target_url(link.url)
            if url != page:
                yield Candidate(url, "feed", title=link.title, link=link)


def run_add(call: Call) -> int:
    """Add the sources of files, and a source for each URL; return 1 if a URL has none."""
    targets: list[str] = call.arguments.targets
    names = [target for target in targets if is_file_name(target)]
    offers = offers_for(target for target in targets if target not in names)
    file = SourcesFile(call.sources_file)
    if names:
        listing = read_listing(names)
        for warning in listing.warnings:
            warn(printable(warning))
        print_lines(file.merge(listing))
    new = file.undeclared(offer.url for offer in offers)
    declared = [offer.url for offer in offers if offer.url not in new]
    print_lines(f"{url} is already in {call.sources_file}" for url in declared)
    offers = tuple(offer for offer in offers if offer.url in new)
    if not offers:
        return 0
    call.crawl(DiscoverSpider, _MAX_WAIT_SECONDS, name="add", offers=offers)
    choices = [choose(offer) for offer in offers]
    sources = [source for source, _ in choices if source]
    if sources:
        print_lines(file.add(sources))
    for line in (line for _, lines in choices for line in lines):
        warn(printable(line))
    return 0 if len(sources) == len(offers) else 1
