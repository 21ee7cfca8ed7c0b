"""Prerequisites: robots.txt and the blocklist, fetched once for all requests that wait for them.

A gate writes a fetch as a generator. It yields a request, and is sent the response or the
exception, until the document is known. This module decides how the requests are made. It may also
yield an awaitable, such as a check in another process, and is sent its result or exception.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.hostqueue import HostQueues
from walsh_scrapy.runtime.engine import is_closing
from walsh_scrapy.runtime.provenance import carry_facts
from walsh_scrapy.runtime.requestmeta import mark, marks_of, request_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.politeness.schedulerqueue import SchedulerQueue

#: The outcome of a request: the response or the exception. A response whose status is not 2xx is
#: an HttpError, unless the request handles every status (``handle_httpstatus_all``).
Outcome: TypeAlias = "Response | BaseException"
Steps: TypeAlias = Generator["Request | Awaitable[object]", Any, None]


class Fetch:
    """One document that is being fetched, for all requests that wait for it."""

    def __init__(self, key: str, host: str | None, steps: Steps, request: Request) -> None:
        self.key = key
        self.host = host
        self.steps = steps
        self.request = request  #: of the current step
        self.task: asyncio.Future[None] | None = None  #: None if our scheduler hands its steps out
        self.idle = asyncio.Event()  #: set while a step waits in our scheduler, and at the end
        self.is_over = False
        self.waiting: asyncio.Future[None] | None = None  #: for an awaitable step


class Prerequisites:
    """Fetches the documents of one gate; its requests have one rank.

    A request that came from our scheduler waits there meanwhile, with all requests of higher rank
    to the same host, or to all hosts; other hosts are asked. Any other request waits in the gate,
    and the document is fetched past the scheduler, because the engine may ask the scheduler for
    nothing while that request is active.
    """

    def __init__(self, crawler: Crawler, rank: Rank) -> None:
        self._crawler = crawler
        self._queues = HostQueues.of(crawler)
        self._rank = rank
        self._fetches: dict[str, Fetch] = {}
        self._hosts: Counter[str | None] = Counter()

    async def before(
        self, request: Request, key: str, host: str | None, steps: Callable[[], Steps]
    ) -> Request | None:
        """Return None once a document was fetched, or the request to send first.

        ``key`` names the document. ``host`` is the host whose requests wait for it; None stands for
        all hosts. Raises what a step raises.
        """
        queue = self._queues.returns_to(request)
        if queue is not None:
            return self._in_scheduler(queue, request, key, host, steps)
        await self._in_gate(key, host, steps)
        return None

    @staticmethod
    def check(request: Request) -> None:
        """Raise IgnoreRequest for a step of a fetch that has ended in the meantime."""
        fetch = marks_of(request).fetch
        if fetch is not None and fetch.is_over:
            raise IgnoreRequest(f"{request.url} was fetched in the meantime")

    def _in_scheduler(
        self,
        queue: SchedulerQueue,
        request: Request,
        key: str,
        host: str | None,
        steps: Callable[[], Steps],
    ) -> Request:
        if key in self._fetches:
            return queue.sent_back(request)
        fetch = self._begin(key, host, steps())
        queue.push(request, is_back=True)
        return self._scheduled(fetch)

    async def _in_gate(self, key: str, host: str | None, steps: Callable[[], Steps]) -> None:
        fetch = self._fetches.get(key)
        if fetch is not None and fetch.task is None:
            await fetch.idle.wait()  # until its step in flight has ended or waits again
            if key not in self._fetches:
                return
            fetch = self._fetches[key]
        if fetch is None or fetch.task is None:
            fetch = self._taken_over(fetch) if fetch else self._begin(key, host, steps())
            fetch.task = asyncio.ensure_future(self._run(fetch))
        await asyncio.shield(fetch.task)

    def _begin(self, key: str, host: str | None, steps: Steps) -> Fetch:
        first = cast("Request", next(steps))
        fetch = self._fetches[key] = Fetch(key, host, steps, first)
        self._hosts[host] += 1
        self._queues.restrict(self._rank, host)
        return fetch

    def _taken_over(self, idle: Fetch) -> Fetch:
        """Return a fetch that continues with the step that waits in our scheduler."""
        idle.is_over = True  # so `check` drops that step when the scheduler hands it out
        request = idle.request.replace()
        carry_facts(idle.request, request)  # so its response ends nothing of the step that waits
        fetch = self._fetches[idle.key] = Fetch(idle.key, idle.host, idle.steps, request)
        return fetch

    def _end(self, fetch: Fetch) -> None:
        fetch.is_over = True
        fetch.idle.set()
        del self._fetches[fetch.key]
        self._hosts[fetch.host] -= 1
        if not self._hosts[fetch.host]:
            del self._hosts[fetch.host]
            self._queues.restrict(Rank.TARGET, fetch.host)

    def _scheduled(self, fetch: Fetch) -> Request:
        request = self._marked(fetch)
        request.callback, request.errback = self._arrived, self._failed
        return request

    def _arrived(self, response: Response) -> None:
        self._go_on(request_of(response), _outcome(response))

    def _failed(self, failure: Failure) -> None:
        self._go_on(request_of(failure), failure.value)  # type: ignore[arg-type]  # never None

    def _go_on(self, request: Request, outcome: Outcome) -> None:
        fetch = marks_of(request).fetch
        if isinstance(fetch, Fetch) and not fetch.is_over:
            self._send(fetch, outcome)

    def _send(self, fetch: Fetch, outcome: object) -> None:
        try:
            step = fetch.steps.send(outcome)
        except StopIteration:
            self._end(fetch)
        except BaseException:  # the requests that wait must not wait for ever
            self._end(fetch)
            raise
        else:
            if isinstance(step, Request):
                fetch.request = step
                self._crawler.engine.crawl(self._scheduled(fetch))
            else:
                fetch.waiting = asyncio.ensure_future(self._wait(fetch, step))

    async def _wait(self, fetch: Fetch, step: Awaitable[object]) -> None:
        result = await _result(step)
        if is_closing(self._crawler):
            fetch.steps.close()
        else:
            self._send(fetch, result)

    async def _run(self, fetch: Fetch) -> None:
        try:
            outcome: object = await self._download(fetch)
            with suppress(StopIteration):
                while True:
                    step = fetch.steps.send(outcome)
                    if isinstance(step, Request):
                        fetch.request = step
                        outcome = await self._download(fetch)
                    else:
                        outcome = await _result(step)
        finally:
            self._end(fetch)

    async def _download(self, fetch: Fetch) -> Outcome:
        request = self._marked(fetch)
        request.callback, request.errback = NO_CALLBACK, None
        try:
            response = await self._crawler.engine.download_async(request)
        except Exception as error:  # noqa: BLE001 - the steps know what each failure means
            return error
        return _outcome(response)

    def _marked(self, fetch: Fetch) -> Request:
        request = fetch.request
        request.dont_filter = True
        # Scrapy's HTTP cache does not know when a copy of these documents expires.
        request.meta["dont_cache"] = True
        mark(request, rank=self._rank, fetch=fetch)
        return request


async def _result(step: Awaitable[object]) -> object:
    try:
        return await step
    except Exception as error:  # noqa: BLE001 - the steps know what each failure means
        return error


def _outcome(response: Response) -> Outcome:
    if 200 <= response.status < 300 or response.meta.get("handle_httpstatus_all"):
        return response
    return HttpError(response, "no success")
