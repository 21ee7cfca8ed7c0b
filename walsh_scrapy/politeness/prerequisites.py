"""Prerequisites: robots.txt and the blocklist, fetched once for all requests that wait for them.

A gate writes a fetch as a generator. It yields a request, and is sent the response or the
exception, until the document is known. This module decides how the requests are made. It may also
yield an awaitable, such as a check in another process, and is sent its result or exception.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.runtime.requests import copy_of, mark, marks_of, request_of

if TYPE_CHECKING:
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.politeness.hostqueue import HostQueues
    from walsh_scrapy.runtime.engine import Engine
    from walsh_scrapy.runtime.network import Network

#: The outcome of a request: the response or the exception. A response whose status is not 2xx is
#: an HttpError, unless the request handles every status (``handle_httpstatus_all``).
Outcome: TypeAlias = "Response | BaseException"
Steps: TypeAlias = Generator["Request | Awaitable[object]", Any, None]


class Fetch:
    """One document that is being fetched, for all requests that wait for it.

    Our scheduler hands its requests out, unless ``in_gate``: then they are downloaded past it.
    """

    def __init__(
        self,
        key: str,
        host: str | None,
        steps: Steps,
        came_meanwhile: Callable[[float], bool],
        *,
        in_gate: bool,
    ) -> None:
        self.key = key
        self.came_meanwhile = came_meanwhile
        self.host = host
        self.steps = steps
        self.in_gate = in_gate
        self.request: Request | None = None  #: of the current step
        self.idle = asyncio.Event()  #: set while a step waits in our scheduler, and at the end
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None  #: of a step past the scheduler

    @property
    def is_over(self) -> bool:
        """Whether the document is known, or will not be."""
        return self.end.done()


class Prerequisites:
    """Fetches the documents of one gate; its requests have one rank.

    A request that came from our scheduler waits there meanwhile, with all requests of higher rank
    to the same host, or to all hosts; other hosts are asked. Any other request waits in the gate,
    and the document is fetched past the scheduler, because the engine may ask the scheduler for
    nothing while that request is active.
    """

    def __init__(self, engine: Engine, network: Network, queues: HostQueues, rank: Rank) -> None:
        self._engine = engine
        self._network = network
        self._queue = queues.scheduler
        self._rank = rank
        self._fetches: dict[str, Fetch] = {}
        self._hosts: Counter[str | None] = Counter()

    async def before(
        self,
        request: Request,
        key: str,
        host: str | None,
        steps: Callable[[], Steps],
        came_meanwhile: Callable[[float], bool] = lambda _ended: False,
    ) -> Request | None:
        """Return None once a document was fetched, or the request to send back until then.

        ``key`` names the document. ``host`` is the host whose requests wait for it; None stands for
        all hosts. ``came_meanwhile`` returns True if another crawl has fetched the document, by an
        exchange that ended at a moment in epoch seconds. Raises what a step raises.
        """
        may_go_back = self._queue.has_handed_out(request)
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = Fetch(key, host, steps(), came_meanwhile, in_gate=not may_go_back)
            self._begin(fetch)
        if may_go_back:
            return self._queue.sent_back(request)
        if not fetch.in_gate:
            await fetch.idle.wait()  # until its step in flight has ended or waits again
        if fetch.request is not None and not (fetch.is_over or fetch.in_gate):
            fetch.in_gate = True  # from here on `check` drops the request that waits
            self._make(fetch, copy_of(fetch.request))
        await asyncio.shield(fetch.end)
        return None

    def check(self, request: Request) -> None:
        """Raise IgnoreRequest for a step that is not needed any more."""
        fetch = marks_of(request).fetch
        if isinstance(fetch, Fetch) and (
            fetch.is_over or (fetch.in_gate and self._queue.has_handed_out(request))
        ):
            raise IgnoreRequest(f"{request.url} was fetched in the meantime")

    def _begin(self, fetch: Fetch) -> None:
        self._fetches[fetch.key] = fetch
        self._hosts[fetch.host] += 1
        self._queue.restrict(self._rank, fetch.host)
        self._go_on(fetch, None)

    def _go_on(self, fetch: Fetch, outcome: object) -> None:
        """Carry out the next step of a fetch; ``outcome`` is that of its last step."""
        try:
            step = fetch.steps.send(outcome)
        except StopIteration:
            self._end(fetch)
        except BaseException as error:  # the requests that wait must not wait for ever
            self._end(fetch, error)
            if not fetch.in_gate:
                raise
        else:
            if isinstance(step, Request):
                self._make(fetch, step)
            else:
                fetch.task = asyncio.ensure_future(self._await(fetch, step))

    def _make(self, fetch: Fetch, request: Request) -> None:
        fetch.request = request
        request.dont_filter = True
        # Scrapy's HTTP cache does not know when a copy of these documents expires.
        request.meta["dont_cache"] = True
        mark(request, rank=self._rank, fetch=fetch)
        if fetch.in_gate:
            request.callback, request.errback = NO_CALLBACK, None
            fetch.task = asyncio.ensure_future(self._await(fetch, self._download(request)))
        else:
            request.callback, request.errback = self._arrived, self._failed
            self._engine.crawl(request)

    async def _download(self, request: Request) -> Outcome:
        return _outcome(await self._engine.download(request))

    async def _await(self, fetch: Fetch, step: Awaitable[object]) -> None:
        result: object
        try:
            result = await step
        except Exception as error:  # noqa: BLE001 - the steps know what each failure means
            result = error
        if self._engine.is_closing and not fetch.in_gate:
            fetch.steps.close()
            fetch.in_gate = True  # nobody waits in the scheduler any more
            self._end(fetch, RequestDeferred(time.time(), "the crawl ended"))
        else:
            self._go_on(fetch, result)

    async def _arrived(self, response: Response) -> None:
        await self._network.let_next_connect()
        self._step_ended(request_of(response), _outcome(response))

    def _failed(self, failure: Failure) -> None:
        self._step_ended(request_of(failure), failure.value)  # type: ignore[arg-type]  # never None

    def _step_ended(self, request: Request, outcome: Outcome) -> None:
        fetch = marks_of(request).fetch
        if isinstance(fetch, Fetch) and not (fetch.is_over or fetch.in_gate):
            self._go_on(fetch, outcome)

    def _end(self, fetch: Fetch, error: BaseException | None = None) -> None:
        if error is not None and fetch.in_gate:
            fetch.end.set_exception(error)
            fetch.end.exception()  # there may be nobody who waits for it
        else:
            fetch.end.set_result(None)
        fetch.idle.set()
        del self._fetches[fetch.key]
        self._hosts[fetch.host] -= 1
        if not self._hosts[fetch.host]:
            del self._hosts[fetch.host]
            self._queue.restrict(Rank.TARGET, fetch.host)


def _outcome(response: Response) -> Outcome:
    if 200 <= response.status < 300 or response.meta.get("handle_httpstatus_all"):
        return response
    return HttpError(response, "no success")
