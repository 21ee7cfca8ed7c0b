"""The uses of Scrapy's engine beyond its public API, and the end of a crawl.

SIGTERM, SIGINT and SIGHUP end a crawl cleanly, from its first moment to its last. The serial crawls
of a process share the counts of R4, and so they share an event loop.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.exceptions import (
    DownloadFailedError,
    IgnoreRequest,
    UnsupportedURLSchemeError,
)
from scrapy.utils.defer import ensure_awaitable

from walsh_scrapy.exceptions import Unreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: The words that Scrapy uses for the end of a run that could not go on (decision 29).
EarlyEnd: TypeAlias = Literal[
    "export_failed",
    "gate_failed",
    "log_failed",
    "machine_trouble",
    "state_failed",
]


class Engine:
    """The engine of one crawl. Before it exists, only ``has_begun`` may be read."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._end: asyncio.Future[None] | None = None
        self.ended_early = False

    def end(self, reason: EarlyEnd, why: str = "") -> None:
        """End the crawl early; ``scrapy crawl`` then exits with 1.

        ``why`` is a sentence for the log (CRITICAL). Open files and exports are closed as usual,
        and due sources stay due. Only the first call counts and is logged: later ones mostly have
        the same cause.
        """
        if self.ended_early:
            return
        self.ended_early = True
        if why:
            logger.critical("%s", why)
        if self._slot is not None:  # else only the exit status can change
            end = self._crawler.engine.close_spider_async(reason=reason)
            self._end = asyncio.ensure_future(end)

    def machine_failed(self, what: str) -> None:
        """End the crawl because this machine cannot make connections (decision 29).

        ``what`` is a clause for the log, for example "too many files are open". The request at hand
        ends with ``MachineTrouble``.
        """
        self.end("machine_trouble", f"{what}; the run ends, and due sources stay due")

    def code_failed(self, error: BaseException) -> None:
        """Log an exception in our code, and end the crawl (decision 29)."""
        if not self.ended_early:
            logger.critical("an error in walsh-scrapy itself: %r", error, exc_info=error)
        self.end("gate_failed")

    def guard(self, failed: Callable[[Exception], Exception]) -> None:
        """Raise the result of ``failed`` in place of an unintended exception of our middlewares.

        Else it would count as that of a host, or of a project's middleware (decision 29).
        """
        for methods in self._crawler.engine.downloader.middleware.methods.values():
            for place, method in enumerate(methods):
                kind = type(getattr(method, "__self__", None))
                if method is not None and kind.__module__.startswith("walsh_scrapy."):
                    methods[place] = _guarded(method, failed)

    @property
    def active_count(self) -> int:
        """The number of requests in the downloader or one of its middlewares."""
        return len(self._crawler.engine.downloader.active)

    @property
    def has_begun(self) -> bool:
        """Whether the crawl has its engine, so that it can be ended; False while it starts."""
        try:
            return self._crawler.engine is not None
        except RuntimeError:  # Scrapy's answer before the engine is there
            return False

    @property
    def is_open(self) -> bool:
        """Whether the crawl has begun and its spider is not closed: requests may be under way."""
        return self.has_begun and self._slot is not None

    @property
    def is_closing(self) -> bool:
        """Whether the spider is closing: it sends no more requests, and waits for the last."""
        return self._slot is None or self._slot.closing is not None

    async def download(self, request: Request) -> Response:
        """Return the response to a request, past the scheduler. Middlewares may raise."""
        return await self._crawler.engine.download_async(request)

    def take_requests(self) -> None:
        """Let the engine call its scheduler now; by itself it does so every five seconds."""
        if self._slot:
            self._slot.nextcall.schedule()

    def is_active(self, request: Request) -> bool:
        """Return True while a request is in the downloader or one of its middlewares."""
        return request in self._crawler.engine.downloader.active

    @property
    def _slot(self) -> Any:  # noqa: ANN401 - Scrapy's own, with no public type
        return self._crawler.engine._slot  # noqa: SLF001 - the one private name that we need


def _guarded(
    method: Callable[..., Any], failed: Callable[[Exception], Exception]
) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def guarded(**given: Any) -> Any:  # noqa: ANN401 - as Scrapy calls it
        try:
            return await ensure_awaitable(method(**given))
        except (IgnoreRequest, Unreachable, DownloadFailedError, UnsupportedURLSchemeError):
            raise
        except Exception as error:
            raise failed(error) from error

    return guarded


#: SIGHUP comes when a terminal is closed; not every system has it.
_NAMES: Final = ("SIGTERM", "SIGINT", "SIGHUP")
_SIGNALS: Final = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))

#: The handler of the first signal; Scrapy then replaces it by that of the second.
_in_order: Any = None


def is_stopping() -> bool:
    """Return True once a signal has come, even while the event loop stands still."""
    return _in_order is not None and signal.getsignal(signal.SIGTERM) != _in_order


def listen_for_signals(crawler: Crawler) -> None:
    """Hold back the signals that end a crawl until its engine has started.

    Before that, Scrapy stops its event loop at once for a signal, although the engine may be
    sending its first request: there is no summary then, and a host stays busy. Afterwards SIGHUP
    acts like SIGTERM. A SIGHUP that comes while the crawl ends is ignored: a service manager sends
    both signals, and Scrapy would take the second one as the command to stop at once.
    """
    if sys.platform == "win32":
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    crawler.signals.connect(_let_through, signal=signals.engine_started)


def _let_through() -> None:
    if sys.platform == "win32":
        return
    global _in_order  # noqa: PLW0603 - a process has one handler of a signal
    _in_order = signal.getsignal(signal.SIGTERM)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # under nohup it is ignored
        signal.signal(signal.SIGHUP, _hang_up)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _hang_up(*_: object) -> None:
    if not is_stopping():
        signal.raise_signal(signal.SIGTERM)


_loops: Final[WeakKeyDictionary[object, asyncio.AbstractEventLoop]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


class AnotherLoop(RuntimeError):
    """A serial crawl runs in another event loop of this process already (R4)."""


class PerLoop(Generic[T]):
    """One object for all serial crawls in an event loop, such as a lock, which is of one loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """Return the object of the running loop; the first call makes it."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]


def enter(crawl: object) -> None:
    """Begin a serial crawl in the running event loop.

    Raises AnotherLoop if a serial crawl is under way in another loop: the two would not see each
    other's requests. A crawl that is built before its loop runs, as Scrapy's CrawlerProcess does,
    is in the one loop of Twisted's reactor, and is not counted.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    with _lock:
        if any(each is not loop and each.is_running() for each in _loops.values()):
            raise AnotherLoop(
                "a serial crawl runs in another event loop of this process, and R4 allows one "
                "request at a time in it; run the crawls one after the other, or in separate "
                "processes"
            )
        _loops[crawl] = loop


def leave(crawl: object) -> None:
    """End a serial crawl; crawls in other loops may begin."""
    with _lock:
        _loops.pop(crawl, None)
