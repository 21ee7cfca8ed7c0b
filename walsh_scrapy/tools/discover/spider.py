"""Asks sites what they offer, by the gates of a crawl: what ``scrapy discover`` runs (R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy import Request

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.metadata.feeds import NotAFeed, parse_feed
from walsh_scrapy.metadata.linkheader import feed_alternates
from walsh_scrapy.metadata.llms import parse_llms
from walsh_scrapy.metadata.mediatypes import is_html, is_markdown, may_be_feed, may_be_llms
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.marks import request_of
from walsh_scrapy.runtime.negotiation import (
    ABSENT,
    ACCEPT_LLMSTXT,
    ACCEPT_MARKDOWN,
    announced_by,
    content_type_of,
    links_of,
)
from walsh_scrapy.runtime.visit import Visit, set_visit, visit_of
from walsh_scrapy.sources import Source
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.discover.candidates import Document, Finding, Form
from walsh_scrapy.tools.mayfetch.spider import NO_OUTPUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

#: For a server that answers 406 to a request for markdown.
FEEDS: Final = (
    "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, "
    "text/xml;q=0.9, */*;q=0.1"
)
NOT_ACCEPTABLE: Final = 406
MOST_FEEDS: Final = 3


class DiscoverySpider(DeclaringSpider):
    """Asks for each page as markdown, for what its headers call that, and for its llms.txt.

    The URLs stand where a crawl has its declared targets. No request is made for a source, so
    nothing of them gets into the state but pacing, robots.txt and the wire log. HTML is cut off
    at its headers; a feed ends the search.
    """

    name = "discovery"
    custom_settings = NO_OUTPUT

    def __init__(self, findings: Iterable[Finding] = (), **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.findings = tuple(findings)
        self.sources = tuple(Source(finding.url, "llms") for finding in self.findings)

    async def start(self) -> AsyncIterator[Any]:
        """Ask for each page."""
        for finding in self.findings:
            if finding.page is finding.index:
                for request in self._index(finding):
                    yield request
            else:
                finding.page.ask()
                yield self._page(finding, ACCEPT_MARKDOWN)

    def page_came(
        self, response: Response, finding: Finding, document: Document
    ) -> Iterator[Request]:
        """Go on to what the page announces and to the llms.txt, unless it is a feed."""
        finding.feeds = (
            finding.feeds or feed_alternates(links_of(response), response.url)[:MOST_FEEDS]
        )
        if response.status == NOT_ACCEPTABLE and _accepts(response) == ACCEPT_MARKDOWN:
            yield self._page(finding, FEEDS)
            return
        _read(response, document)
        if document.form != "feed":
            if document.form is None:
                yield from self._announced(response, finding)
            yield from self._index(finding)

    def links_came(
        self, response: Response, finding: Finding, document: Document
    ) -> Iterator[Request]:
        """Keep what a document beside the page turned out to be; else ask for the next."""
        _read(response, document)
        if document.role == "announced" and document.form is None:
            yield from self._next_announced(finding)

    def failed(self, failure: Failure) -> list[Request]:
        """Keep why nothing came; what robots.txt says of a page says nothing of the llms.txt."""
        request, error = request_of(failure), failure.value
        finding, document = request.cb_kwargs["finding"], request.cb_kwargs["document"]
        if not isinstance(error, Denied):
            later = isinstance(error, RequestDeferred)
            document.end(str(error) if later else reason_of(error, request.url), unsure=True)
            return []
        document.end(f"denied by {error.gate}: {error.reason}")
        if error.gate != "robots" or document.role == "llms.txt":
            return []
        following = self._index if document.role == "page" else self._next_announced
        return list(following(finding))

    def _page(self, finding: Finding, accept: str) -> Request:
        return self._request(self.page_came, finding, finding.page, accept, _may_be_read)

    def _announced(self, response: Response, finding: Finding) -> Iterator[Request]:
        asked = (finding.page.url, finding.index.url)
        targets = (url for url in announced_by(response) if url not in asked)
        finding.announced = tuple(Document(url, "announced") for url in targets)
        yield from self._next_announced(finding)

    def _next_announced(self, finding: Finding) -> Iterator[Request]:
        """Ask for the next document that the page announces, if there is one."""
        document = next((each for each in finding.announced if not each.asked), None)
        if document is not None:
            document.ask()
            # Declared with its page, as in a crawl: the scope gate's own reading of those headers.
            announced = (document.url,)
            yield self._request(
                self.links_came, finding, document, ACCEPT_MARKDOWN, is_markdown, announced
            )

    def _index(self, finding: Finding) -> Iterator[Request]:
        if finding.index.ask():
            yield self._request(
                self.links_came, finding, finding.index, ACCEPT_LLMSTXT, may_be_llms
            )

    def _request(
        self,
        callback: Callable[..., Any],
        finding: Finding,
        document: Document,
        accept: str,
        readable: Callable[[str], bool],
        announced: tuple[str, ...] = (),
    ) -> Request:
        request = Request(
            document.url,
            callback=callback,
            errback=self.failed,
            headers={"Accept": accept},
            cb_kwargs={"finding": finding, "document": document},
            meta={"handle_httpstatus_list": ABSENT},
            dont_filter=True,
        )
        set_visit(request, Visit(None, readable, announced=announced))
        return request


def _may_be_read(content_type: str) -> bool:
    return may_be_feed(content_type) and not is_html(content_type)


def _read(response: Response, document: Document) -> None:
    """Keep what a response is: a feed, markdown, or something else."""
    content_type = content_type_of(response.headers)
    if response.status in ABSENT:
        document.end(f"answered {response.status}")
        return
    visit = visit_of(request_of(response))
    if visit and visit.unread is not None:
        document.end(f"answered as {content_type[:80]}; its body was left alone")
        return
    is_links = document.role != "page" or is_markdown(content_type)
    form: Form = "markdown" if is_links else "feed"
    parse = parse_llms if is_links else parse_feed
    try:
        feed = parse(
            response.body, url=response.url, content_type=content_type, source=document.url
        )
    except NotAFeed as error:
        document.end(str(error))
    else:
        document.found(feed, form, response.url)


def _accepts(response: Response) -> str:
    return (request_of(response).headers.get("Accept") or b"").decode("latin-1")
