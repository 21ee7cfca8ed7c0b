"""The base of this project's spiders: they request declared sources, and nothing else (R6)."""

from __future__ import annotations

import difflib
import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Final

from scrapy import Request, Spider

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import StateUnavailable, refuse_to_start
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.runtime.requests import Visit, set_visit, visit_of
from walsh_scrapy.runtime.startup import check_gates
from walsh_scrapy.sources import Kind, Source, SourcesError, in_shard, load_sources, parse_shard
from walsh_scrapy.visits.due import due_sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.metadata.document import Document


#: Spider arguments of every SourcesSpider; docs/settings.md describes them.
ARGUMENTS: Final = ("sources", "force", "only", "shard")


class DeclaringSpider(Spider):
    """A spider with declared sources, which the gates read from it."""

    sources: tuple[Source, ...] = ()  #: the scope gate allows requests for these only
    declared: tuple[Source, ...] = ()  #: all of the file, also those of other spiders
    force: bool = False  #: also visit sources that are not due yet (decision 20)

    def alternative_to(self, request: Request) -> Request | None:  # noqa: ARG002 - for subclasses
        """Return the request to make instead of one for a page that robots.txt denies, or None."""
        return None


class SourcesSpider(DeclaringSpider):
    """A spider over the sources of one kind.

    Arguments (``-a NAME=VALUE``): ``sources`` names another file than ``WALSH_SOURCES``;
    ``force=1`` also visits sources that are not due yet; ``shard=I/N`` selects part I of N of the
    hosts; ``only=TEXT`` selects the sources whose URL, name or tags contain TEXT. A subclass takes
    others by its ``__init__``, or by a class attribute of the same name. Names that begin with an
    underscore are Scrapyd's own. Any other argument is refused, because it is mistyped.
    """

    kind: ClassVar[Kind]
    accept: ClassVar[str] = "*/*"

    @staticmethod
    def readable(content_type: str) -> bool:  # noqa: ARG004 - for subclasses
        """Return True if a body of this Content-Type is to be downloaded."""
        return True

    def __init__(self, *args: str, **arguments: str) -> None:
        super().__init__(*args, **arguments)
        self.force = str(arguments.get("force", "0")).lower() in ("1", "true", "yes", "on")
        self.sources = ()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: str, **arguments: str) -> Self:
        """Read the sources; a wrong file or argument ends the process with one line."""
        spider = super().from_crawler(crawler, *args, **arguments)
        only = arguments.get("only", "")
        try:
            cls._check_arguments(arguments)
            check_gates(crawler.settings)
            file = arguments.get("sources") or Options.from_settings(crawler.settings).sources
            spider.declared = declared = load_sources(file)
            spider.sources = _chosen(
                declared,
                cls.kind,
                only,
                arguments.get("shard", "1/1"),
            )
            if only and not _chosen(declared, cls.kind, only, "1/1"):
                spider.logger.warning("%s: no source of kind %s has %r", file, cls.kind, only)
        except (BadSetting, SourcesError) as error:
            refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
        return spider

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
                raise BadSetting(f"{name} is no argument of the spider {cls.name}: {known}{hint}")

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first request of each source that is due."""
        crawl = Crawl.of(self.crawler)
        try:
            due = due_sources(
                crawl.context, crawl.stats, crawl.pauses, self.sources, force=self.force
            )
        except StateUnavailable:  # which ends the crawl, and is logged
            return
        for source, url in due:
            yield self.first_request(source, url)

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

    def document(
        self,
        response: Response,  # noqa: ARG002 - for subclasses
        source: Source,  # noqa: ARG002
    ) -> Document | None:
        """Return the document in a response, for ``runtime.reading.read``; None if there is none.

        If it is costly, it is read in another process before the callback begins (decision 34).
        This needs a callback that is a generator, and a reader that can be imported by name.
        """
        return None

    @staticmethod
    def unread(response: Response) -> str | None:
        """Return the Content-Type of a body that was not downloaded; None if it was."""
        visit = visit_of(response.request) if response.request else None
        return visit.unread if visit else None


def _chosen(sources: tuple[Source, ...], kind: Kind, only: str, shard: str) -> tuple[Source, ...]:
    part, parts = parse_shard(shard)
    wanted = only.casefold()
    return tuple(
        source
        for source in sources
        if source.kind == kind
        and any(wanted in text.casefold() for text in (source.url, source.name or "", *source.tags))
        and in_shard(host_of(source.url), part, parts)
    )
