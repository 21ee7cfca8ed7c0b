"""The spider of ``scrapy discover``: it requests what a site may offer a crawl (R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy import Request

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.metadata.feeds import NotAFeed, parse_feed
from walsh_scrapy.metadata.linkheader import feed_alternates
from walsh_scrapy.metadata.llms import parse_llms
from walsh_scrapy.metadata.mediatypes import is_html, is_markdown, may_be_feed, may_be_llms
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.negotiation import (
    ABSENT,
    ACCEPT_LLMSTXT,
    ACCEPT_MARKDOWN,
    announced_by,
    content_type_of,
    links_of,
)
from walsh_scrapy.runtime.requestmeta import Visit, request_of, set_visit, visit_of
from walsh_scrapy.sources import Source
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.discover.candidates import Candidate, Form, SiteOffer
from walsh_scrapy.tools.mayfetch.spider import NO_OUTPUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

#: The Accept header for a server that answers 406 to a request for markdown.
FEEDS: Final = (
    "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, "
    "text/xml;q=0.9, */*;q=0.1"
)
NOT_ACCEPTABLE: Final = 406
#: Most feeds kept of those that the headers of a page announce.
MOST_FEEDS: Final = 3


class DiscoverSpider(DeclaringSpider):
    """Requests each page as markdown, then what its headers announce, then the host's llms.txt.

    The search ends at a feed. HTML is dropped at its headers. Requests have no source, so the state
    keeps only pacing, robots.txt and the log of requests. ``sources`` makes the scope gate take
    the URLs for declared targets.
    """

    name = "discover"
    custom_settings = NO_OUTPUT

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
                offer.page.claim()
                yield self._page(offer, ACCEPT_MARKDOWN)

    def parse_page(
        self, response: Response, offer: SiteOffer, candidate: Candidate
    ) -> Iterator[Request]:
        """Read the page; unless it is a feed, request what it announces and the llms.txt."""
        offer.feeds = offer.feeds or feed_alternates(links_of(response), response.url)[:MOST_FEEDS]
        if response.status == NOT_ACCEPTABLE and _accepts(response) == ACCEPT_MARKDOWN:
            yield self._page(offer, FEEDS)
            return
        _read(response, candidate)
        if candidate.form != "feed":
            if candidate.form is None:
                yield from self._announced(response, offer)
            yield from self._llms_txt(offer)

    def parse_markdown(
        self, response: Response, offer: SiteOffer, candidate: Candidate
    ) -> Iterator[Request]:
        """Read an announced document or an llms.txt; request the next if this is not markdown."""
        _read(response, candidate)
        if candidate.role == "announced" and candidate.form is None:
            yield from self._next_announced(offer)

    def failed(self, failure: Failure) -> list[Request]:
        """Keep the reason; if robots.txt denies a document, request what would come next."""
        request, error = request_of(failure), failure.value
        offer, candidate = request.cb_kwargs["offer"], request.cb_kwargs["candidate"]
        if not isinstance(error, Denied):
            deferred = isinstance(error, RequestDeferred)
            reason = str(error) if deferred else reason_of(error, request.url)
            candidate.end(reason, unsure=True)
            return []
        candidate.end(f"denied by {error.gate}: {error.reason}")
        if error.gate != "robots" or candidate.role == "llms.txt":
            return []
        following = self._llms_txt if candidate.role == "page" else self._next_announced
        return list(following(offer))

    def _page(self, offer: SiteOffer, accept: str) -> Request:
        return self._request(self.parse_page, offer, offer.page, accept, _may_be_read)

    def _announced(self, response: Response, offer: SiteOffer) -> Iterator[Request]:
        known = (offer.page.url, offer.llms_txt.url)
        urls = (url for url in announced_by(response) if url not in known)
        offer.announced = tuple(Candidate(url, "announced") for url in urls)
        yield from self._next_announced(offer)

    def _next_announced(self, offer: SiteOffer) -> Iterator[Request]:
        """Request the next document that the page announces, if there is one."""
        candidate = next((each for each in offer.announced if not each.requested), None)
        if candidate is not None:
            candidate.claim()
            # The scope gate lets it pass as in a crawl, where the page declares it.
            announced = (candidate.url,)
            yield self._request(
                self.parse_markdown, offer, candidate, ACCEPT_MARKDOWN, is_markdown, announced
            )

    def _llms_txt(self, offer: SiteOffer) -> Iterator[Request]:
        if offer.llms_txt.claim():
            yield self._request(
                self.parse_markdown, offer, offer.llms_txt, ACCEPT_LLMSTXT, may_be_llms
            )

    def _request(
        self,
        callback: Callable[..., Any],
        offer: SiteOffer,
        candidate: Candidate,
        accept: str,
        readable: Callable[[str], bool],
        announced: tuple[str, ...] = (),
    ) -> Request:
        request = Request(
            candidate.url,
            callback=callback,
            errback=self.failed,
            headers={"Accept": accept},
            cb_kwargs={"offer": offer, "candidate": candidate},
            meta={"handle_httpstatus_list": ABSENT},
            dont_filter=True,
        )
        set_visit(request, Visit(None, readable, announced=announced))
        return request


def _may_be_read(content_type: str) -> bool:
    return may_be_feed(content_type) and not is_html(content_type)


def _read(response: Response, candidate: Candidate) -> None:
    """Set the outcome of a candidate: a feed, markdown, or why it is neither."""
    content_type = content_type_of(response.headers)
    if response.status in ABSENT:
        candidate.end(f"answered {response.status}")
        return
    visit = visit_of(request_of(response))
    if visit and visit.unread is not None:
        candidate.end(f"answered as {content_type[:80]}; its body was not read")
        return
    is_links = candidate.role != "page" or is_markdown(content_type)
    form: Form = "markdown" if is_links else "feed"
    parse = parse_llms if is_links else parse_feed
    try:
        feed = parse(
            response.body, url=response.url, content_type=content_type, source=candidate.url
        )
    except NotAFeed as error:
        candidate.end(str(error))
    else:
        candidate.found(feed, form, response.url)


def _accepts(response: Response) -> str:
    return (request_of(response).headers.get("Accept") or b"").decode("latin-1")
