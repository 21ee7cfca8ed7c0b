"""The API as users write it. `mypy` checks it together with the package."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, assert_type

import walsh_scrapy
from walsh_scrapy import Addon, Denied, RequestDeferred, SourcesSpider
from walsh_scrapy.testing import Reply, Site, assert_polite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.settings import Settings
    from twisted.python.failure import Failure

    from walsh_scrapy import Nothing  # type: ignore[attr-defined]  # noqa: F401 - no such name
    from walsh_scrapy.testing import CrawlResult, LoopbackWeb

assert_type(walsh_scrapy.__version__, str)


class OwnAddon(Addon):
    """Sets what each project of an operator needs."""

    def update_settings(self, settings: Settings) -> None:
        super().update_settings(settings)
        settings.set("CLOSESPIDER_TIMEOUT", 3600, priority="addon")


ADDONS = {OwnAddon: 500}


class OfficeHours:
    """A gate of one's own."""

    async def process_request(self, request: Request) -> None:
        now = datetime.now().astimezone()
        if request.method != "GET":
            raise Denied("office", "the office answers GET only")
        if now.hour < 9:
            raise RequestDeferred(now.replace(hour=9).timestamp(), "the office opens at 9")


class PagesSpider(SourcesSpider):
    """A spider over declared sources."""

    name = "pages"
    kind = "feed"
    accept = "text/html"

    def parse(self, response: Response, source: Any) -> Iterator[dict[str, str]]:
        yield {"url": response.url, "source": source.url}

    def failed(self, failure: Failure) -> None:
        match failure.value:
            case Denied() as denied:
                assert_type((denied.gate, denied.reason), tuple[str, str])
            case RequestDeferred() as deferred:
                assert_type(deferred.until, float)


def test_pages(
    walsh_loopback_web: Callable[..., LoopbackWeb],
    walsh_crawl: Callable[..., CrawlResult],
    tmp_path: Path,
) -> None:
    web = walsh_loopback_web(Site("blog.example", "", {"/": Reply("a page")}))
    result = walsh_crawl(web, "pages", sources=["http://blog.example/"], folder=tmp_path)
    assert_polite(result.log, serial=False)
    assert result.exit_code == 0
