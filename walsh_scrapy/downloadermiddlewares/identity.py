"""R1: the last hand on every request's headers leaves exactly one name, and nothing personal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.httpauth import HttpAuthMiddleware
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware

from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.startup import check_floor, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

#: What would tell one visit from another, or carry a right that nobody gave us (decision 16).
NEVER_SENT = ("Cookie", "Cookie2", "Referer", "Authorization")


class IdentityMiddleware:
    """Sets the User-Agent whatever a spider, a setting or the command line says (order 860)."""

    def __init__(self, user_agent: str) -> None:
        self._user_agent = user_agent.encode("ascii")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Speak as the crawl's own identity."""
        check_floor(crawler, _floor)
        return cls(Crawl.of(crawler).options.user_agent)

    async def process_request(self, request: Request) -> None:
        """Put the headers right."""
        request.headers["User-Agent"] = self._user_agent
        for name in NEVER_SENT:
            request.headers.pop(name, None)


def _floor(settings: BaseSettings) -> None:
    require_order(
        settings,
        (CookiesMiddleware, HttpAuthMiddleware, UserAgentMiddleware),
        (IdentityMiddleware,),
        "it puts right what they set; set the order of IdentityMiddleware to 860",
    )
