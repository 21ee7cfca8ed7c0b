"""R7: asks whether a document changed, and takes 304 Not Modified for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.downloadermiddlewares.pacing import PacingMiddleware
from walsh_scrapy.exceptions import AlreadyRead, NotDue, NotModified
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.startup import check_floor, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from walsh_scrapy.sources import Source

_HEADERS = ("If-None-Match", "If-Modified-Since")


class ConditionalMiddleware:
    """Echoes validators to the one URL they vouch for (order 560, decision 17).

    What is known of a source is read just before it is asked for: another crawl on the same state
    may have been there in the meantime, and then it is not due any more (R8).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_floor(crawler, _floor)
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        """Send what is known of this very URL, and no validator that came along a redirect."""
        source = meta.source(request)
        if source is not None and not request.meta.get("redirect_urls"):
            page, index = self._known(source), meta.index(request)
            request.meta[meta.VALIDATORS] = self._known_of(index) if index else page
            if not index and request.url != source.url:
                self._check_other(source, request.url)
        known: meta.Validators | None = request.meta.get(meta.VALIDATORS)
        values = (known.etag, known.last_modified) if known and known.url == request.url else ()
        for name in _HEADERS:
            request.headers.pop(name, None)
        for name, value in zip(_HEADERS, values, strict=False):
            if value is not None:
                request.headers[name] = value

    async def process_response(self, request: Request, response: Response) -> Response:
        """Turn the 304 that was asked for into ``NotModified``, for whoever made the request."""
        if response.status == 304 and any(name in request.headers for name in _HEADERS):
            self._crawler.stats.inc_value("walsh/conditional/not_modified")
            raise NotModified(response)
        return response

    def _known(self, source: Source) -> meta.Validators | None:
        """Return what an earlier visit left; raise NotDue if that was a moment ago."""
        record = self._crawl.state.sources.find(source.url)
        if record is None:
            return None
        now = self._crawl.now()
        due_at = record.due(source.pause(self._crawl.options.min_revisit), now).at
        if due_at > now and not self._forced:
            raise NotDue(due_at)
        if record.validator_url is None or record.kind != source.kind:
            return None  # what a page was as a feed says nothing of it as markdown
        return meta.Validators(record.validator_url, record.etag, record.last_modified)

    def _check_other(self, source: Source, url: str) -> None:
        """Raise AlreadyRead for a source that moved to where another is, and goes by that."""
        other = self._crawl.state.sources.find(url)
        if other is None or other.fetched_at is None:
            return
        least, now = self._crawl.options.min_revisit, self._crawl.now()
        if other.stands_for(source.kind, least, now):
            trouble = other.detail if other.failures else ""
            raise AlreadyRead(url, other.fetched_at, other.due(least, now).at, trouble)

    def _known_of(self, index: str) -> meta.Validators | None:
        """Return what was left of an llms.txt; raise AlreadyRead if it need not be asked for.

        Once a run is enough for all sources of its host, by force as well.
        """
        record = self._crawl.state.indexes.find(index)
        if record is None:
            return None
        now = self._crawl.now()
        is_fresh = record.due_at > now and not self._forced
        is_past = record.asked_at <= now + CLOCK_SKEW
        if is_past and (is_fresh or record.asked_at >= self._crawl.started_at):
            raise AlreadyRead(index, record.asked_at, record.due_at, record.trouble)
        if record.validator_url is None:
            return None
        return meta.Validators(record.validator_url, record.etag, record.last_modified)

    @property
    def _forced(self) -> bool:
        return getattr(self._crawler.spider, "force", False)


def _floor(settings: BaseSettings) -> None:
    require_order(
        settings,
        (ConditionalMiddleware,),
        (PacingMiddleware,),
        "it gives the host back first; set the order of ConditionalMiddleware to 560",
    )
