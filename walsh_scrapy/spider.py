"""What the spiders of this project have in common: they ask for declared sources, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from scrapy import Request, Spider
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from walsh_scrapy.addon import Addon
from walsh_scrapy.exceptions import refuse_to_start
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.runtime import meta
from walsh_scrapy.sources import Kind, Source, SourcesError, in_shard, load_sources, parse_shard
from walsh_scrapy.visits.due import agenda

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings


class SourcesSpider(Spider):
    """A spider over the sources of one kind.

    Arguments (``-a NAME=VALUE``): ``sources`` names another file than ``WALSH_SOURCES``;
    ``force=1`` asks for sources that are not due yet; ``shard=I/N`` takes part I of N of the
    hosts; ``only=TEXT`` the sources whose URL, name or tags hold TEXT. Others are accepted, since
    Scrapyd passes its own.
    """

    kind: ClassVar[Kind]
    accept: ClassVar[str] = "*/*"

    @staticmethod
    def readable(content_type: str) -> bool:  # noqa: ARG004 - what others judge by
        """Tell whether a body of this Content-Type is worth its bytes."""
        return True

    def __init__(self, *args: str, **arguments: str) -> None:
        super().__init__(*args, **arguments)
        self.force = str(arguments.get("force", "0")).lower() in ("1", "true", "yes", "on")
        self.sources: tuple[Source, ...] = ()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: str, **arguments: str) -> Self:
        """Read the sources; what is wrong with them ends the process with one line."""
        spider = super().from_crawler(crawler, *args, **arguments)
        file = arguments.get("sources") or crawler.settings.get("WALSH_SOURCES", "sources.toml")
        try:
            check_gates(crawler.settings)
            spider.sources = _chosen(
                load_sources(file),
                cls.kind,
                arguments.get("only", ""),
                arguments.get("shard", "1/1"),
            )
        except (BadSetting, SourcesError) as error:
            refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
        return spider

    async def start(self) -> AsyncIterator[Any]:
        """Ask once for each source that is due."""
        for source, url in agenda(self.crawler, self.sources, force=self.force):
            yield self.first_request(source, url)

    def first_request(self, source: Source, url: str) -> Request:
        """Return the request with which a visit of a source begins."""
        return self.request(source, url, self.accept, self.readable)

    def request(
        self, source: Source, url: str, accept: str, readable: Callable[[str], bool], **more: object
    ) -> Request:
        """Return a request for a document of a source; what is not ``readable`` comes bodiless.

        ``readable`` judges a Content-Type; ``more`` are further arguments of the callback.
        """
        return Request(
            url,
            callback=self.parse,
            headers={"Accept": accept},
            cb_kwargs={"source": source, **more},
            meta={meta.SOURCE: source, meta.READABLE: readable},
            dont_filter=True,
        )


def check_gates(settings: BaseSettings) -> None:
    """Raise BadSetting where nothing holds the gates in force: then nobody is asked anything."""
    addons = (load_object(path) for path in build_component_list(settings["ADDONS"]))
    if Addon not in addons or not Options.from_settings(settings).enabled:
        raise BadSetting(
            "the gates are switched off by ADDONS or WALSH_ENABLED, and nobody is asked anything "
            'without them; set ADDONS = {"walsh_scrapy.addon.Addon": 500}'
        )


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
