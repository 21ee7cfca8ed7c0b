"""Fetches what a request depends on, robots.txt or the blocklist, once for all that wait for it.

A gate says as a generator what is asked for, and what to do with what came: it yields requests and
is sent a response for each, or the exception in its place. How they are fetched is decided here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.runtime import meta
from walsh_scrapy.scheduler import scheduler_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

#: What came of a request: the response, or why there is none. One that is no success is an
#: HttpError, unless the request takes all of them (``handle_httpstatus_all``).
Answer: TypeAlias = "Response | BaseException"
Flow: TypeAlias = Generator[Request, Answer, None]


class Errand:
    """One document under way, for all that wait for it."""

    def __init__(self, key: str, host: str | None, flow: Flow, request: Request) -> None:
        self.key = key
        self.host = host
        self.flow = flow
        self.request = request  #: which the flow asks for at present
        self.fetching: asyncio.Future[None] | None = None  #: None if our scheduler sees to it
        self.idle = asyncio.Event()  #: set while it waits there, and when it is over
        self.is_over = False


class Errands:
    """Sends for the documents of one gate; its requests are of one rank.

    A request that came from our scheduler waits there meanwhile, with all of higher rank to the
    same host (or to any), and other hosts go on. Any other request cannot be told "later": it
    waits in the gate, and what it needs is fetched past the scheduler, which may not be asked for
    anything as long as that request counts as active.
    """

    def __init__(self, crawler: Crawler, rank: Rank) -> None:
        self._crawler = crawler
        self._rank = rank
        self._under_way: dict[str, Errand] = {}
        self._hosts: Counter[str | None] = Counter()

    async def before(
        self, request: Request, key: str, host: str | None, flow: Callable[[], Flow]
    ) -> Request | None:
        """Return None once a document was fetched, or what goes out in the request's place.

        ``key`` names the document, ``host`` whose requests it holds up: None is every host's.
        Raises what the flow raises.
        """
        scheduler = scheduler_of(self._crawler)
        errand = self._under_way.get(key)
        if scheduler is not None and scheduler.came_from_here(request):
            if errand is not None:
                return scheduler.again(request)
            errand = self._begin(key, host, flow())
            scheduler.put_back(request)
            return self._scheduled(errand)
        if errand is not None and errand.fetching is None:
            await errand.idle.wait()  # what is out comes back, for good or to wait once more
            if key not in self._under_way:
                return None
            errand = self._under_way[key]
        if errand is None or errand.fetching is None:
            errand = self._taken_over(errand) if errand else self._begin(key, host, flow())
            errand.fetching = asyncio.ensure_future(self._fetch(errand))
        await asyncio.shield(errand.fetching)
        return None

    @staticmethod
    def check(request: Request) -> None:
        """Raise IgnoreRequest for a request whose document was fetched past the scheduler since."""
        errand: Errand | None = request.meta.get(meta.ERRAND)
        if errand is not None and errand.is_over:
            raise IgnoreRequest(f"{request.url} is known by now")

    def _begin(self, key: str, host: str | None, flow: Flow) -> Errand:
        errand = self._under_way[key] = Errand(key, host, flow, next(flow))
        self._hosts[host] += 1
        self._restrict(self._rank, host)
        return errand

    def _taken_over(self, idle: Errand) -> Errand:
        """Return an errand that goes on where one stopped whose request waits in our scheduler."""
        idle.is_over = True  # when its request is handed out, that comes too late
        request = idle.request.replace()
        errand = self._under_way[idle.key] = Errand(idle.key, idle.host, idle.flow, request)
        return errand

    def _end(self, errand: Errand) -> None:
        errand.is_over = True
        errand.idle.set()
        del self._under_way[errand.key]
        self._hosts[errand.host] -= 1
        if not self._hosts[errand.host]:
            del self._hosts[errand.host]
            self._restrict(Rank.TARGET, errand.host)

    def _restrict(self, rank: Rank, host: str | None) -> None:
        if scheduler := scheduler_of(self._crawler):
            scheduler.restrict(rank, host)

    def _scheduled(self, errand: Errand) -> Request:
        request = self._marked(errand)
        request.callback, request.errback = self._arrived, self._failed
        request.meta[meta.IDLE] = errand.idle
        return request

    def _arrived(self, response: Response) -> None:
        self._go_on(meta.asked_by(response), _answer(response))

    def _failed(self, failure: Failure) -> None:
        self._go_on(meta.asked_by(failure), failure.value)  # type: ignore[arg-type]  # never None

    def _go_on(self, request: Request, answer: Answer) -> None:
        errand: Errand = request.meta[meta.ERRAND]
        if errand.is_over:
            return
        try:
            errand.request = errand.flow.send(answer)
        except StopIteration:
            self._end(errand)
        except BaseException:  # whoever waits must not do so for ever
            self._end(errand)
            raise
        else:
            self._crawler.engine.crawl(self._scheduled(errand))

    async def _fetch(self, errand: Errand) -> None:
        try:
            with suppress(StopIteration):
                while True:
                    errand.request = errand.flow.send(await self._download(errand))
        finally:
            self._end(errand)

    async def _download(self, errand: Errand) -> Answer:
        request = self._marked(errand)
        request.callback, request.errback = NO_CALLBACK, None
        try:
            response = await self._crawler.engine.download_async(request)
        except Exception as error:  # noqa: BLE001 - the flow knows what each failure means
            return error
        return _answer(response)

    def _marked(self, errand: Errand) -> Request:
        request = errand.request
        request.dont_filter = True
        # A copy in Scrapy's HTTP cache has no date at which it ceases to be in force.
        request.meta.update({meta.RANK: self._rank, meta.ERRAND: errand, "dont_cache": True})
        return request


def _answer(response: Response) -> Answer:
    if 200 <= response.status < 300 or response.meta.get("handle_httpstatus_all"):
        return response
    return HttpError(response, "no success")
