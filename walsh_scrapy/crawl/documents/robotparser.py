"""The signal ``robots_parsed`` of Scrapy, and the parser that its listeners get."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from scrapy import signals
from scrapy.exceptions import DontCloseSpider
from scrapy.robotstxt import RobotParser
from scrapy.utils.python import to_unicode

from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.options import Options
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.robotstxt import RobotsTxt
from walsh_scrapy.policy.useragents import NoBotName, token_in

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.policy.robots.copy import RobotsFile
    from walsh_scrapy.policy.robots.robotstxt import Rules

    Start: TypeAlias = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class RobotsParser(RobotParser):
    """Answers by one robots.txt: for this bot by the rules that it obeys, for another by its group.

    ``token`` is ``WALSH_UA_TOKEN``. A user agent that contains it is this bot, in whatever case.
    """

    def __init__(self, body: bytes, token: str, rules: Rules | None = None) -> None:
        self._robotstxt = RobotsTxt.parse(body)
        self._token = token
        self._rules = rules or self._robotstxt.rules_for(token)

    @classmethod
    def from_crawler(cls, crawler: Crawler, robotstxt_body: bytes) -> Self:
        """Read a robots.txt for a crawl."""
        return cls(robotstxt_body, Options.from_settings(crawler.settings).ua_token)

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        """Return True if a user agent may request a URL."""
        return self._rules_for(user_agent).verdict(to_unicode(url)).allowed

    def crawl_delay(self, user_agent: str | bytes) -> float | None:
        """Return the Crawl-delay of a user agent in seconds, or None."""
        return self._rules_for(user_agent).crawl_delay

    def _rules_for(self, user_agent: str | bytes) -> Rules:
        name = to_unicode(user_agent, errors="replace")
        if self._token.lower() in name.lower():
            return self._rules
        with suppress(NoBotName):
            name = token_in(name)
        return self._robotstxt.rules_for(name)


class RobotsSignal:
    """Sends ``robots_parsed`` once per origin, from a task of its own: no request waits for it.

    The spider stays open until the listeners are done.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._signals = crawl.crawler.signals
        self._token = crawl.context.options.ua_token
        self._engine = crawl.engine
        self._sent: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._signals.connect(self.spider_idle, signal=signals.spider_idle)

    def send(self, origin: str, file: RobotsFile, request: Request) -> None:
        """Send the signal for the robots.txt that a request for a page needs, if it is known."""
        is_known = file.copy.failing_since is None
        if not is_known or origin in self._sent or rank_of(request) is not Rank.TARGET:
            return
        self._sent.add(origin)
        parser = RobotsParser(file.copy.body or b"", self._token, file.rules)
        task = self._engine.start(self._send(parser, request))
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def spider_idle(self) -> None:
        """Keep the spider open while a listener runs."""
        if self._tasks:
            raise DontCloseSpider

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._engine.take_requests()

    async def _send(self, parser: RobotsParser, request: Request) -> None:
        await self._signals.send_catch_log_async(
            signal=signals.robots_parsed, robotparser=parser, request=request
        )
