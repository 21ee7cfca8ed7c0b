"""The base class of spiders that request the sources of a file, and nothing else (R6)."""

from __future__ import annotations

import difflib
import inspect
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from scrapy import Request

from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.startup import check_gates
from walsh_scrapy.crawl.ticket import set_visit
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.feeds.feedcrawl import DueSources, FeedCrawl
from walsh_scrapy.feeds.sources.loading import unpack_sources
from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.feeds.sourcevisit import SourceVisit, source_visit_of
from walsh_scrapy.feeds.stores.sourcestore import DeclaredSources, Selection
from walsh_scrapy.options import BadSetting, Options, WrongArgument
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.state.engine import RefusedValues

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.feeds.metadata.document import Document
    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.sources.source import Kind, Source
    from walsh_scrapy.feeds.stores.sourcestore import SourceStore


#: The spider arguments of every SourcesSpider; docs/settings.md describes them.
ARGUMENTS: Final = ("sources", "force", "only")
#: The number of sources that are searched for a text similar to ``only``; that takes 0.1 s at most.
_MAX_COMPARED: Final = 2_000


class SourcesSpider(DeclaringSpider):
    """A spider that visits the sources of one kind, each when it is due.

    Arguments (``-a NAME=VALUE``):

    - ``sources=FILE``: read this file instead of ``WALSH_SOURCES``.
    - ``force=1``: also visit sources that are not due yet.
    - ``only=TEXT``: visit only sources whose URL, name or tags contain TEXT.

    A subclass can add arguments: parameters of its ``__init__``, or class attributes. Names that
    begin with an underscore are Scrapyd's. Any other argument stops the start, because it is
    probably mistyped.
    """

    kind: ClassVar[Kind]  #: the kind of source that this spider visits
    sources_file: str | None = None  #: the path of the file that declares the sources
    accept: ClassVar[str] = "*/*"  #: the Accept header of the first request

    @staticmethod
    def readable(content_type: str) -> bool:  # noqa: ARG004 - for subclasses
        """Return True to download a body of this Content-Type, False to skip it."""
        return True

    def __init__(self, *args: str, **arguments: str) -> None:
        super().__init__(*args, **arguments)
        self.force = str(arguments.get("force", "0")).lower() in ("1", "true", "yes", "on")
        self.only = arguments.get("only", "")
        self._sources: DeclaredSources | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: str, **arguments: str) -> Self:
        """Build the spider. A wrong argument or setting stops the process with one line."""
        spider = super().from_crawler(crawler, *args, **arguments)
        try:
            cls._check_arguments(arguments)
            check_gates(crawler.settings)
            options = Options.from_settings(crawler.settings)
            spider.sources_file = arguments.get("sources") or unpack_sources(options.sources)
        except (BadSetting, SourcesError) as error:
            refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
        return spider

    @property
    def sources(self) -> DeclaredSources:  # type: ignore[override]  # it cannot be set
        """The sources of the file that this run selects. A wrong file stops the process.

        They are read from the state, into which the file is synced first.
        """
        if self._sources is None:
            feed_crawl = FeedCrawl.of(Crawl.of(self.crawler))
            if feed_crawl.file is None:
                raise ValueError(f"{self} has no sources file; build it with from_crawler")
            selection = Selection(feed_crawl.file.id, self.kind, self.only)
            self._sources = DeclaredSources(feed_crawl.stores.sources, selection)
        return self._sources

    @classmethod
    def _check_arguments(cls, arguments: Iterable[str]) -> None:
        """Raise WrongArgument for a name that neither this class nor a subclass takes."""
        accepted = set(ARGUMENTS)
        for base in cls.__mro__[: cls.__mro__.index(SourcesSpider)]:
            accepted.update(vars(base))
            if "__init__" in vars(base):
                accepted.update(inspect.signature(base).parameters)
        for name in arguments:
            if name not in accepted and not name.startswith("_"):
                close = difflib.get_close_matches(name, ARGUMENTS, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                choices = ", ".join(ARGUMENTS)
                raise WrongArgument(
                    f"the spider {cls.name} has no argument {name}, only {choices}{hint}"
                )

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first request of each source that is due."""
        crawl = Crawl.of(self.crawler)
        declared = self.sources
        try:
            due = DueSources(FeedCrawl.of(crawl).visits, declared.chosen, force=self.force)
            due.report(crawl.stats)
            async for source, url in due.due_urls():
                yield self.first_request(source, url)
            # `due.begun` also counts sources that other workers visited since the run began.
            crawl.stats.inc_value("walsh/sources/due", due.begun - due.counts.due)
        except StateUnavailable as error:
            crawl.engine.end("state_failed", str(error))
        except RefusedValues as error:
            crawl.engine.code_failed(error)

    def check_choice(self, store: SourceStore, file: int) -> None:
        """Raise WrongArgument if ``only`` selects no source.

        ``file`` is the number of the sources file in the state. The message proposes similar texts.
        """
        if not self.only or any(store.iterate(Selection(file, self.kind, self.only))):
            return
        spellings: dict[str, str] = {}
        for source in islice(store.iterate(Selection(file, self.kind)), _MAX_COMPARED):
            for text in (host_of(source.url), source.name or "", *source.tags):
                spellings[text.casefold()] = text
        near = difflib.get_close_matches(self.only.casefold(), spellings, n=3)
        hint = f"; did you mean {' or '.join(repr(spellings[text]) for text in near)}?"
        raise WrongArgument(
            f"{self.sources_file}: no {self.kind} source has {self.only!r} in its URL, name or tags"
            f"{hint if near else ''}"
        )

    def first_request(self, source: Source, url: str) -> Request:
        """Return the first request of a visit.

        ``url`` is the URL of the source, or the one to which it has moved.
        """
        return self.request(source, url, self.accept, self.readable)

    def request(
        self,
        source: Source,
        url: str,
        accept: str,
        readable: Callable[[str], bool],
        **arguments: object,
    ) -> Request:
        """Return a request for a document of a source, with ``parse`` as its callback.

        ``accept`` is its Accept header. ``readable`` takes the Content-Type of the response, and
        returns True to download the body. ``arguments`` are passed on to the callback.
        """
        request = Request(
            url,
            callback=self.parse,
            headers={"Accept": accept},
            cb_kwargs={"source": source, **arguments},
            dont_filter=True,
        )
        # HttpCacheMiddleware would answer with an old copy, although the source has validators.
        request.meta["dont_cache"] = True
        set_visit(request, SourceVisit(source, readable))
        return request

    async def read(self, document: Document) -> Feed:
        """Return the feed, or the list of links, in a document.

        A separate process parses the document, because a hostile one could use up time and memory.
        Raises NotAFeed if the document is none, or needs too much of either, and StillDue if the
        crawl ends before the document was parsed.
        """
        return await FeedCrawl.of(Crawl.of(self.crawler)).read(document)

    @staticmethod
    def unread(response: Response) -> str | None:
        """Return the Content-Type of a body that was not downloaded; None if it was downloaded."""
        visit = source_visit_of(response.request) if response.request else None
        return visit.unread if visit else None
