"""The downloads of robots.txt and the blocklist, and the last look at every request.

A `Fetcher` sends for such a document. Middlewares and listeners of a project see its requests and
their responses, like any others. But they cannot allow anything by changing them: each response is
copied at the moment when the download handler returns it, and only the copy is read.

Whatever handler sends a request, no request is sent whose time is over, or whose URL is not the one
that the gates have judged (decision 47): `Documents` looks at each before its handler does.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final, Protocol

from scrapy import Request
from scrapy.exceptions import DownloadTimeoutError, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.request import fingerprint

from walsh_scrapy.crawl.hosts.queue import Turn
from walsh_scrapy.crawl.messages import ACCEPTED, conditions_of, set_conditions, unpack_response
from walsh_scrapy.crawl.scrapyinternals import is_stopping
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import (
    Delivery,
    copy_of,
    note,
    rank_of,
    renew_ticket,
    restore_limits,
    ticket_after,
    ticket_of,
)
from walsh_scrapy.exceptions import (
    Denied,
    NotDelivered,
    NotModified,
    NotReached,
    NotYet,
    RequestDeferred,
    StoodStill,
    TooLate,
    TooSlow,
    Unreachable,
    VisitTimeout,
)
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import MAX_VISIT_SECONDS
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS
from walsh_scrapy.policy.urls import is_web
from walsh_scrapy.policy.wording import for_others
from walsh_scrapy.wire import stalls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.crawl.scrapyinternals import DownloadHandler
    from walsh_scrapy.crawl.ticket import Ticket


class Retries(Protocol):
    """Decides whether a request that was refused is sent again."""

    def record_outcome(self, request: Request, outcome: Response | Exception) -> int | None:
        """Return the number of the next attempt, in which it is sent again; None for no attempt."""


class Fetcher:
    """Fetches documents; nothing is fetched twice at the same time."""

    def __init__(self, crawl: Crawl) -> None:
        self._context = crawl.context
        self._engine = crawl.engine
        self._hosts = crawl.hosts
        self._queue = crawl.queue
        self._access = crawl.access
        self._exchanges = crawl.exchanges
        self._documents = crawl.documents
        self._retries: Retries | None = None
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._waiting_gates = 0

    def register_retries(self, retries: Retries) -> None:
        """Let an active middleware decide whether a document is requested again."""
        self._retries = retries

    async def fetch_once(self, key: str, fetch: Callable[[], Coroutine[None, None, None]]) -> None:
        """Wait for the fetch with this key, which is started if necessary. Raises its exception."""
        task = self._fetches.get(key)
        if task is None:
            task = self._fetches[key] = self._engine.start(fetch())
            task.add_done_callback(lambda _: self._fetches.pop(key, None))
        await asyncio.wait([task])
        if task.cancelled():
            raise self._access.make_deferral("the crawl ended")
        task.result()

    @contextmanager
    def gate_waits(self) -> Iterator[None]:
        """Let fetches go on without turns, because a gate waits for one of them."""
        self._waiting_gates += 1
        self._queue.grant_all_turns()
        try:
            yield
        finally:
            self._waiting_gates -= 1

    @contextmanager
    def hold_back_targets(self) -> Iterator[None]:
        """Hand out no target in a ``with`` block: all wait for the blocklist."""
        self._queue.frontier.restrict(Rank.OPERATOR)
        try:
            yield
        finally:
            self._queue.frontier.restrict(Rank.TARGET)
            self._engine.take_requests()

    async def send(
        self,
        request: Request,
        rank: Rank,
        limited: Callable[[Request], AbstractContextManager[None]] = lambda _: nullcontext(),
        check: Callable[[Request], None] = lambda _: None,
    ) -> Response:
        """Send the request for a document when its turn comes, and again after a refusal.

        Each attempt runs in the context manager that ``limited`` returns for it. Before it waits
        for its turn, ``check`` raises an exception if it will not be made. Raises the exceptions of
        ``Documents``.
        """
        request.dont_filter = True
        request.callback = NO_CALLBACK
        # Scrapy's middlewares, and others that know these keys, leave such requests alone.
        request.meta.update(dont_cache=True, dont_obey_robotstxt=True)
        note(request, rank=rank)
        while True:
            check(request)
            sent = copy_of(request)  # a middleware of the project may change it
            set_conditions(sent)
            with suppress(Denied):  # the gate denies it again, and logs that
                await self._queue.prepare(sent)
            turn = Turn(sent, asyncio.get_running_loop().create_future())
            host = self._context.host(sent.url)
            try:
                if not self._waiting_gates:
                    await self._queue.take_turn(turn)
                with limited(sent):
                    response = await self._fetch(sent)
            except (NotReached, NotYet, TooLate):
                continue
            except Exception as error:
                attempt = self._next_attempt(sent, error)
                if attempt is None:
                    request.meta["proxy"] = sent.meta.get("proxy")  # which may be the reason
                    raise
                note(request, on_new_connection=True)
            else:
                attempt = self._next_attempt(sent, response)
                if attempt is None:
                    return self._documents.unpack(sent, response)
            finally:
                turn.is_over = True
                self._hosts.let_go(host, sent)
                self._engine.take_requests()
            note(request, attempt=attempt)

    async def _fetch(self, request: Request) -> Response:
        outcome: Response | Exception
        with self._documents.fetching(request) as delivery:
            try:
                outcome = await self._engine.download(request)
            except Exception as error:  # noqa: BLE001 - response_of decides which error counts
                outcome = error
            self._exchanges.sweep()
        return self._documents.response_of(delivery, outcome)

    def _next_attempt(self, request: Request, outcome: Response | Exception) -> int | None:
        return None if self._retries is None else self._retries.record_outcome(request, outcome)


# ---- the last look ----

logger = logging.getLogger(__name__)

#: Limits in ``meta`` that code of a project must not lower: a document beyond a limit is treated as
#: one that its host did not send.
_LIMITS: Final = ("download_maxsize", "download_timeout", "download_fail_on_dataloss")
#: The headers of a request for a document. Our handler adds those of a signature.
_DOCUMENT_HEADERS: Final = frozenset(
    {
        b"Accept",
        b"Accept-Encoding",
        b"If-Modified-Since",
        b"If-None-Match",
        b"Proxy-Authorization",
        b"User-Agent",
    }
)
#: A request is sent only if at least this many seconds remain for its exchange.
MIN_EXCHANGE_SECONDS: Final = 1.0
_OURS: Final = 'requests with "dont_obey_robotstxt" in their meta'
_SKIP: Final = f"Let {_OURS} pass through your middlewares unchanged"
_USE_A_HANDLER: Final = f"{_SKIP}; what downloads by itself belongs into DOWNLOAD_HANDLERS"
_DO_NOT_STOP: Final = f"Raise no StopDownload for {_OURS}"


class Documents:
    """The downloads of these documents in one crawl, as a ``Watcher`` of its engine."""

    def __init__(self, crawl: Crawl) -> None:
        settings = crawl.settings
        self._crawl = crawl  # one without paced requests has no `context`, which opens the state
        self._stats = crawl.stats
        self._is_paced = Gate.PACING in crawl.gates
        has_identity = Gate.IDENTITY in crawl.gates
        self._user_agent = crawl.options.user_agent if has_identity else None
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._warns_of_answers = self._is_paced
        self._warns_of_other_urls = self._is_paced
        # By request: a middleware may remove a ticket from ``meta``, or replace the request.
        self._tickets: dict[Request, Ticket] = {}

    @contextmanager
    def fetching(self, request: Request) -> Iterator[Delivery]:
        """Watch the download of a document in a `with` block.

        Afterwards the ticket of the request is valid again, whatever a project did to its ``meta``.
        """
        limits = {name: request.meta.get(name) for name in _LIMITS}
        limits["download_timeout"] = limits["download_timeout"] or self._timeout
        delivery = Delivery(request, limits)
        ticket = ticket_of(request)._replace(delivery=delivery)
        renew_ticket(request, ticket)
        self._tickets[request] = ticket
        try:
            yield delivery
        finally:
            self._tickets = {
                request: ticket
                for request, ticket in self._tickets.items()
                if ticket.delivery is not delivery
            }
            last = ticket_after(delivery.request)
            ticket = ticket._replace(
                seconds=last.seconds,
                hold=last.hold,
                not_before=last.not_before,
                public_only=last.public_only,
                from_gateway=last.from_gateway,
            )
            renew_ticket(request, ticket)

    def fetched(self, request: Request, result: Response | Request) -> Response | Request:
        """Return what the middlewares of the project made of a request.

        A request for the same URL that replaces the request for a document is sent instead. Raises
        NotDelivered for a request for another URL, because that might need the document itself.
        """
        if isinstance(result, Request) and ticket_of(request).public_only:
            note(result, public_only=True)  # such as the refresh of a page (decision 16)
        ticket = self._tickets.get(request)
        if ticket is None or isinstance(result, Response):
            return result
        if ticket_of(result).delivery is not ticket.delivery:
            if (result.url, result.method) != (request.url, request.method):
                reason = f"{request.url} was not downloaded: a middleware of this project"
                raise NotDelivered(f"{reason} replaced it by {result.method} {result.url}", _SKIP)
            renew_ticket(result, ticket)
        self._tickets[result] = ticket
        return result

    def failed(self, request: Request, error: Exception, *, is_after: bool) -> None:
        """Keep an exception of our middlewares, which a project's middleware may replace."""
        delivery = ticket_of(request).delivery
        if delivery is not None and (is_after or not delivery.has_come):
            delivery.error = error

    async def download(self, handler: DownloadHandler, request: Request) -> Response:
        """Call the download handler of a request, and copy its response if it is a document.

        Raises Denied for a URL that no gate has judged, TooLate for a request whose time is over,
        StoodStill if its response has not come until then, and NotDelivered.
        """
        delivery = ticket_of(request).delivery
        if delivery is None:
            self.check_unchanged(request)
            page = await self._call(handler, request)
            if self._warns_of_other_urls and page.url != request.url:
                self._warn_of_other_url(request, page)
            return page
        self._begin(request, delivery)
        try:
            response = await self._call(handler, request)
        except StopDownload as error:
            _keep(delivery, getattr(error, "response", None), is_stopped=True)
            raise
        except Exception as error:
            if not delivery.has_come:
                delivery.error = error
            raise
        finally:
            # Scrapy's middleware unpacks the response once more, within the limit of all pages.
            request.meta.pop("download_maxsize", None)
        _keep(delivery, response, is_stopped="download_stopped" in response.flags)
        # Otherwise the cookie would go back to the site with its next page.
        response.headers.pop("Set-Cookie", None)
        return response

    def _warn_of_other_url(self, request: Request, page: Response) -> None:
        """Warn of the first page for which a handler may have followed a redirect itself.

        Handlers of Scrapy and of this add-on leave redirects to our middleware; a browser may not.
        """
        if not (is_web(request.url) and is_web(page.url)):
            return
        if fingerprint(Request(page.url)) == fingerprint(Request(request.url)):
            return  # another spelling
        self._warns_of_other_urls = False
        logger.warning(
            "the download handler returned %s for %s: if it followed a redirect itself, that "
            "request was neither checked nor paced. Later ones are not named",
            for_others(page.url),
            for_others(request.url),
        )

    async def _call(self, handler: DownloadHandler, request: Request) -> Response:
        """Call a download handler within the time of the exchange."""
        if self._user_agent is not None:
            request.headers["User-Agent"] = self._user_agent
        if not (self._is_paced and is_web(request.url)):
            return await handler(request)
        ticket = ticket_of(request)
        if not ticket.released:
            reason = f"a middleware changed the URL to {request.url} after the gates"
            raise Denied("address", reason)
        clock = self._crawl.context.clock
        seconds = seconds_left(request.url, ticket, clock.moment())
        note(request, sent=clock.monotonic(), stalled=stalls.stalled())
        try:
            async with stalls.limit(None, seconds, is_stopping):
                return await _download(handler, request)
        except stalls.StoodStill as error:
            problem = "was told to end" if is_stopping() else "stood still for too long"
            reason = f"this process {problem} while it requested {request.url}"
            if ticket_of(request).sent is None:
                raise TooLate(reason) from error
            raise StoodStill(clock.now(), reason) from error

    def check_unchanged(self, request: Request) -> None:
        """Raise NotDelivered for a request for a document that has lost its ticket.

        Our gates would take it for a page, which waits for that document.
        """
        if request in self._tickets and ticket_of(request).delivery is None:
            reason = f"{request.url} was not downloaded: a middleware of this project"
            raise NotDelivered(f"{reason} changed its meta, URL or method", _SKIP)

    def _begin(self, request: Request, delivery: Delivery) -> None:
        """Undo what middlewares of the project have changed in a request for a document.

        It keeps a closed list of headers: a site must not get the cookies, the credentials or the
        keys of a project with the request for its robots.txt.
        """
        restore_limits(request)
        for name in set(request.headers) - _DOCUMENT_HEADERS:
            del request.headers[name]
        if request.headers.get("Accept-Encoding") != b"identity":
            request.headers["Accept-Encoding"] = ACCEPTED
        set_conditions(request)
        delivery.request = request
        delivery.received = 0
        delivery.is_conditional = any(conditions_of(request).values())

    def response_of(self, delivery: Delivery, outcome: Response | Exception) -> Response:
        """Return the response that the download handler returned, still packed.

        ``outcome`` is the result of the project's middlewares. Raises the exception of the download
        handler or of our middlewares, and NotDelivered if code of the project is the reason why
        there is no document.
        """
        url = delivery.request.url
        if delivery.error is not None:
            raise delivery.error
        if delivery.is_cut_off:
            reason = f"{url} was cut off: code of this project stopped its download"
            raise NotDelivered(reason, _DO_NOT_STOP)
        response = delivery.response
        if response is not None:
            delivery.response = None  # the ticket outlives it
            return response
        reason = f"{url} was not downloaded: a middleware of this project"
        if isinstance(outcome, Response):
            raise NotDelivered(f"{reason} answered it", _USE_A_HANDLER)
        if isinstance(outcome, NotDelivered | NotYet | TooLate):  # or of a subclass of ours
            raise outcome
        error = NotDelivered(f"{reason} raised {outcome!r}", _SKIP)
        if isinstance(outcome, Denied | RequestDeferred):  # by a gate of the project
            raise outcome from error
        raise error from outcome

    def unpack(self, request: Request, response: Response) -> Response:
        """Return the response to a request for a document, unpacked.

        Raises NotModified for a 304 to our validators, and BadAnswer for a body that cannot be
        unpacked.
        """
        delivery = ticket_of(request).delivery
        assert delivery is not None  # noqa: S101 - it was fetched
        if response.status == 304 and delivery.is_conditional:
            self._stats.inc_value("walsh/conditional/not_modified")
            raise NotModified(response)
        max_bytes = delivery.limits["download_maxsize"] or 0
        return unpack_response(request, response, max_bytes, self._stats)

    def response_received(self, response: Response, request: Request) -> None:
        """Warn of the first page that a middleware of the project answered itself."""
        is_page = rank_of(request) is Rank.TARGET
        is_answered = not ticket_of(request).handed and "cached" not in response.flags
        if self._warns_of_answers and is_page and is_answered:
            self._warns_of_answers = False
            logger.warning(
                "%s was answered by a middleware of this project, not by a download handler: a "
                "request that a middleware sends itself cannot be paced. What downloads belongs "
                "into DOWNLOAD_HANDLERS. Later pages are not named",
                request.url,
            )


