"""Fetches robots.txt, the blocklist and its schema before the requests that need them.

A fetch waits in the queue for a turn of its host, calls the engine itself, and takes another turn
after a refusal. While a gate waits for a document, the engine may ask for no requests, so the queue
could give no turns: then a fetch goes on without one.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Protocol

from scrapy.http.request import NO_CALLBACK

from walsh_scrapy.crawl.hosts.queue import Turn
from walsh_scrapy.crawl.messages import set_conditions
from walsh_scrapy.crawl.ticket import copy_of, note
from walsh_scrapy.exceptions import Denied, NotReached, NotYet, TooLate
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.parts import Crawl


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
    ) -> Response:
        """Send the request for a document when its turn comes, and again after a refusal.

        Each attempt runs in the context manager that ``limited`` returns for it. Raises the
        exceptions of ``Documents``.
        """
        request.dont_filter = True
        request.callback = NO_CALLBACK
        # Scrapy's middlewares, and others that know these keys, leave such requests alone.
        request.meta.update(dont_cache=True, dont_obey_robotstxt=True)
        note(request, rank=rank)
        while True:
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
