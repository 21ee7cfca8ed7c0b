"""R5: after 429 and 503 the whole host is on hold, and the request is retried later."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from scrapy import signals
from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest
from scrapy.utils.python import global_object_name
from scrapy.utils.response import response_status_message

from walsh_scrapy.crawl.context import Retry
from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.ticket import NOT_REACHED, note, rank_of, ticket_of
from walsh_scrapy.exceptions import TooSlow, Unreachable
from walsh_scrapy.policy.backoff import is_refusal
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import Streaks
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import count_of, format_seconds

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.crawl.crawl import Crawl

logger = logging.getLogger(__name__)


class BackoffMiddleware(Component):
    """Retries refused requests, at most ``WALSH_MAX_RETRIES`` times (order 549, decision 15).

    A host may refuse that many requests in a row, whatever their URLs. After one more, the run
    defers the host's other requests; they have not failed. It does the same if a target and the
    request before it timed out, or if the host answered 403 to three URLs in a row (decision 28).

    It reads the refusals. PacingMiddleware waits; without that it refuses to start.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._context = crawl.context
        self._stats = crawl.stats
        self._queue = crawl.queue
        self._hosts = crawl.hosts
        self._streaks = Streaks()
        self._project = ProjectRetries(crawl.crawler)
        self._ignored = False  # the log says that the project's choice is ignored
        crawl.crawler.signals.connect(self.response_downloaded, signals.response_downloaded)

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Record an answer; middlewares nearer to the wire keep some from ``process_response``."""
        host, rank = host_of(request.url), rank_of(request)
        self._streaks.record_answer(host, request.url, response.status, rank)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Retry after 429 and 503; for robots.txt after every server error (decision 12)."""
        # A refusal that an HTTP cache kept before the add-on came is not of now.
        is_copy = "cached" in response.flags
        if _is_refusal(request, response.status) and not is_copy:
            what = f"answered {response.status}"
            most = self._context.options.max_retries
            chosen = self._chosen(request, response.status)
            reason = response_status_message(response.status)
            return self._retry(request, what, most, reason, response.status, chosen) or response
        self._defer_others(request)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Retry a request for robots.txt that got no response, if its host can be reached."""
        if request.meta.get("dont_retry") == NOT_REACHED:
            del request.meta["dont_retry"]
        if isinstance(exception, IgnoreRequest | Unreachable) or not ticket_of(request).reached:
            return None
        timed_out = isinstance(exception, DownloadTimeoutError)
        host, is_slow = host_of(request.url), isinstance(exception, TooSlow)
        self._streaks.record_silence(host, rank_of(request), timed_out=timed_out, is_slow=is_slow)
        self._defer_others(request)
        if not _is_refusal(request, 0):
            return None
        # A host that timed out will probably do so again, and a serial crawl waits with it.
        retries = self._context.options.max_retries
        most = min(1, retries) if timed_out else retries
        what = f"failed ({reason_of(exception, request.url)})"
        return self._retry(request, what, most, global_object_name(type(exception)))

    def _chosen(self, request: Request, status: int) -> Chosen | None:
        """Return how often the project sends a refused target again, if it may choose that."""
        chosen = self._project.chosen(request, status) if rank_of(request) is Rank.TARGET else None
        if chosen is None or not self._context.options.is_walsh_research:
            return chosen
        if not self._ignored:
            self._ignored = True
            logger.warning(
                "%s is ignored: after 429 and 503 a request is sent again, up to %d times "
                "(WALSH_MAX_RETRIES), because R5 demands that of Walsh-Research",
                chosen.by,
                self._context.options.max_retries,
            )
        return None

    def _retry(
        self,
        request: Request,
        what: str,
        most: int,
        reason: str,
        status: int | None = None,
        chosen: Chosen | None = None,
    ) -> Request | None:
        """Return the request to send again; None if it has failed.

        ``what`` is a verb for the log, ``reason`` is Scrapy's name of the reason in the stats.

        It has failed after ``most`` retries, or after those that the project has chosen. A host
        that refused more than ``most`` requests in a row is deferred, with its other requests. If
        those are the reason, and this request has retries left, it is deferred too.
        """
        rank, host, ticket = rank_of(request), host_of(request.url), ticket_of(request)
        attempt = ticket.attempt + 1
        retries = most if chosen is None else chosen.retries
        share = max(most, retries)  # of refusals that the host may give in a row
        if attempt <= retries and self._streaks.refusals(host) <= share:
            hold = format_seconds(ticket.hold)
            logger.info("%s %s; %s is on hold for %s", request.url, what, host, hold)
            now = self._context.clock.monotonic()
            for_blocklist = ticket.serves_blocklist
            retry = Retry(attempt + 1, retries + 1, now + ticket.hold, what, for_blocklist)
            self._context.retries[self._context.host(request.url)] = retry
            if for_blocklist:  # all wait for it
                logger.info("waiting for the blocklist: %s", retry.sentence(now))
            self._stats.inc_value("walsh/backoff/retried")
            self._stats.inc_value("retry/count")
            self._stats.inc_value(f"retry/reason_count/{reason}")
            return _sent_again(request, attempt)
        if chosen and attempt > retries and self._streaks.refusals(host) <= share:
            hold = format_seconds(ticket.hold)
            line = "%s %s; it is not sent again (%s); %s is on hold for %s"
            logger.info(line, request.url, what, chosen.by, host, hold)
            if chosen.retries:
                self._stats.inc_value("retry/max_reached")
            return None
        self._defer_others(request, gave_up=True, refused=status)
        is_others_fault = attempt <= retries and attempt < self._streaks.refusals(host, rank)
        if is_others_fault and rank is not Rank.ROBOTS:
            logger.info("%s %s, as others of its host did", request.url, what)
            return _sent_again(request, ticket.attempt)
        tries = count_of(attempt, "try", "tries")
        logger.warning("%s %s; giving up after %s", request.url, what, tries)
        self._stats.inc_value("walsh/backoff/gave_up")
        self._stats.inc_value("retry/max_reached")
        return None

    def _defer_others(
        self, request: Request, *, gave_up: bool = False, refused: int | None = None
    ) -> None:
        """Defer the other requests of a host after a streak. None of them waits for its hold."""
        host = host_of(request.url)
        if reason := self._streaks.reason(host, rank_of(request), gave_up=gave_up):
            until = self._context.clock.now() + ticket_of(request).hold
            self._context.deferred_hosts.add(host, reason, until, refused)
            self._hosts.give_up(self._context.host(request.url))
            self._queue.delay(self._context.host(request.url), 0.0)


class Chosen(NamedTuple):
    """The retries that a project has chosen for a refused request."""

    retries: int
    by: str  #: the name of the setting, or of the key of ``meta``


class ProjectRetries:
    """The retries that a project has chosen for refused requests, in Scrapy's own words.

    A status that the project handles itself is not retried, unless the request has
    ``max_retry_times``.
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

    def chosen(self, request: Request, status: int) -> Chosen | None:
        """Return the chosen retries after a status; None if the project has chosen nothing."""
        if not self._is_enabled:
            return Chosen(0, "RETRY_ENABLED = False")
        if request.meta.get("dont_retry"):
            return Chosen(0, "dont_retry")
        times = request.meta.get("max_retry_times")
        if isinstance(times, int | float):
            return Chosen(int(times), "max_retry_times")
        if name := self._handled_by(request, status):
            return Chosen(0, name)
        return None if self._times is None else Chosen(self._times, "RETRY_TIMES")

    def _handled_by(self, request: Request, status: int) -> str | None:
        """Return what makes HttpErrorMiddleware pass a status on to the spider, or None."""
        meta, spider = request.meta, self._crawler.spider
        if meta.get("handle_httpstatus_all"):
            return "handle_httpstatus_all"
        name = "handle_httpstatus_list"
        if name in meta:
            return name if _contains(meta[name], status) else None
        if self._allows_all:
            return "HTTPERROR_ALLOW_ALL"
        if hasattr(spider, name):
            return name if _contains(getattr(spider, name), status) else None
        return "HTTPERROR_ALLOWED_CODES" if _contains(self._allowed, status) else None


def _contains(statuses: object, status: int) -> bool:
    """Return True if a project's list, which may be anything, has a status."""
    return isinstance(statuses, Collection) and status in statuses


def _sent_again(request: Request, attempt: int) -> Request | None:
    """Return a target to send again. A coroutine sends its request again by itself."""
    if rank_of(request) is not Rank.TARGET:
        note(request, again=True, attempt=attempt)
        return None
    again = request.replace(dont_filter=True)
    note(again, attempt=attempt)
    return again


def _is_refusal(request: Request, status: int) -> bool:
    return is_refusal(status, for_robots=rank_of(request) is Rank.ROBOTS)
