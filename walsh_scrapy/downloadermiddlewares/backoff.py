"""R5: after 429 and 503 the whole host is on hold, and the request is retried later."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest

from walsh_scrapy.crawl.context import Retry
from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.ticket import note, rank_of, ticket_of
from walsh_scrapy.exceptions import TooSlow, Unreachable
from walsh_scrapy.policy.backoff import is_refusal
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import Streaks
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import count_of, format_seconds

if TYPE_CHECKING:
    from scrapy import Request
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
            most = self._context.options.max_retries
            what = f"answered {response.status}"
            return self._retry(request, what, most, response.status) or response
        self._defer_others(request)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Retry a request for robots.txt that got no response, if its host can be reached."""
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
        return self._retry(request, f"failed ({reason_of(exception, request.url)})", most)

    def _retry(
        self, request: Request, what: str, most: int, status: int | None = None
    ) -> Request | None:
        """Return the request to send again; None if it has failed.

        It has failed after ``most`` retries. A host that refused more than ``most`` requests in a
        row is deferred, with its other requests. If those are the reason, and this request has
        retries left, it is deferred too.
        """
        rank, host, ticket = rank_of(request), host_of(request.url), ticket_of(request)
        attempt = ticket.attempt + 1
        if attempt <= most and self._streaks.refusals(host) <= most:
            self._log_hold(request, what, ticket.hold)
            now = self._context.clock.monotonic()
            for_blocklist = ticket.serves_blocklist
            retry = Retry(attempt + 1, most + 1, now + ticket.hold, what, for_blocklist)
            self._context.retries[self._context.host(request.url)] = retry
            if for_blocklist:  # all wait for it
                logger.info("waiting for the blocklist: %s", retry.sentence(now))
            self._stats.inc_value("walsh/backoff/retried")
            return _sent_again(request, attempt)
        self._defer_others(request, gave_up=True, refused=status)
        is_others_fault = attempt <= most and attempt < self._streaks.refusals(host, rank)
        if is_others_fault and rank is not Rank.ROBOTS:
            logger.debug("%s %s, as others of its host did", request.url, what)
            return _sent_again(request, ticket.attempt)
        tries = count_of(attempt, "try", "tries")
        logger.warning("%s %s; giving up after %s", request.url, what, tries)
        self._stats.inc_value("walsh/backoff/gave_up")
        return None

    def _log_hold(self, request: Request, what: str, seconds: float) -> None:
        """Log that a host is on hold, and how many of its requests wait for that, or are deferred.

        ``DenialsMiddleware`` then logs none of those: one answer has one line.
        """
        host = self._context.host(request.url)
        waiting = self._queue.frontier.count(host)
        effect = ""
        if seconds > self._context.options.max_wait and rank_of(request) is Rank.TARGET:
            self._queue.announce(host)
            effect = f": {count_of(waiting + 1, 'request')} deferred to a later run"
        elif waiting:
            effect = f", and {count_of(waiting, 'more request')} wait for that"
        hold = format_seconds(seconds)
        logger.info("%s %s; %s is on hold for %s%s", request.url, what, host, hold, effect)

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