async def _download(handler: DownloadHandler, request: Request) -> Response:
    """Call a download handler. Raises VisitTimeout if the time of the visit is over (decision 46).

    A host that cannot be reached, or sends too slowly, still fails for that reason.
    """
    try:
        return await handler(request)
    except DownloadTimeoutError as error:
        time = ticket_of(request).visit_time
        is_over = time is not None and time.limits(request.meta.get("download_timeout"))
        if is_over and not isinstance(error, TooSlow | Unreachable):
            raise VisitTimeout(MAX_VISIT_SECONDS) from error
        raise


def _keep(delivery: Delivery, response: Response | None, *, is_stopped: bool) -> None:
    """Keep a copy of a response and of its headers, because middlewares change both.

    A robots.txt that was stopped after the maximum size is complete.
    """
    delivery.has_come = True
    delivery.error = None
    body = b"" if response is None else response.body
    is_robots = rank_of(delivery.request) is Rank.ROBOTS
    delivery.is_cut_off = is_stopped and not (is_robots and len(body) > MAX_OCTETS)
    delivery.response = response and Response(
        response.url,
        status=response.status,
        headers=response.headers.copy(),
        body=body,
        flags=list(response.flags),
        request=delivery.request,
    )


def seconds_left(url: str, ticket: Ticket, moment: float) -> float:
    """Return for how many seconds this worker may still use the host of a request.

    Raises TooLate if these are too few, because another worker may then send a request to the host.
    """
    seconds = ticket.until - moment
    if seconds < MIN_EXCHANGE_SECONDS:
        raise TooLate(f"{url} was not sent: another worker may soon request the same host")
    return seconds
