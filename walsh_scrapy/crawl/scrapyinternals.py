"""What a crawl needs of Scrapy that is not documented: all of it is here, each with its reason.

A new version of Scrapy may change any of it. `docs/upstream.md` has the requests for public
replacements. Through this module a crawl wakes and ends its engine, sees what goes on around its
middlewares, reads the queue of a job, and ends cleanly after SIGTERM, SIGINT and SIGHUP.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sqlite3
import struct
import sys
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from scrapy import signals
from scrapy.core.scheduler import Scheduler
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.dupefilters import BaseDupeFilter
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    IgnoreRequest,
    UnsupportedURLSchemeError,
)
from scrapy.statscollectors import StatsCollector
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import load_object
from scrapy.utils.signal import (  # type: ignore[attr-defined]
    getAllReceivers,
    liveReceivers,
)

from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.state.engine import RefusedValues

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator

    from scrapy import Request
    from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from twisted.internet.defer import Deferred

    DownloadHandler: TypeAlias = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)

#: The reason with which Scrapy ends a run that could not go on.
EarlyEnd: TypeAlias = Literal[
    "export_failed",
    "gate_failed",
    "log_failed",
    "machine_trouble",
    "state_failed",
]


def has_listeners(crawler: Crawler, signal_: object) -> bool:
    """Return True if anybody listens to a signal. Scrapy's SignalManager does not tell."""
    return any(liveReceivers(getAllReceivers(crawler, signal_)))


