"""Whether a project may fetch a URL: probes pass all middlewares, and are never sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.crawl.documents.publishedlist import BlocklistCache
from walsh_scrapy.crawl.documents.robotscopies import RobotsCache
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.exceptions import Denied, RequestDeferred, StillDue
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import delay_after
from walsh_scrapy.policy.urls import origin_of, robots_url, wire_url
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.tools.mayfetch import Answer, build_robots_answer, find_url_problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping

    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.policy.robots.copy import RobotsFile


class ProbePassed(IgnoreRequest):
    """A probe has passed all middlewares, and must not be sent."""


class StopProbes(Component):
    """The last middleware before PacingMiddleware, which stops the probes.

    Denials are not recorded, because a probe is only a question of the operator.
    """

    def __init__(self, crawl: Crawl) -> None:
        crawl.denials.is_recording = False

    async def process_request(self, request: Request) -> None:
        """Raise ProbePassed, except for robots.txt and the blocklist."""
        if rank_of(request) is Rank.TARGET:
            raise ProbePassed


class MayfetchSpider(DeclaringSpider):
    """Makes a probe for each URL, and stores the error in ``outcomes``, or None if it passed.

    The attribute ``sources`` makes ScopeMiddleware treat the URLs as declared.
    """

    name = "mayfetch"

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Add ``StopProbes`` to the middlewares of the project."""
        super().update_settings(settings)
        settings.set_in_component_priority_dict(
            "DOWNLOADER_MIDDLEWARES", StopProbes, Gate.PACING.order - 1
        )

    def __init__(
        self,
        urls: Iterable[str] = (),
        outcomes: MutableMapping[str, BaseException | None] | None = None,
        **arguments: Any,  # noqa: ANN401 - arguments of every spider
    ) -> None:
        super().__init__(**arguments)
        self._outcomes = {} if outcomes is None else outcomes
        self._urls = {url: wire_url(url) for url in urls}
        self.sources = tuple(map(Source, self._urls.values()))
        self.force = True  # because the answer does not depend on when the source is due

    async def start(self) -> AsyncIterator[Any]:
        """Make the probes."""
        for url, target in self._urls.items():
            yield Request(
                target,
                callback=self._record_pass,
                errback=self._record_error,
                cb_kwargs={"url": url},
                dont_filter=True,
            )

    def _record_pass(self, _: object, url: str) -> None:
        """Record a response, which only a middleware such as a cache of the project can give."""
        self._outcomes[url] = None

    def _record_error(self, failure: Failure) -> None:
        error = failure.value
        url = failure.request.cb_kwargs["url"]  # type: ignore[attr-defined] # Scrapy sets it
        self._outcomes[url] = None if isinstance(error, ProbePassed) else error


class _Decision(NamedTuple):
    """Whether a URL is allowed."""

    allowed: bool | None  #: None if it is undecided
    gate: str | None  #: the gate that denies the URL, or cannot decide
    reason: str
    opens_at: float = 0.0  #: the epoch second from which an allowed URL may be requested


class Explainer:
    """Answers from the state database and the outcomes of the probes.

    With ``offline`` there are no probes, and an outdated blocklist cannot decide. Without it, an
    outdated blocklist could not be fetched just now, and a crawl would use it as well.
    """

    def __init__(
        self, context: Context, outcomes: Mapping[str, BaseException | None], *, offline: bool
    ) -> None:
        self._context = context
        self._outcomes = outcomes
        self._blocklist_cache = BlocklistCache(context)
        self._robots_cache = RobotsCache(context)
        self._needs_blocklist = self._blocklist_cache.is_due and offline
        self._remedy = "; without --offline it would be fetched" if offline else ""

    def explain(self, url: str, now: float) -> Answer:
        """Return whether the project may fetch a URL at the epoch second ``now``."""
        options = self._context.options
        host = self._context.host(url)
        file = self._robots_cache.find(origin_of(url), url)
        decision = self._decide(url, file, now)
        times = self._context.state.hosts.find(host).times
        min_delay = max(options.min_interval, self._context.project_delays.delay_of(host))
        delay = times.delay_with(delay_after(min_delay, file.interval(now) if file else 0.0))
        ready_at = max(times.ready_at(delay), decision.opens_at, now)
        is_shown = file is not None and decision.gate in (None, "robots")
        return Answer(
            url=url,
            bot=options.ua_token,
            allowed=decision.allowed,
            gate=decision.gate,
            reason=decision.reason,
            allowed_from=ready_at if decision.allowed and decision.opens_at > now else None,
            robots=build_robots_answer(file, url, options.ua_token, now)
            if file and is_shown
            else None,
            blocklist=self._describe_blocklist(url),
            host=host,
            delay=delay,
            hold_until=times.hold_until if times.hold_until > now else None,
            next_request_at=ready_at,
        )

    def _decide(self, url: str, file: RobotsFile | None, now: float) -> _Decision:
        """Return whether a URL is allowed, by the blocklist, the probe and robots.txt."""
        if problem := find_url_problem(url):
            return _Decision(None, "url", problem)
        if self._blocklist_cache.blocks(url):
            return _Decision(False, "blocklist", self._describe_blocklist(url))
        if self._needs_blocklist:
            return _Decision(None, "blocklist", self._describe_blocklist(url))
        error = self._outcomes.get(url)
        if isinstance(error, Denied) and error.gate != "robots":
            return _Decision(False, error.gate, error.reason)
        is_deferred = isinstance(error, RequestDeferred)
        if error is not None and not isinstance(error, Denied) and not is_deferred:
            reason = reason_of(error, url)
            return _Decision(False if isinstance(error, IgnoreRequest) else None, "project", reason)
        if file is None and isinstance(error, Denied):
            return _Decision(False, "robots", error.reason)
        if file is None:
            cause = f": {error}" if is_deferred else self._remedy
            return _Decision(None, "robots", f"no current copy of {robots_url(url)}{cause}")
        verdict = file.rules.verdict(url)
        if not file.allows(url):
            return _Decision(None if file.is_deferred else False, "robots", file.why(verdict))
        opens_at = now + file.closed_for(now)
        if isinstance(error, RequestDeferred) and not isinstance(error, StillDue):
            until = max(opens_at, error.until)
            return _Decision(True, None, f"from {format_moment(until)}: {error}", until)
        return _Decision(True, None, file.why(verdict), opens_at)

    def _describe_blocklist(self, url: str) -> str:
        if not self._blocklist_cache.has_list:
            return "this bot has no blocklist"
        if entry := self._blocklist_cache.blocks(url):
            return entry.why
        if not self._blocklist_cache.is_due:
            return "not listed"
        return (
            f"the copy of the blocklist is out of date{self._remedy}"
            if self._needs_blocklist
            else "not in the last copy of the blocklist"
        )
