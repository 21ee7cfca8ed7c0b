"""The answers of every gate in force about a URL: a probe stops before the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.crawl.blocklist import BlocklistCache
from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.robots import RobotsCache
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.exceptions import Denied, RequestDeferred, StillDue
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import delay_after
from walsh_scrapy.policy.urls import origin_of, robots_url, wire_url
from walsh_scrapy.sources.source import Source
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.mayfetch.answer import Answer, find_url_problem, robots_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping

    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.crawl import Crawl
    from walsh_scrapy.policy.robots.copy import RobotsFile


class Passed(IgnoreRequest):
    """A probe has passed all gates, and is not fetched."""


class StopProbes(Component):
    """The last middleware before PacingMiddleware: no probe begins an exchange with a host.

    A denial in this crawl is an answer to the operator, so it is not recorded.
    """

    def __init__(self, crawl: Crawl) -> None:
        crawl.denials.is_recording = False

    async def process_request(self, request: Request) -> None:
        """Raise Passed unless the request is one that a gate makes for itself."""
        if rank_of(request) is Rank.TARGET:
            raise Passed


class MayfetchSpider(DeclaringSpider):
    """Sends a probe for each URL, and adds its outcome to ``outcomes``; None if it passed.

    ``sources`` makes ScopeMiddleware take the URLs for declared targets.
    """

    name = "mayfetch"

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Add ``StopProbes`` to the middlewares of the project."""
        super().update_settings(settings)
        order = Gate.PACING.order - 1
        settings.set_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", StopProbes, order)

    def __init__(
        self,
        urls: Iterable[str] = (),
        outcomes: MutableMapping[str, BaseException | None] | None = None,
        **arguments: Any,  # noqa: ANN401 - those of every spider
    ) -> None:
        super().__init__(**arguments)
        self._outcomes = {} if outcomes is None else outcomes
        self._urls = {url: wire_url(url) for url in urls}
        self.sources = tuple(map(Source, self._urls.values()))
        self.force = True  # a source that is not due yet may be fetched all the same

    async def start(self) -> AsyncIterator[Any]:
        """Make the probes."""
        for url, sent in self._urls.items():
            yield Request(
                sent,
                callback=self._answered,
                errback=self._ended,
                cb_kwargs={"url": url},
                dont_filter=True,
            )

    def _answered(self, _: object, url: str) -> None:
        """Note that a middleware has answered for the site, such as a cache of the project."""
        self._outcomes[url] = None

    def _ended(self, failure: Failure) -> None:
        error = failure.value
        url = failure.request.cb_kwargs["url"]  # type: ignore[attr-defined] # Scrapy sets it
        self._outcomes[url] = None if isinstance(error, Passed) else error


class Explainer:
    """Answers from the state, and from the outcomes of probes.

    ``offline`` is True if there are no probes, so the gates of a project are not called. Else a
    blocklist that is out of date could not be fetched, and a crawl would use it too.
    """

    def __init__(
        self, context: Context, outcomes: Mapping[str, BaseException | None], *, offline: bool
    ) -> None:
        self._context = context
        self._outcomes = outcomes
        self._list = BlocklistCache(context)
        self._files = RobotsCache(context)
        self._needs_list = self._list.is_due and offline
        self._remedy = " (call it without --offline to fetch one)" if offline else ""

    def explain(self, url: str) -> Answer:
        """Return the answer of the gates about a URL now."""
        now, options = self._context.clock.now(), self._context.options
        host = self._context.host(url)
        file = self._files.find(origin_of(url), url)
        allowed, gate, why, opens_at = self._decide(url, file, now)
        times = self._context.state.hosts.find(host).times
        least = max(options.min_interval, self._context.project_delays.delay_of(host))
        delay = times.delay_with(delay_after(least, file.interval(now) if file else 0.0))
        ready_at = max(times.ready_at(delay), opens_at, now)
        is_shown = file is not None and gate in (None, "robots")
        return Answer(
            url=url,
            bot=options.ua_token,
            allowed=allowed,
            gate=gate,
            reason=why,
            allowed_from=ready_at if allowed and opens_at > now else None,
            robots=robots_answer(file, url, options.ua_token, now) if file and is_shown else None,
            blocklist=self._blocklist(url),
            host=host,
            delay=delay,
            hold_until=times.hold_until if times.hold_until > now else None,
            next_request_at=ready_at,
        )

    def _decide(
        self, url: str, file: RobotsFile | None, now: float
    ) -> tuple[bool | None, str | None, str, float]:
        """Return whether a URL is allowed, the gate that keeps it back, why, and the end."""
        if wrong := find_url_problem(url):
            return None, "url", wrong, 0.0
        if self._list.blocks(url):
            return False, "blocklist", self._blocklist(url), 0.0
        if self._needs_list:
            return None, "blocklist", self._blocklist(url), 0.0
        error = self._outcomes.get(url)
        if isinstance(error, Denied) and error.gate != "robots":
            return False, error.gate, error.reason, 0.0
        is_deferred = isinstance(error, RequestDeferred)
        if error is not None and not isinstance(error, Denied) and not is_deferred:
            why = reason_of(error, url)
            return False if isinstance(error, IgnoreRequest) else None, "project", why, 0.0
        if file is None and isinstance(error, Denied):
            return False, "robots", error.reason, 0.0
        if file is None:
            reason = f": {error}" if is_deferred else self._remedy
            return None, "robots", f"no current copy of {robots_url(url)}{reason}", 0.0
        verdict = file.rules.verdict(url)
        if not file.allows(url):
            return None if file.is_deferred else False, "robots", file.why(verdict), 0.0
        opens_at = now + file.closed_for(now)
        if isinstance(error, RequestDeferred) and not isinstance(error, StillDue):
            until = max(opens_at, error.until)
            return True, None, f"from {format_moment(until)}: {error}", until
        return True, None, file.why(verdict), opens_at

    def _blocklist(self, url: str) -> str:
        if not self._list.has_list:
            return "this bot has no blocklist"
        if entry := self._list.blocks(url):
            return entry.why
        if not self._list.is_due:
            return "not listed"
        return (
            f"the copy of the list is out of date{self._remedy}"
            if self._needs_list
            else "not in the last copy of the list"
        )
