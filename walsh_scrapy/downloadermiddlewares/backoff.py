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
        self._access = crawl.access
        self._hosts = crawl.hosts
        self._streaks = Streaks()
        self._project = ProjectRetries(crawl.crawler)
        self._ignored = False  # the log says that the project's choice is ignored
        crawl.fetcher.register_retries(self)
        crawl.crawler.signals.connect(self.response_downloaded, signals.response_downloaded)

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Record an answer; middlewares nearer to the wire keep some from ``process_response``."""
        host, rank = host_of(request.url), rank_of(request)
        self._streaks.record_answer(host, request.url, response.status, rank)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Retry a page after 429 and 503. Documents are retried where they are read."""
        # A refusal that an HTTP cache kept before the add-on came is not of now.
        if rank_of(request) is not Rank.TARGET or "cached" in response.flags:
            return response
        attempt = self.next_attempt(request, response)
        return response if attempt is None else _sent_again(request, attempt)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Record that a page got no response."""
        if request.meta.get("dont_retry") == NOT_REACHED:
            del request.meta["dont_retry"]
        if rank_of(request) is Rank.TARGET and ticket_of(request).reached:
            self.next_attempt(request, exception)

    def next_attempt(self, request: Request, outcome: Response | Exception) -> int | None:
        """Return the number of retries with which a request is sent again; None if it is not.

        It is sent again after 429 and 503, and one for robots.txt after every server error, and
        after no response from a host that can be reached (decision 12).
        """
        for_robots = rank_of(request) is Rank.ROBOTS
        retries = self._context.options.max_retries
        if isinstance(outcome, Exception):
            if isinstance(outcome, IgnoreRequest | Unreachable):
                return None
            timed_out = isinstance(outcome, DownloadTimeoutError)
            self._record_silence(request, outcome, timed_out=timed_out)
            # A host that timed out will probably do so again, and a serial crawl waits with it.
            most = min(1, retries) if timed_out else retries
            if isinstance(outcome, TooSlow):  # the host is deferred
                most = 0
            what = f"failed ({reason_of(outcome, request.url)})"
            reason = global_object_name(type(outcome))
            return self._retry(request, what, most, reason) if for_robots else None
        if is_refusal(outcome.status, for_robots=for_robots):
            what = f"answered {outcome.status}"
            chosen = self._chosen(request, outcome.status)
            reason = response_status_message(outcome.status)
            return self._retry(request, what, retries, reason, outcome.status, chosen)
        self._defer_others(request)
        return None

    def _record_silence(self, request: Request, error: Exception, *, timed_out: bool) -> None:
        host, is_slow = host_of(request.url), isinstance(error, TooSlow)
        self._streaks.record_silence(host, rank_of(request), timed_out=timed_out, is_slow=is_slow)
        self._defer_others(request)

    def _chosen(self, request: Request, status: int) -> Chosen | None:
        """Return how often the project sends a refused target again, if it may choose that."""
        chosen = self._project.chosen(request, status) if rank_of(request) is Rank.TARGET else None
        if chosen is None or not self._context.options.is_walsh_research:
            return chosen
        if not self._ignored:
            self._ignored = True
            logger.warning(
                "%s is ignored: after 429 and 503 a request is sent again, up to %d times "
                "(WALSH_MAX_RETRIES), as Walsh-Research always does (R5)",
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
    ) -> int | None:
        """Return the number of retries with which to send it again; None if it has failed.

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
            self._log_hold(request, what, ticket.hold)
            now = self._context.clock.monotonic()
            for_blocklist = ticket.serves_blocklist
            retry = Retry(attempt + 1, retries + 1, now + ticket.hold, what, for_blocklist)
            self._context.retries[self._context.host(request.url)] = retry
            if for_blocklist:  # all wait for it
                logger.info("waiting for the blocklist: %s", retry.sentence(now))
            self._stats.inc_value("walsh/backoff/retried")
            self._stats.inc_value("retry/count")
            self._stats.inc_value(f"retry/reason_count/{reason}")
            return attempt
        if chosen and attempt > retries and self._streaks.refusals(host) <= share:
            what = f"{what}; it is not sent again ({chosen.by})"
            self._log_hold(request, what, ticket.hold, is_retried=False)
            if chosen.retries:
                self._stats.inc_value("retry/max_reached")
            return None
        self._defer_others(request, gave_up=True, refused=status)
        is_others_fault = attempt <= retries and attempt < self._streaks.refusals(host, rank)
        if is_others_fault and rank is not Rank.ROBOTS:
            logger.debug("%s %s, as others of its host did", request.url, what)
            return ticket.attempt
        tries = count_of(attempt, "try", "tries")
        # The robots gate warns of a robots.txt that is unreachable.
        level = logging.INFO if rank is Rank.ROBOTS else logging.WARNING
        logger.log(level, "%s %s; giving up after %s", request.url, what, tries)
        self._stats.inc_value("walsh/backoff/gave_up")
        self._stats.inc_value("retry/max_reached")
        return None

    def _log_hold(
        self, request: Request, what: str, seconds: float, *, is_retried: bool = True
    ) -> None:
        """Log that a host is on hold, and how many of its requests wait for that, or are deferred.

        ``DenialsMiddleware`` then logs none of those: one answer has one line.
        """
        host = self._context.host(request.url)
        waiting = self._queue.frontier.count(host)
        effect = ""
        if seconds > self._context.options.max_wait and rank_of(request) is Rank.TARGET:
            self._access.logged_hosts.add(host)
            effect = f": {count_of(waiting + is_retried, 'request')} deferred to a later run"
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


def _sent_again(request: Request, attempt: int) -> Request:
    """Return the request of a page to send again."""
    again = request.replace(dont_filter=True)
    note(again, attempt=attempt)
    return again