class Engine:
    """The engine of one crawl. Before it exists, only ``has_begun`` may be read."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.end_reason = ""  #: why the crawl was ended early; "" if it was not
        self._end: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended_early = False

    def end(self, reason: EarlyEnd, message: str = "") -> None:
        """End the crawl early; Scrapy's ``crawl`` and ``runspider`` then exit with 1.

        ``message`` is a sentence for the log (CRITICAL). Open files and exports are closed as
        usual, and due sources stay due. Only the first call counts and is logged: later ones mostly
        have the same cause.
        """
        if self.ended_early:
            return
        self.ended_early = True
        self.end_reason = reason
        if message:
            logger.critical("%s", message)
        if self._crawler.engine.running:
            self._close_spider()
        else:  # Scrapy never stops an engine whose spider was closed before it started
            self._crawler.signals.connect(self._engine_started, signal=signals.engine_started)

    async def engine_stopped(self) -> None:
        """Remove the spider from the crawler if the crawl was ended early.

        Scrapy has no way to say that a crawl failed, and exits with 0 whatever the reason of its
        end. But its runner sets ``bootstrap_failed`` if a crawler has no spider at the end, and
        then the command that has the runner exits with 1.
        """
        await asyncio.sleep(0)  # other handlers may need the spider, or end the crawl early
        if self.ended_early:
            self._crawler.spider = None

    def machine_failed(self, problem: str) -> None:
        """End the crawl because this machine cannot make connections.

        ``problem`` is a clause for the log, for example "too many files are open". The current
        request ends with ``MachineTrouble``.
        """
        self.end("machine_trouble", f"{problem}; the run ends, and due sources stay due")

    @property
    def is_machine_failed(self) -> bool:
        """Whether the crawl ended because this machine cannot make connections."""
        return self.end_reason == "machine_trouble"

    def code_failed(self, error: BaseException) -> None:
        """Log an exception in the code of this add-on, and end the crawl."""
        if isinstance(error, RefusedValues):  # of a row of ours, such as that of a host
            advice = "remove the constraint or the trigger that refuses it, then start again"
            self.end("state_failed", f"the state database refuses a row: {error}; {advice}")
            return
        if not self.ended_early:
            logger.critical("an error in walsh-scrapy itself: %r", error, exc_info=error)
        self.end("gate_failed")

    def start(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a coroutine of this add-on. An error in it ends the crawl; the end cancels it."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """End the crawl if a coroutine failed: that is a bug of this add-on."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, IgnoreRequest):
            self.code_failed(error)

    def cancel_tasks(self) -> None:
        """Cancel the coroutines: the engine has stopped."""
        for task in self._tasks:
            task.cancel()

    def guard(self, failed: Callable[[Exception], Exception], watcher: Watcher) -> None:
        """Raise the result of ``failed`` in place of an unintended exception of our middlewares.

        Otherwise a bug of this add-on would look like a failure of a host (decision 29).
        ``watcher`` is called at each of our middlewares, and at the download handlers.
        """
        # Scrapy has no signal for an exception of a middleware, nor for a response that a download
        # handler returned: other middlewares may replace both before ours see them. So these
        # methods are wrapped where Scrapy has put them.
        downloader = self._crawler.engine.downloader
        for name, methods in downloader.middleware.methods.items():
            for place, method in enumerate(methods):
                kind = type(getattr(method, "__self__", None))
                if method is not None and kind.__module__.startswith("walsh_scrapy."):
                    guarded = _guarded(method, failed)
                    is_after = name != "process_request"
                    methods[place] = _watched(guarded, watcher, is_after=is_after)
        fetch = downloader.fetch

        def fetched(request: Request) -> Deferred[Response | Request]:
            return fetch(request).addCallback(partial(watcher.fetched, request))

        setattr(downloader, "fetch", fetched)  # noqa: B010 - a method, to mypy
        handlers = downloader.handlers
        download = partial(watcher.download, handlers.download_request_async)
        setattr(handlers, "download_request_async", download)  # noqa: B010 - a method, to mypy

    @property
    def active_count(self) -> int:
        """The number of requests in the downloader or one of its middlewares."""
        # Scrapy counts them in no stat, and a scheduler is not told how many may be active.
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
        # The signal spider_closed comes after the last request has ended.
        return self._slot is None or self._slot.closing is not None

    async def download(self, request: Request) -> Response:
        """Return the response to a request, past the scheduler. Middlewares may raise."""
        return await self._crawler.engine.download_async(request)

    def take_requests(self) -> None:
        """Let the engine call its scheduler now; by itself it does so every five seconds."""
        if self._slot:
            # A scheduler cannot say that a request which had to wait is ready now.
            self._slot.nextcall.schedule()

    def find_ended(self, requests: Iterable[Request]) -> list[Request]:
        """Return the requests that are no longer active."""
        active = self._crawler.engine.downloader.active
        return [request for request in requests if request not in active]

    def is_active(self, request: Request) -> bool:
        """Return True while a request is in the downloader or one of its middlewares."""
        # No signal says that a request has ended which a middleware denied.
        return request in self._crawler.engine.downloader.active

    def is_in_progress(self, request: Request) -> bool:
        """Return True until the response to a request, and all that came of it, is handled."""
        # A job keeps a request until then, and there is no signal for the end of its callback.
        return self._slot is not None and request in self._slot.inprogress

    @property
    def start_failed(self) -> bool:
        """Whether the spider's ``start`` raised, which Scrapy names as the reason of the end."""
        # A handler of spider_idle that closes the spider replaces that reason.
        return self._crawler.engine._start_error  # noqa: SLF001

    def _engine_started(self) -> None:
        self._end = asyncio.ensure_future(self._close_when_running())

    async def _close_when_running(self) -> None:
        """Close the spider as soon as the engine runs.

        Listeners of engine_started may take a while. If the spider is closed before they are done,
        Scrapy's runner does not wait for the end, and takes the crawl for a good one.
        """
        while not self._crawler.engine.running and self._slot is not None:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        self._close_spider()

    def _close_spider(self) -> None:
        if self._slot is not None:  # else only the exit status can change
            end = self._crawler.engine.close_spider_async(reason=self.end_reason)
            self._end = asyncio.ensure_future(end)

    @property
    def _slot(self) -> Any:  # noqa: ANN401 - Scrapy's own, with no public type
        # It is the only way to `nextcall`, `closing` and `inprogress`.
        return self._crawler.engine._slot  # noqa: SLF001


class Watcher(Protocol):
    """Sees the requests at our middlewares and at the download handlers."""

    async def download(self, handler: DownloadHandler, request: Request) -> Response:
        """Call the download handler of a request."""

    def check_unchanged(self, request: Request) -> None:
        """Raise for a request that a middleware of the project made unusable before ours."""

    def fetched(self, request: Request, result: Response | Request) -> Response | Request:
        """Return what comes of a request after all middlewares: a response, or another request."""

    def failed(self, request: Request, error: Exception, *, is_after: bool) -> None:
        """Note an exception of one of our middlewares, before the download or ``is_after`` it."""


