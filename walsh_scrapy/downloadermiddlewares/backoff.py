"""R5: after a 429 or 503 the whole host is on hold, and the request is retried later."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from scrapy import signals
from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.python import global_object_name
from scrapy.utils.response import response_status_message

from walsh_scrapy.crawl.context import Retry
from walsh_scrapy.crawl.failures import NEVER_REACHED, reason_of
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.crawl.ticket import NOT_REACHED, note, rank_of, subject_of, ticket_of
from walsh_scrapy.exceptions import NotReached, TooSlow, Unreachable
from walsh_scrapy.policy.backoff import (
    NextStep,
    is_refusal,
    max_retries_after_silence,
    next_step,
)
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import Streaks
from walsh_scrapy.policy.urls import host_of, is_web
from walsh_scrapy.policy.wording import count_of, format_seconds

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.crawl.parts import Crawl

logger = logging.getLogger(__name__)


class BackoffMiddleware(Component):
    """Retries requests that got a 429 or 503, at most ``WALSH_MAX_RETRIES`` times (order 549).

    After ``WALSH_MAX_RETRIES`` + 1 refusals in a row, whatever their URLs, the remaining requests
    of the host are deferred to a later run. They do not count as failures. The same happens in a
    declared crawl if a target and the request before it timed out, or if the host answered 403 to
    three URLs in a row.

    PacingMiddleware does the waiting, so the crawl does not start without it.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._context = crawl.context
        self._stats = crawl.stats
        self._queue = crawl.queue
        self._access = crawl.access
        self._hosts = crawl.hosts
        self._is_own = crawl.kind is Kind.OWN
        self._streaks = Streaks(only_refusals=self._is_own)
        self._project = ProjectRetries(crawl.crawler)
        self._has_warned = False  # the log says that the project's choice of retries is ignored
        crawl.fetcher.register_retries(self)
        crawl.crawler.signals.connect(self.response_downloaded, signals.response_downloaded)

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Record the status of a response.

        A middleware nearer to the wire may hide the response from ``process_response``.
        """
        if not is_web(request.url):
            return
        self._streaks.record_answer(
            host_of(request.url), request.url, response.status, rank_of(request)
        )

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Retry a page after a 429 or 503. ``Fetcher.send`` retries documents.

        Raises HostDeferred after a 502 or 504 that a proxy may have made and that is the only kind
        of answer it gave: the source is still due.
        """
        _forget_not_reached(request)
        # A cached 429 or 503 says nothing about now.
        is_page = rank_of(request) is Rank.TARGET and is_web(request.url)
        if not is_page or "cached" in response.flags:
            return response
        attempt = self.record_outcome(request, response)
        if attempt is not None:
            return _build_retry(request, attempt)
        if self._is_own:
            return response
        is_undecided = self._context.connectivity.is_doubtful(host_of(request.url))
        if ticket_of(request).from_gateway and is_undecided and subject_of(request) is not None:
            self._context.deferred_hosts.check(request.url)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Record that a page got no response. Ask a proxy once more that may reach no host."""
        _forget_not_reached(request)
        is_page = rank_of(request) is Rank.TARGET and is_web(request.url)
        if is_page and ticket_of(request).reached:
            if isinstance(exception, NotReached) and not self._is_own:
                return _build_retry(request, ticket_of(request).attempt)
            self.record_outcome(request, exception)
        return None

    def record_outcome(self, request: Request, outcome: Response | Exception) -> int | None:
        """Record the outcome of a request, and return the number of its next retry, or None.

        Every request is retried after a 429 or 503. A request for robots.txt is also retried after
        any other server error, and if a reachable host sent no response. The caller sends the
        retry. After too many failures in a row, the other requests of the host are deferred here.
        """
        host = host_of(request.url)
        rank = rank_of(request)
        retries = self._context.options.max_retries
        if isinstance(outcome, Exception):
            is_proxys = self._is_own and request.meta.get("proxy")
            is_projects = self._is_own and isinstance(outcome, NEVER_REACHED)
            if isinstance(outcome, IgnoreRequest | Unreachable) or is_proxys or is_projects:
                return None
            is_slow = isinstance(outcome, TooSlow)
            timed_out = isinstance(outcome, DownloadTimeoutError)
            self._streaks.record_no_response(host, rank, timed_out=timed_out, is_slow=is_slow)
            self._defer_host_after_failures(request)
            if rank is not Rank.ROBOTS:
                return None
            retries = max_retries_after_silence(retries, timed_out=timed_out, is_slow=is_slow)
            failure = f"failed ({reason_of(outcome, request.url)})"
            return self._handle_failure(
                request, failure, retries, global_object_name(type(outcome))
            )
        if is_refusal(outcome.status, for_robots=rank is Rank.ROBOTS):
            failure = f"answered {outcome.status}"
            chosen = self._find_project_choice(request, outcome.status)
            reason = response_status_message(outcome.status)
            return self._handle_failure(request, failure, retries, reason, outcome.status, chosen)
        if ticket_of(request).from_gateway and rank is Rank.TARGET:
            failure = f"answered {outcome.status}"
            self._log_hold(request, failure, ticket_of(request).hold, is_retried=False)
            self._defer_host(request, f"it {failure}")
            return None
        self._defer_host_after_failures(request)
        return None

    def _find_project_choice(self, request: Request, status: int) -> ChosenRetries | None:
        """Return the retries that the project's own settings ask for after a 429 or 503.

        None if the project sets none, and for robots.txt and the blocklist. Also None under the
        Walsh-Research identity, which always retries; the first ignored choice is logged.
        """
        chosen = self._project.find(request, status) if rank_of(request) is Rank.TARGET else None
        if chosen is None or not self._context.options.is_walsh_research:
            return chosen
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s is ignored: under the Walsh-Research identity a request that got a 429 or 503 "
                "is always retried, up to %d times (WALSH_MAX_RETRIES)",
                chosen.setting,
                self._context.options.max_retries,
            )
        return None

    def _handle_failure(
        self,
        request: Request,
        failure: str,
        max_retries: int,
        reason: str,
        status: int | None = None,
        chosen: ChosenRetries | None = None,
    ) -> int | None:
        """Log and count a failure, and return the number of the next retry, or None to give up.

        ``failure`` is a verb phrase for the log, such as "answered 429"; ``reason`` is Scrapy's
        name of the failure in the stats. ``status`` is 429 or 503 after a refusal.
        """
        rank = rank_of(request)
        host = host_of(request.url)
        ticket = ticket_of(request)
        attempt = ticket.attempt + 1
        step = next_step(
            attempt,
            max_retries,
            chosen and chosen.retries,
            refusals=self._streaks.refusals(host),
            refusals_of_rank=self._streaks.refusals(host, rank),
            for_robots=rank is Rank.ROBOTS,
        )
        if step is NextStep.RETRY:
            self._record_retry(
                request, failure, attempt, chosen.retries if chosen else max_retries, reason
            )
            return attempt
        if chosen and step is NextStep.STOP:
            failure = f"{failure}; it is not retried ({chosen.setting})"
            self._log_hold(request, failure, ticket.hold, is_retried=False)
            if chosen.retries:
                self._stats.inc_value("retry/max_reached")
            return None
        self._defer_host_after_failures(request, gave_up=True, refused=status)
        if step is NextStep.DEFER:  # the retry is deferred with the other requests
            logger.debug("%s %s; deferred with the rest of its host", request.url, failure)
            return ticket.attempt
        # INFO for robots.txt: RobotsMiddleware warns that it is unreachable.
        level = logging.INFO if rank is Rank.ROBOTS else logging.WARNING
        tries = count_of(attempt, "try", "tries")
        logger.log(level, "%s %s; giving up after %s", request.url, failure, tries)
        self._stats.inc_value("walsh/backoff/gave_up")
        self._stats.inc_value("retry/max_reached")
        return None

    def _record_retry(
        self, request: Request, failure: str, attempt: int, retries: int, reason: str
    ) -> None:
        """Log and count a retry, and keep it for the display if it may come in this run."""
        hold = ticket_of(request).hold
        self._log_hold(request, failure, hold)
        if hold <= self._context.options.max_wait:
            now = self._context.clock.monotonic()
            for_blocklist = ticket_of(request).serves_blocklist
            retry = Retry(attempt + 1, retries + 1, now + hold, failure, for_blocklist)
            self._context.retries[self._context.host(request.url)] = retry
            if for_blocklist:  # every other request waits for the blocklist
                logger.info("waiting for the blocklist: %s", retry.sentence(now))
        self._stats.inc_value("walsh/backoff/retried")
        self._stats.inc_value("retry/count")
        self._stats.inc_value(f"retry/reason_count/{reason}")

    def _log_hold(
        self, request: Request, failure: str, seconds: float, *, is_retried: bool = True
    ) -> None:
        """Log that a host is on hold, and how many of its requests wait or are deferred.

        ``DenialsMiddleware`` then does not log the deferred requests again.
        """
        host = self._context.host(request.url)
        waiting = self._queue.frontier.count(host)
        effect = ""
        if seconds > self._context.options.max_wait and rank_of(request) is Rank.TARGET:
            if deferred := waiting + is_retried:
                self._access.logged_hosts.add(host)
                effect = f": {count_of(deferred, 'request')} deferred to a later run"
        elif waiting:
            effect = f", with {count_of(waiting, 'more request')} waiting"
        hold = format_seconds(seconds)
        logger.info("%s %s; %s is on hold for %s%s", request.url, failure, host, hold, effect)

    def _defer_host_after_failures(
        self, request: Request, *, gave_up: bool = False, refused: int | None = None
    ) -> None:
        """Defer the remaining requests of a host if it has failed too often in a row.

        They are handed out at once, because a deferred request need not wait for the hold.
        """
        host = host_of(request.url)
        if reason := self._streaks.reason(host, rank_of(request), gave_up=gave_up):
            self._defer_host(request, reason, refused)

    def _defer_host(self, request: Request, reason: str, refused: int | None = None) -> None:
        """Defer a host; ``refused`` is not recorded if the proxy may have answered so itself."""
        host = self._context.host(request.url)
        if self._context.connectivity.is_doubtful(host_of(request.url)):
            refused = None
        until = self._context.clock.now() + ticket_of(request).hold
        self._context.deferred_hosts.add(host_of(request.url), reason, until, refused)
        self._hosts.give_up(host)
        self._queue.recheck(host)


class ChosenRetries(NamedTuple):
    """The number of retries after a 429 or 503 that a project has chosen, and where."""

    retries: int
    setting: str  #: the name of the setting, or the key of ``Request.meta``


class ProjectRetries:
    """Reads from Scrapy's own settings and ``meta`` keys how often to retry after a 429 or 503.

    A status that the project's callbacks handle is not retried, unless the request has
    ``max_retry_times``. Scrapy marks requests of its media pipelines so, which have no callback.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler  # its spider is made later
        settings = crawler.settings
        self._is_enabled = settings.getbool("RETRY_ENABLED")
        is_set = (settings.getpriority("RETRY_TIMES") or 0) > 0
        has_ours = settings.get("WALSH_MAX_RETRIES") is not None
        self._times = settings.getint("RETRY_TIMES") if is_set and not has_ours else None
        self._allows_all = settings.getbool("HTTPERROR_ALLOW_ALL")
        self._allowed = settings.getlist("HTTPERROR_ALLOWED_CODES")

    def find(self, request: Request, status: int) -> ChosenRetries | None:
        """Return the chosen number of retries after a status, or None if nothing is chosen."""
        if not self._is_enabled:
            return ChosenRetries(0, "RETRY_ENABLED = False")
        if request.meta.get("dont_retry"):
            return ChosenRetries(0, "dont_retry")
        times = request.meta.get("max_retry_times")
        if isinstance(times, int | float):
            return ChosenRetries(int(times), "max_retry_times")
        if name := self._find_handling_setting(request, status):
            return ChosenRetries(0, name)
        return None if self._times is None else ChosenRetries(self._times, "RETRY_TIMES")

    def _find_handling_setting(self, request: Request, status: int) -> str | None:
        """Return the setting that makes HttpErrorMiddleware pass a status on to the spider."""
        meta = request.meta
        spider = self._crawler.spider
        has_callback = request.callback is not NO_CALLBACK
        if has_callback and meta.get("handle_httpstatus_all"):
            return "handle_httpstatus_all"
        name = "handle_httpstatus_list"
        if name in meta:
            return name if _contains(meta[name], status) else None
        if not has_callback:
            return None
        if self._allows_all:
            return "HTTPERROR_ALLOW_ALL"
        if hasattr(spider, name):
            return name if _contains(getattr(spider, name), status) else None
        return "HTTPERROR_ALLOWED_CODES" if _contains(self._allowed, status) else None


def _contains(statuses: object, status: int) -> bool:
    """Return True if a status is in a project's list, which may be a value of any type."""
    return isinstance(statuses, Collection) and status in statuses


def _forget_not_reached(request: Request) -> None:
    """Remove our mark for RetryMiddleware, which is no choice of the project."""
    if request.meta.get("dont_retry") == NOT_REACHED:
        del request.meta["dont_retry"]


def _build_retry(request: Request, attempt: int) -> Request:
    """Return a copy of a request for a page, for its next attempt."""
    retry = request.replace(dont_filter=True)
    note(retry, attempt=attempt)
    return retry
