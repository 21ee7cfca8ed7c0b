"""The base of this project's spiders: they request declared sources, and nothing else (R6)."""

from __future__ import annotations

import difflib
import inspect
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from scrapy import Request, Spider

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.startup import check_gates
from walsh_scrapy.crawl.ticket import Visit, set_visit, visit_of
from walsh_scrapy.crawl.visits import DueSources
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.options import BadSetting, Options, WrongArgument
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.sources import DeclaredSources, Selection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.metadata.document import Document
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.sources.source import Kind, Source
    from walsh_scrapy.state.sources import SourceStore


#: Spider arguments of every SourcesSpider; docs/settings.md describes them.
ARGUMENTS: Final = ("sources", "force", "only")
#: Sources whose texts are compared with one that selects none: it takes 0.1 s at most.
_MAX_COMPARED: Final = 2_000


class DeclaringSpider(Spider):
    """A spider with declared sources, which the middlewares read from it."""

    sources: Collection[Source] = ()  #: ScopeMiddleware allows requests for these only
    force: bool = False  #: visit sources that are not due yet too (decision 20)

    def alternative_to(self, request: Request) -> Request | None:  # noqa: ARG002 - for subclasses
        """Return the request to make instead of one for a page that robots.txt denies, or None."""
        return None


class SourcesSpider(DeclaringSpider):
    """A spider over the sources of one kind.

    Arguments (``-a NAME=VALUE``): ``sources`` names another file than ``WALSH_SOURCES``;
    ``force=1`` also visits sources that are not due yet; ``only=TEXT`` selects the sources whose
    URL, name or tags contain TEXT. A subclass takes others by its ``__init__``, or by a class
    attribute of the same name. Names that begin with an underscore are Scrapyd's. Any other
    argument is refused, because it is mistyped.
    """

    kind: ClassVar[Kind]
    sources_file: str | None = None  #: the path of the file that declares its sources
    accept: ClassVar[str] = "*/*"

    @staticmethod
    def readable(content_type: str) -> bool:  # noqa: ARG004 - for subclasses
        """Return True if a body of this Content-Type is to be downloaded."""
        return True

    def __init__(self, *args: str, **arguments: str) -> None:
        super().__init__(*args, **arguments)
        self.force = str(arguments.get("force", "0")).lower() in ("1", "true", "yes", "on")
        self.only = arguments.get("only", "")
        self._sources: DeclaredSources | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: str, **arguments: str) -> Self:
        """Make the spider; a wrong argument ends the process with one line."""
        spider = super().from_crawler(crawler, *args, **arguments)
        try:
            cls._check_arguments(arguments)
            check_gates(crawler.settings)
            options = Options.from_settings(crawler.settings)
            spider.sources_file = arguments.get("sources") or options.sources
        except BadSetting as error:
            refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
        return spider

    @property
    def sources(self) -> DeclaredSources:  # type: ignore[override]  # it cannot be set
        """The chosen sources of the file, in the state; a wrong file ends the process."""
        crawl = Crawl.of(self.crawler)
        if crawl.sources_file is None:
            raise ValueError(f"{self} has no sources file; make it with from_crawler")
        if self._sources is None:
            chosen = Selection(crawl.sources_file.id, self.kind, self.only)
            self._sources = DeclaredSources(crawl.context.state.sources, chosen)
        return self._sources

    @classmethod
    def _check_arguments(cls, arguments: Iterable[str]) -> None:
        taken = {*ARGUMENTS}
        for kind in cls.__mro__[: cls.__mro__.index(SourcesSpider)]:
            taken.update(vars(kind))
            if "__init__" in vars(kind):
                taken.update(inspect.signature(kind).parameters)
        for name in arguments:
            if name not in taken and not name.startswith("_"):
                close = difflib.get_close_matches(name, ARGUMENTS, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                known = ", ".join(ARGUMENTS)
                raise WrongArgument(f"{name} is not an argument of {cls.name}: {known}{hint}")

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first request of each source that is due."""
        crawl = Crawl.of(self.crawler)
        declared = self.sources
        try:
            due = DueSources(crawl.visits, declared.chosen, force=self.force)
            due.report(crawl.stats)
            async for source, url in due.each():
                yield self.first_request(source, url)
            # Sources that other workers visited were due as well.
            crawl.stats.inc_value("walsh/sources/due", due.begun - due.counts.due)
        except StateUnavailable as error:
            crawl.engine.end("state_failed", str(error))

    def check_choice(self, store: SourceStore, file: int) -> None:
        """Raise WrongArgument if ``only`` selects no source of the file with this number."""
        if not self.only or any(store.iterate(Selection(file, self.kind, self.only))):
            return
        texts: dict[str, None] = {}
        for source in islice(store.iterate(Selection(file, self.kind)), _MAX_COMPARED):
            texts |= dict.fromkeys((host_of(source.url), source.name or "", *source.tags))
        spellings = {text.casefold(): text for text in texts}
        near = difflib.get_close_matches(self.only.casefold(), spellings, n=3)
        hint = f"; did you mean {' or '.join(repr(spellings[text]) for text in near)}?"
        raise WrongArgument(
            f"{self.sources_file}: no {self.kind} source has {self.only!r} in its URL, name or tags"
            f"{hint if near else ''}"
        )

    def first_request(self, source: Source, url: str) -> Request:
        """Return the first request of a visit; ``url`` is the current address of the source."""
        return self.request(source, url, self.accept, self.readable)

    def request(
        self,
        source: Source,
        url: str,
        accept: str,
        readable: Callable[[str], bool],
        **arguments: object,
    ) -> Request:
        """Return a request for a document of a source.

        ``readable`` takes a Content-Type, and returns True if the body is to be downloaded.
        ``arguments`` are further keyword arguments of the callback.
        """
        request = Request(
            url,
            callback=self.parse,
            headers={"Accept": accept},
            cb_kwargs={"source": source, **arguments},
            dont_filter=True,
        )
        # A source has validators; an HTTP cache of the project would answer with an old copy (R7).
        request.meta["dont_cache"] = True
        set_visit(request, Visit(source, readable))
        return request

    async def read(self, document: Document) -> Feed:
        """Return the feed or the links in a document, which another process reads (decision 34).

        Raises NotAFeed, also if reading costs too much, and StillDue if the crawl ends meanwhile.
        """
        return await Crawl.of(self.crawler).reader.read(document)

    @staticmethod
    def unread(response: Response) -> str | None:
        """Return the Content-Type of a body that was not downloaded; None if it was."""
        visit = visit_of(response.request) if response.request else None
        return visit.unread if visit else None
