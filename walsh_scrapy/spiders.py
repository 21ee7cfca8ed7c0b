"""The spiders: feeds, and sites without a feed by their markdown or llms.txt (R9).

A project has a subclass of each, which names itself. So Scrapy finds each spider once: a class
without a ``name`` is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urljoin

from walsh_scrapy.crawl.ticket import DATA_LOSS, Visit, content_type_of, links_of, set_visit
from walsh_scrapy.items import EntryItem
from walsh_scrapy.metadata.alternates import (
    ABSENT,
    ACCEPT_LLMSTXT,
    ACCEPT_MARKDOWN,
    LLMSTXT_PATH,
    announced,
    is_llmstxt,
)
from walsh_scrapy.metadata.document import Document, is_markdown, may_be_feed, may_be_llms
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.spider import SourcesSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.sources.source import Kind, Source


class FeedsSpider(SourcesSpider):
    """Turns each feed into one item for each entry."""

    kind: ClassVar[Kind] = "feed"
    accept: ClassVar[str] = (
        "application/atom+xml, application/rss+xml, application/feed+json, application/rdf+xml, "
        "application/xml;q=0.9, text/xml;q=0.9, application/json;q=0.8, */*;q=0.1"
    )

    readable = staticmethod(may_be_feed)

    async def parse(self, response: Response, source: Source) -> AsyncIterator[Feed | EntryItem]:
        """Yield the feed, which has the update hints, and its entries; raise NotAFeed."""
        if unread := self.unread(response):
            raise NotAFeed(f"{unread} is not a feed, so its body was not downloaded")
        content_type = content_type_of(response.headers)
        is_cut_off = DATA_LOSS in response.flags
        document = Document(
            "feed", response.body, response.url, content_type, source.url, is_cut_off
        )
        feed = await self.read(document)
        yield feed
        for entry in feed.entries:
            yield EntryItem.of_feed(entry, feed=feed, source=source.url)


class LlmsSpider(SourcesSpider):
    """Turns each page of markdown, or else the host's llms.txt, into one item for each link.

    It requests the declared page as markdown, then the URLs that its headers announce as markdown,
    then ``/llms.txt``. The first document in the right format is used. The bodies of HTML pages are
    not downloaded.
    """

    kind: ClassVar[Kind] = "llms"
    accept: ClassVar[str] = ACCEPT_MARKDOWN
    readable = staticmethod(is_markdown)

    def first_request(self, source: Source, url: str) -> Request:
        """Request the page as markdown, or as an llms.txt if its old or new URL is one."""
        if is_llmstxt(source.url) or is_llmstxt(url):
            return self._llmstxt(source, url)
        return self._page(source, url, urljoin(url, LLMSTXT_PATH))

    def alternative_to(self, request: Request) -> Request | None:
        """Return the request to make instead of one for a page that robots.txt denies."""
        visit = request.cb_kwargs
        if "llmstxt" not in visit:
            return None
        return self._next(visit["source"], visit["llmstxt"], visit["others"] or ())

    async def parse(
        self,
        response: Response,
        source: Source,
        llmstxt: str | None = None,
        others: tuple[str, ...] | None = None,
    ) -> AsyncIterator[Feed | EntryItem | Request]:
        """Yield the links of a document, or the request for the next document.

        ``llmstxt`` is the URL of the llms.txt to request last; None if this is its response.
        ``others`` are the announced URLs that were not requested yet; None if this is the response
        of the page. Raises NotAFeed if the last document has the wrong format.
        """
        try:
            links = await self._links(response, source)
        except NotAFeed as error:
            if llmstxt is None:
                raise NotAFeed(
                    f"neither its page is markdown nor {response.url} an llms.txt: {error}"
                ) from None
            if others is None:
                found = announced(links_of(response), response.url)
                others = tuple(each for each in found if each != llmstxt)
            yield self._next(source, llmstxt, others)
            return
        yield links
        for entry in links.entries:
            yield EntryItem.of_feed(entry, feed=links, source=source.url, kind="llms")

    def _next(self, source: Source, llmstxt: str, others: tuple[str, ...]) -> Request:
        if others:
            return self._page(source, others[0], llmstxt, others[1:])
        return self._llmstxt(source, llmstxt)

    def _page(
        self, source: Source, url: str, llmstxt: str, others: tuple[str, ...] | None = None
    ) -> Request:
        following = {"llmstxt": llmstxt, "others": others}
        request = self.request(source, url, self.accept, self.readable, **following)
        request.meta["handle_httpstatus_list"] = ABSENT
        return request

    def _llmstxt(self, source: Source, url: str) -> Request:
        request = self.request(source, url, ACCEPT_LLMSTXT, may_be_llms)
        set_visit(request, Visit(source, may_be_llms, llmstxt=url))
        request.meta["handle_httpstatus_list"] = ABSENT
        return request

    async def _links(self, response: Response, source: Source) -> Feed:
        if response.status in ABSENT:
            raise NotAFeed(f"the server answered {response.status}")
        if unread := self.unread(response):
            raise NotAFeed(f"it is {unread}")
        body = response.body
        if DATA_LOSS in response.flags:  # the last line may hold half a link, which is another URL
            body = body[: body.rfind(b"\n") + 1]
        content_type = content_type_of(response.headers)
        return await self.read(Document("llms", body, response.url, content_type, source.url))