def _watched(
    method: Callable[..., Awaitable[Any]], watcher: Watcher, *, is_after: bool
) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def watched(request: Request, **kwargs: Any) -> Any:  # noqa: ANN401 - as Scrapy calls it
        try:
            if not is_after:
                watcher.check_unchanged(request)
            return await method(request=request, **kwargs)
        except Exception as error:
            watcher.failed(request, error, is_after=is_after)
            raise

    return watched


def send_once(handler: HTTP11DownloadHandler, max_idle: int, idle_seconds: float) -> None:
    """Let Scrapy's handler send each request once, and keep few connections, for a short time."""
    # Twisted sends a GET again by itself if its kept connection breaks; no setting of Scrapy says
    # otherwise. It bounds the connections of each host, but not of all hosts together.
    pool: Any = handler._pool  # noqa: SLF001 - Twisted's own, whose types are incomplete
    pool.retryAutomatically = False
    pool.cachedConnectionTimeout = idle_seconds
    put_back = pool._putConnection  # noqa: SLF001

    def put_back_bounded(key: object, connection: object) -> None:
        put_back(key, connection)
        close_idle(handler, max_idle)

    pool._putConnection = put_back_bounded  # noqa: SLF001


def close_idle(handler: HTTP11DownloadHandler, left: int = 0) -> None:
    """Close the idle connections of Scrapy's handler, the oldest ones first, until few are left."""
    timeouts: dict[object, Any] = handler._pool._timeouts  # noqa: SLF001 - the oldest one first
    for timeout in list(timeouts.values())[: max(0, len(timeouts) - left)]:
        close, arguments = timeout.func, timeout.args
        timeout.cancel()
        close(*arguments)


def flush(dupefilter: BaseDupeFilter) -> None:
    """Write the fingerprints that a duplicate filter has buffered, so that a kill loses none."""
    # RFPDupeFilter has no method for it. Other classes may have no file.
    file = getattr(dupefilter, "file", None)
    if file is not None:
        file.flush()


class ScrapyQueue:
    """The requests that Scrapy's own scheduler keeps in the folder of a job.

    The files are those of the project's ``SCHEDULER_PRIORITY_QUEUE`` and ``SCHEDULER_DISK_QUEUE``.
    Scrapy reads only those that a clean end wrote, and has no way to read or write them without its
    scheduler. A job must be able to go on with the add-on and without it.
    """

    #: The names of the queues of each priority; the queues of start requests have an s.
    _NAME: Final = re.compile(r"-?[0-9]+s?")

    def __init__(self, crawler: Crawler, job: str) -> None:
        self._crawler = crawler
        self._job = job
        self._folder = Path(job, "requests.queue")
        self._active = Path(self._folder, "active.json")
        self._priorities = b""  # the file of the same name, before requests were taken
        self._scheduler: Scheduler | None = None
        self.unreadable = 0  #: requests that were taken, and cannot be made again
        #: Whether it may have requests that cannot be taken, so that none may be put there.
        self.is_foreign = True

    def take(self) -> Iterator[Request]:
        """Remove the requests, in the order in which Scrapy would send them."""
        if not self._active.exists() or not self._is_readable():
            return
        self._priorities = self._active.read_bytes()
        try:
            queue = self._open()
        except Exception as error:  # noqa: BLE001 - of any queue of the project
            logger.debug("%s cannot be opened: %r", self._folder, error)
            return
        for _ in range(2 * len(queue)):  # after an error an empty queue has to be removed
            try:
                request = queue.pop() if len(queue) else None
            except Exception as error:  # noqa: BLE001 - of any class of the project
                logger.debug("a request in %s cannot be read: %r", self._folder, error)
                self.unreadable += 1
                continue
            if request is not None:
                yield request

    def put(self, request: Request) -> None:
        """Add a request. Raises the exceptions of the project's queue."""
        self._open().push(request)

    def close(self) -> None:
        """Write the queue to disk."""
        if self._scheduler is not None:
            self._scheduler.close("")
            self._scheduler = None

    def hide(self) -> None:
        """Let only the user of this process read the folder: requests may have credentials."""
        with suppress(OSError):  # there is no folder if there was no request
            self._folder.chmod(0o700)

    def count_left(self) -> int:
        """Return the number of requests that were not taken, while the queue is closed.

        They stay as they are, for Scrapy with the settings with which they were written.
        """
        count = sum(self._requests_in(path) for path in self._files())
        self.is_foreign = count > 0
        if count and self._priorities:
            self._active.write_bytes(self._priorities)
        return count

    def _files(self) -> list[Path]:
        return [path for path in self._folder.rglob("*") if self._NAME.fullmatch(path.name)]

    def _is_readable(self) -> bool:
        """Return False if another class of queuelib wrote a file: it would be damaged."""
        settings = self._crawler.settings
        for path in self._files():
            is_of_start = path.name.endswith("s")
            name = settings["SCHEDULER_START_DISK_QUEUE" if is_of_start else "SCHEDULER_DISK_QUEUE"]
            storage = _storage_of(load_object(name)) if name else None
            if storage and storage != _writer_of(path):
                return False
        return True

    def _requests_in(self, path: Path) -> int:
        """Return the number of requests in a queue; 0 if it was not closed."""
        try:
            # Scrapy 2.18 has no class for files of SQLite, which a newer Scrapy may have written.
            queue = load_object(f"queuelib.queue.{_writer_of(path)}")(str(path))
            count = len(queue)
            queue.close()
        except (OSError, ValueError, KeyError, struct.error, sqlite3.Error):
            return 0
        return count

    def _open(self) -> Any:  # noqa: ANN401 - Scrapy makes its classes of queues
        if self._scheduler is None:
            settings = self._crawler.settings
            scheduler = Scheduler(
                BaseDupeFilter(),
                self._job,
                load_object(settings["SCHEDULER_DISK_QUEUE"]),
                load_object(settings["SCHEDULER_MEMORY_QUEUE"]),
                stats=StatsCollector(self._crawler),
                pqclass=load_object(settings["SCHEDULER_PRIORITY_QUEUE"]),
                crawler=self._crawler,
            )
            assert self._crawler.spider is not None  # noqa: S101 - it is being opened
            scheduler.open(self._crawler.spider)
            self._scheduler = scheduler
        return self._scheduler.dqs


