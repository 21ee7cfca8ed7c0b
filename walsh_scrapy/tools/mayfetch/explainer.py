"""What each gate says of a URL, and why: from the state, once a spider sent it through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.crawl.blocklist import BlocklistCache
from walsh_scrapy.crawl.robots import RobotsCache
from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import delay_after
from walsh_scrapy.policy.robots.copy import RobotsCopy, RobotsFile
from walsh_scrapy.policy.urls import origin_of, wire_url
from walsh_scrapy.sources.source import Source
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.command import NO_OUTPUT
from walsh_scrapy.tools.mayfetch.answer import NO_URL, MayFetch, is_web, robots_answer, scheme_hint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

    from walsh_scrapy.crawl.context import Context


class Explainer:
    """Answers from the state, without a request.

    ``robots`` is the body of a robots.txt to use for every host instead of its own. ``asked`` is
    True if a spider has just sent the URLs through the gates. Then a blocklist that is out of date
    could not be fetched, and a crawl would use it too.
    """

    def __init__(self, context: Context, robots: bytes | None, *, asked: bool) -> None:
        self._context = context
        self._list = BlocklistCache(context)
        self._files = RobotsCache(context)
        self._robots = robots
        self._needs_list = self._list.is_due and robots is None and not asked

    def explain(self, url: str) -> MayFetch:
        """Return what each gate says of ``url`` now."""
        now = self._context.clock.now()
        origin = origin_of(url)
        file = self._file(origin, url, now)
        robots, token = None, self._context.options.ua_token
        if file is not None:
            robots = robots_answer(file, url, token, now, given=self._robots is not None)
        allowed, gate, why = self._decide(url, origin, file)
        host = self._context.host(url)
        times = self._context.state.hosts.find(host).times
        asked = file.interval(now) if file else 0.0
        delay = times.delay_with(delay_after(self._context.options.min_interval, asked))
        opens_in = file.closed_for(now) if file else 0.0
        return MayFetch(
            url=url,
            allowed=allowed,
            gate=gate,
            why=why,
            blocklist=self._blocklist(url),
            robots=None if gate == "blocklist" else robots,
            host=host,
            delay=delay,
            hold_until=times.hold_until if times.hold_until > now else None,
            next_request_at=max(times.ready_at(delay), now + opens_in, now),
        )

    def _file(self, origin: str, url: str, now: float) -> RobotsFile | None:
        if self._robots is None:
            return self._files.find(origin, url)
        options = self._context.options
        copy = RobotsCopy(now, 200, self._robots)
        return RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)

    def _decide(
        self, url: str, origin: str, file: RobotsFile | None
    ) -> tuple[bool | None, str | None, str]:
        """Return whether the URL is allowed, the gate that does not allow it, and the reason."""
        if not is_web(url):
            return None, "url", f"{NO_URL}{scheme_hint(url)}"
        if self._list.blocks(url):
            return False, "blocklist", self._blocklist(url)
        if self._needs_list:
            return None, "blocklist", self._blocklist(url)
        if file is None:
            return None, "robots", f"there is no current copy of the robots.txt of {origin}"
        verdict = file.rules.verdict(url)
        return verdict.allowed, None if verdict.allowed else "robots", file.why(verdict)

    def _blocklist(self, url: str) -> str:
        if not self._list.has_list:
            return "this bot has no blocklist"
        if entry := self._list.blocks(url):
            return entry.why
        if not self._list.is_due:
            return "not listed"
        if self._needs_list:
            return "the copy of the list is out of date"
        return "not checked" if self._robots is not None else "not in the last copy of the list"


class StopBeforeFetch:
    """A downloader middleware, right after robots.txt (100), that stops every target."""

    async def process_request(self, request: Request) -> None:
        """Raise IgnoreRequest unless the request is one that a gate makes for itself."""
        if rank_of(request) is Rank.TARGET:
            raise IgnoreRequest("it has passed the gates, and is not fetched")


class MayfetchSpider(DeclaringSpider):
    """Sends each URL through blocklist and robots.txt, so that the state has what they need.

    ``sources`` makes the scope gate take the URLs for declared targets.
    """

    name = "mayfetch"
    custom_settings = NO_OUTPUT

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Add ``StopBeforeFetch`` to the middlewares of the project."""
        super().update_settings(settings)
        settings.set_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", StopBeforeFetch, 110)

    def __init__(self, urls: Iterable[str] = (), **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.sources = tuple(Source(Request(wire_url(url)).url) for url in urls)

    async def start(self) -> AsyncIterator[Any]:
        """Request each URL."""
        for source in self.sources:
            yield Request(source.url, errback=self._stopped, dont_filter=True)

    def _stopped(self, failure: Failure) -> None:
        """Do nothing: the answers are read from the state when the spider has closed."""
