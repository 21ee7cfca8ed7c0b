"""The spiders: one for feeds, and one for sites without a feed that have markdown or llms.txt (R9).

They have no ``name``, so Scrapy does not list them. A project subclasses and names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urljoin

from walsh_scrapy.crawl.ticket import DATA_LOSS, content_type_of, links_of, set_visit
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.metadata.document import Document
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.formats import (
    ABSENT,
    ACCEPT_LLMSTXT,
    ACCEPT_MARKDOWN,
    HTML_PAGE,
    LLMSTXT_PATH,
    announced,
    is_llmstxt,
    is_markdown,
    may_be_feed,
    may_be_llms,
)
from walsh_scrapy.feeds.sourcesspider import SourcesSpider
from walsh_scrapy.feeds.sourcevisit import SourceVisit
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.sources.source import Kind, Source


class FeedsSpider(SourcesSpider):
    """Yields one item for each entry of a feed (RSS, Atom, RDF or JSON)."""

    kind: ClassVar[Kind] = "feed"
    accept: ClassVar[str] = (
        "application/atom+xml, application/rss+xml, application/feed+json, application/rdf+xml, "
        "application/xml;q=0.9, text/xml;q=0.9, application/json;q=0.8, */*;q=0.1"
    )

    readable = staticmethod(may_be_feed)

    async def parse(self, response: Response, source: Source) -> AsyncIterator[Feed | EntryItem]:
        """Yield the feed, for FirstSeenMiddleware, and an item for each of its entries.

        Raises NotAFeed for any other document.
        """
        if unread := self.unread(response):
            raise NotAFeed(f"{unread} is not a feed, so its body was not downloaded")
        content_type = content_type_of(response.headers)
        is_cut_off = DATA_LOSS in response.flags
        document = Document(
            "feed", response.body, response.url, content_type, source.url, is_cut_off
        )
        try:
            feed = await self.read(document)
        except NotAFeed as error:
            if HTML_PAGE not in str(error):
                raise
            advice = f"`{program_name()} discover {response.url}` looks for its feed"
            raise NotAFeed(_with_remark(str(error), advice)) from None
        yield feed
        for entry in feed.entries:
            yield EntryItem.from_entry(entry, feed=feed, source=source.url)


def _with_remark(sentence: str, remark: str) -> str:
    """Return a sentence with a remark in brackets at its end, or added to the remark there."""
    text = sentence.removesuffix(".")
    return f"{text[:-1]}; {remark})." if text.endswith(")") else f"{text} ({remark})."


class LlmsSpider(SourcesSpider):
    """Yields one item for each link in a markdown page, or in the llms.txt of its host.

    The first of these documents in the right format is used:

    1. the declared page, requested as markdown;
    2. the URLs that the Link headers of the page announce as markdown;
    3. ``/llms.txt``.

    The bodies of HTML pages are not downloaded.
    """

    kind: ClassVar[Kind] = "llms"
    accept: ClassVar[str] = ACCEPT_MARKDOWN
    readable = staticmethod(is_markdown)

    def first_request(self, source: Source, url: str) -> Request:
        """Return the request for the page, or for the llms.txt if the source is one.

        ``url`` is the URL of the source, or the one to which it has moved.
        """
        if is_llmstxt(source.url) or is_llmstxt(url):
            return self._request_llmstxt(source, url)
        return self._request_page(source, url, urljoin(url, LLMSTXT_PATH))

    def alternative_to(self, request: Request) -> Request | None:
        """Return the request for the next document, after robots.txt denied ``request``."""
        visit = request.cb_kwargs
        if "llmstxt" not in visit:
            return None
        return self._request_next(visit["source"], visit["llmstxt"], visit["remaining"] or ())

    async def parse(
        self,
        response: Response,
        source: Source,
        llmstxt: str | None = None,
        remaining: tuple[str, ...] | None = None,
    ) -> AsyncIterator[Feed | EntryItem | Request]:
        """Yield the links of a document, or the request for the next document.

        ``llmstxt`` is the URL of the llms.txt to request last; None if this is its response.
        ``remaining`` are the announced URLs that were not requested yet; None if this is the
        response of the page. Raises NotAFeed if the last document has the wrong format.
        """
        try:
            links = await self._read_links(response, source)
        except NotAFeed as error:
            if llmstxt is None:
                raise NotAFeed(
                    f"the page is not markdown, and {response.url} is no llms.txt: {error}"
                ) from None
            if remaining is None:
                urls = announced(links_of(response), response.url)
                remaining = tuple(url for url in urls if url != llmstxt)
            yield self._request_next(source, llmstxt, remaining)
            return
        yield links
        for entry in links.entries:
            yield EntryItem.from_entry(entry, feed=links, source=source.url, kind="llms")

    def _request_next(self, source: Source, llmstxt: str, remaining: tuple[str, ...]) -> Request:
        if remaining:
            return self._request_page(source, remaining[0], llmstxt, remaining[1:])
        return self._request_llmstxt(source, llmstxt)

    def _request_page(
        self, source: Source, url: str, llmstxt: str, remaining: tuple[str, ...] | None = None
    ) -> Request:
        following = {"llmstxt": llmstxt, "remaining": remaining}
        request = self.request(source, url, self.accept, self.readable, **following)
        request.meta["handle_httpstatus_list"] = ABSENT
        return request

    def _request_llmstxt(self, source: Source, url: str) -> Request:
        request = self.request(source, url, ACCEPT_LLMSTXT, may_be_llms)
        set_visit(request, SourceVisit(source, may_be_llms, llmstxt=url))
        request.meta["handle_httpstatus_list"] = ABSENT
        return request

    async def _read_links(self, response: Response, source: Source) -> Feed:
        """Return the links of a document; raise NotAFeed for an error response, or an HTML page."""
        if response.status in ABSENT:
            raise NotAFeed(f"the server answered {response.status}")
        if unread := self.unread(response):
            raise NotAFeed(f"the server sent {unread}")
        body = response.body
        if DATA_LOSS in response.flags:  # half a link in the last line would be another URL
            body = body[: body.rfind(b"\n") + 1]
        content_type = content_type_of(response.headers)
        return await self.read(Document("llms", body, response.url, content_type, source.url))