def _writer_of(path: Path) -> str:
    """Return the name of queuelib's class for a queue: a folder, or one of two kinds of files."""
    if path.is_dir():
        return "FifoDiskQueue"
    with path.open("rb") as file:
        is_sqlite = file.read(15) == b"SQLite format 3"
    return "FifoSQLiteQueue" if is_sqlite else "LifoDiskQueue"


def _storage_of(queue: type) -> str | None:
    """Return the class of queuelib whose files a class of queues has, by name; None for others."""
    return next((base.__name__ for base in queue.__mro__ if base.__name__ in _STORAGES), None)


def _guarded(
    method: Callable[..., Any], failed: Callable[[Exception], Exception]
) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def guarded(**kwargs: Any) -> Any:  # noqa: ANN401 - as Scrapy calls it
        try:
            return await ensure_awaitable(method(**kwargs))
        except _OF_A_REQUEST:
            raise
        except Exception as error:
            raise failed(error) from error

    return guarded


#: What a middleware of ours raises about a request; every other exception is a mistake in it.
_OF_A_REQUEST: Final = (
    IgnoreRequest,
    Unreachable,
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    UnsupportedURLSchemeError,
)
#: LifoSQLiteQueue has the same files as FifoSQLiteQueue.
_STORAGES: Final = ("FifoDiskQueue", "LifoDiskQueue", "FifoSQLiteQueue")
#: SIGHUP comes when a terminal is closed; not every system has it.
_NAMES: Final = ("SIGTERM", "SIGINT", "SIGHUP")
_SIGNALS: Final = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))

#: The handler of the first signal; Scrapy then replaces it by that of the second. So a look at the
#: handler shows a signal even while the event loop stands still, when Scrapy sends no signal of its
#: own.
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


def environment_proxies(settings: BaseSettings) -> dict[str, tuple[bytes | None, str]]:
    """Return the credentials and the URL of each proxy of the environment, by the URLs' scheme."""
    # Scrapy's middleware reads the environment, and no public name says through which proxy it
    # sends a request. Ours must know it before it looks up the name of a host.
    return HttpProxyMiddleware(settings["HTTPPROXY_AUTH_ENCODING"]).proxies
