"""``scrapy crawl llms``: sites without a feed, by their own markdown or llms.txt (R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urljoin

from walsh_scrapy.items import EntryItem
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.mediatypes import is_markdown, may_be_llms
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.negotiation import (
    ABSENT,
    INDEX,
    INDEX_PATH,
    MARKDOWN,
    announced_by,
    content_type_of,
    is_index,
)
from walsh_scrapy.spider import SourcesSpider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.sources import Kind, Source


class LlmsSpider(SourcesSpider):
    """Turns each page of markdown, or else the host's llms.txt, into one item a link.

    The declared page is asked for as markdown, then what its headers announce as its markdown, then
    ``/llms.txt``; the first that is what it should be is taken. HTML is cut off at its headers.
    """

    name = "llms"
    kind: ClassVar[Kind] = "llms"
    accept: ClassVar[str] = MARKDOWN
    readable = staticmethod(is_markdown)

    def first_request(self, source: Source, url: str) -> Request:
        """Ask for the page as markdown, unless it is an llms.txt itself, wherever that moved."""
        if is_index(source.url) or is_index(url):
            return self._index(source, url)
        return self._page(source, url, urljoin(url, INDEX_PATH))

    def instead_of(self, request: Request) -> Request | None:
        """Return what to ask for in the place of a page that robots.txt denies."""
        visit = request.cb_kwargs
        if "index" not in visit:
            return None
        return self._next(visit["source"], visit["index"], visit["others"] or ())

    def parse(
        self,
        response: Response,
        source: Source,
        index: str | None = None,
        others: tuple[str, ...] | None = None,
    ) -> Iterator[Feed | EntryItem | Request]:
        """Read the links of a document, or ask for the next; raise NotAFeed for the last.

        ``index`` is the llms.txt to end with, None if this is it; ``others`` is what the page
        announces and was not tried yet, None if this is the page.
        """
        try:
            links = _read(response, source)
        except NotAFeed as error:
            if index is None:
                raise NotAFeed(
                    f"neither its page is markdown nor {response.url} an llms.txt: {error}"
                ) from None
            if others is None:
                others = tuple(each for each in announced_by(response) if each != index)
            yield self._next(source, index, others)
            return
        yield links
        for entry in links.entries:
            yield EntryItem.of_feed(entry, feed=links, source=source.url, kind="llms")

    def _next(self, source: Source, index: str, others: tuple[str, ...]) -> Request:
        if others:
            return self._page(source, others[0], index, others[1:])
        return self._index(source, index)

    def _page(
        self, source: Source, url: str, index: str, others: tuple[str, ...] | None = None
    ) -> Request:
        request = self.request(source, url, self.accept, self.readable, index=index, others=others)
        request.meta["handle_httpstatus_list"] = ABSENT
        return request

    def _index(self, source: Source, url: str) -> Request:
        request = self.request(source, url, INDEX, may_be_llms)
        request.meta[meta.INDEX] = url
        request.meta["handle_httpstatus_list"] = ABSENT
        return request


def _read(response: Response, source: Source) -> Feed:
    from walsh_scrapy.metadata.llms import parse_llms

    if response.status in ABSENT:
        raise NotAFeed(f"the server answered {response.status}")
    if unwanted := response.meta.get(meta.UNWANTED):
        raise NotAFeed(f"what came is {unwanted}")
    body = response.body
    if meta.DATA_LOSS in response.flags:  # of its last line, half a link would be another
        body = body[: body.rfind(b"\n") + 1]
    content_type = content_type_of(response.headers)
    return parse_llms(body, url=response.url, content_type=content_type, source=source.url)
