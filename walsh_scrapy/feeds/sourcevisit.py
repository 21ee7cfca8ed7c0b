"""The visit of a source, as the requests for it carry it in their tickets.

It decides which bodies are downloaded (R6, R9), and until when responses are fresh (R8).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.exceptions import StopDownload

from walsh_scrapy.crawl.messages import counted_bytes
from walsh_scrapy.crawl.ticket import content_type_of, set_visit, visit_of
from walsh_scrapy.feeds.freshness import Freshness
from walsh_scrapy.feeds.metadata.formats import HEAD_BYTES, is_html, may_have_ended
from walsh_scrapy.policy.pacing import VisitTime

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Headers, Response

    from walsh_scrapy.feeds.freshness import Move
    from walsh_scrapy.feeds.sources.source import Source


class Lifetime(NamedTuple):
    """The freshness lifetime of one response: its URL, and its end in epoch seconds."""

    url: str
    until: float


def freshness_of(response: Response) -> Freshness:
    """Return the headers of a response that set its freshness."""

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


class PageResult(NamedTuple):
    """The response of the declared page, if the visit continues with another document."""

    is_gone: bool  #: it is gone permanently (410)
    move: Move | None  #: where it moved to, as far as this visit shows


@dataclass(frozen=True, slots=True)
class SourceVisit:
    """One visit of a source. ``source`` is None if its outcome is not recorded."""

    source: Source | None
    readable: Callable[[str], bool]  #: takes a Content-Type; False: the body is not downloaded
    llmstxt: str | None = None  #: the URL of the requested llms.txt, before redirects
    announced: tuple[str, ...] = ()  #: URLs that the page announces as markdown: declared too
    lifetimes: tuple[Lifetime, ...] = ()  #: of the earlier responses of the visit
    page: PageResult | None = None
    status: int | None = None  #: of the last response before this request
    unread: str | None = None  #: the Content-Type of a body that was not downloaded
    reads_head: bool = False  #: an HTML page is downloaded only as far as its head may go
    time: VisitTime = field(default_factory=VisitTime, compare=False)  #: that its exchanges take

    @property
    def has_gone_page(self) -> bool:
        """Whether the page of the source was gone permanently (410)."""
        return self.page is not None and self.page.is_gone

    def passed(self, lifetime: Lifetime, status: int | None = None) -> SourceVisit:
        """Return the visit with the lifetime and status of one more response."""
        return replace(self, lifetimes=(*self.lifetimes, lifetime), status=status or self.status)

    def carried_to(self, following: SourceVisit) -> SourceVisit:
        """Return the visit of the next request, with the facts of this request."""
        return replace(
            following,
            announced=self.announced,
            lifetimes=self.lifetimes,
            page=self.page,
            status=self.status,
            time=self.time,
        )

    def fresh_until(self, home: str, now: float) -> float:
        """Return when the last response of the visit expires, in epoch seconds (decision 20).

        Redirects count too, and so do pages that led to another document. The next visit begins at
        the URL ``home``. It skips the redirects before that, so their lifetimes do not count.
        """
        urls = [lifetime.url for lifetime in self.lifetimes]
        start = urls.index(home) if home in urls else 0
        return max((lifetime.until for lifetime in self.lifetimes[start:]), default=now)

    # ---- as the add-on asks (`crawl.ticket.Visit`) ----

    @property
    def subject(self) -> str | None:
        """The URL of the source."""
        return self.source.url if self.source else None

    @property
    def delay(self) -> float:
        """The delay that the source declares, in seconds."""
        return self.source.delay.total_seconds() if self.source and self.source.delay else 0.0

    @property
    def needs_end(self) -> bool:
        """Whether the parser sees the end of a document: that of a feed."""
        return self.source is not None and self.source.kind == "feed"

    def may_have_ended(self, body: bytes) -> bool:
        """Return True if the end of a feed seems to be in the body."""
        return self.needs_end and may_have_ended(body)

    def max_bytes(self, content_type: str) -> int | None:
        """Return the bytes that may be the head of an HTML page, if only that is read."""
        return HEAD_BYTES if self.reads_head and is_html(content_type) else None

    def typed(self, content_type: str, *, is_readable: bool) -> SourceVisit:
        """Return the visit with the Content-Type of a body that is not downloaded."""
        return replace(self, unread=None if is_readable else content_type)

    def redirected(self, response: Response, now: float) -> SourceVisit:
        """Return the visit with the lifetime and status of a redirect."""
        if self.source is None:
            return self
        return self.passed(lifetime_of(response, now), response.status)


def source_visit_of(request: Request) -> SourceVisit | None:
    """Return the visit that a request belongs to, if any."""
    visit = visit_of(request)
    return visit if isinstance(visit, SourceVisit) else None


def source_of(request: Request) -> Source | None:
    """Return the declared source of a request, if any."""
    visit = source_visit_of(request)
    return visit.source if visit else None


# ---- the download of bodies ----


class MediaTypes:
    """Stops downloads that the spider cannot read, before the first byte of the body.

    A page of which only the head is read is cut off after the bytes that may be its head.
    """

    def __init__(self) -> None:
        self._remaining: WeakKeyDictionary[Request, int] = WeakKeyDictionary()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the headers and the body of every response."""
        extension = cls()
        crawler.signals.connect(extension.headers_received, signal=signals.headers_received)
        crawler.signals.connect(extension.bytes_received, signal=signals.bytes_received)
        return extension

    def headers_received(self, headers: Headers, request: Request) -> None:
        """Stop the download if its spider cannot read this Content-Type."""
        visit = visit_of(request)
        if visit is None:
            return
        content_type = content_type_of(headers)
        is_readable = visit.readable(content_type)
        set_visit(request, visit.typed(content_type, is_readable=is_readable))
        if not is_readable:
            # The response is kept without its body, because a middleware may need its status.
            raise StopDownload(fail=False)
        if max_bytes := counted_bytes(request, headers):
            self._remaining[request] = max_bytes

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Stop the download of a page once enough of it has come."""
        if request in self._remaining:
            self._remaining[request] -= len(data)
            if self._remaining[request] <= 0:
                raise StopDownload(fail=False)
