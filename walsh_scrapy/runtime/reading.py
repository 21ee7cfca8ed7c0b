"""Documents are read without standing in the way of the crawl (decision 34).

What is cheap to read is read where the spider asks for it. What may be costly is read ahead, in a
process of its own, while the crawl goes on: timers, signals and other requests. That process is
ended when a document takes too long, and with the crawl.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final, cast
from weakref import WeakKeyDictionary

from walsh_scrapy.exceptions import GivenUp, MachineTrouble, RequestDeferred
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.runtime.context import SystemClock
from walsh_scrapy.runtime.readingworker import CPU_SECONDS, receive, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response

    from walsh_scrapy.metadata.document import Document
    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.runtime.context import Clock
    from walsh_scrapy.runtime.engine import Engine

#: Seconds for one document where processor time cannot be limited, or the machine is busy.
WALL_SECONDS: Final = 6.0 * CPU_SECONDS
GRACE_SECONDS: Final = 1.0  #: for the document in hand when the crawl ends
LOOK_SECONDS: Final = 0.1
#: How a process ends that has used up its processor time; not on every system.
_USED_UP: Final = -getattr(signal, "SIGPROF", 0) or None

_ahead: WeakKeyDictionary[Response, Feed | Exception] = WeakKeyDictionary()


def read(response: Response, document: Document) -> Feed:
    """Return the feed or the links in a document, which may have been read ahead.

    Raises NotAFeed, also if reading took too long, and GivenUp if the crawl ended meanwhile.
    """
    result = _ahead.pop(response, None)
    if isinstance(result, Exception):
        raise result
    return result or document.read()


class Readings:
    """Reads the costly documents of one crawl ahead, one at a time."""

    def __init__(
        self, engine: Engine, clock: Clock, worker: Callable[[], Worker] | None = None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._start = worker or Worker
        self._worker: Worker | None = None
        self._turn = asyncio.Lock()

    async def ahead(self, response: Response, document: Document) -> None:
        """Read a document that is costly; `read` then returns the result, or raises it."""
        # In simulated time another process would seem to take hours.
        if not (document.is_costly and isinstance(self._clock, SystemClock)):
            return
        async with self._turn:
            try:
                _ahead[response] = await self._read(document)
            except (RequestDeferred, NotAFeed) as error:
                _ahead[response] = error

    async def _read(self, document: Document) -> Feed:
        try:
            self._worker = worker = self._worker or self._start()
        except OSError as error:
            reason = f"no process could be started to read {document.url}: {error.strerror}"
            raise MachineTrouble(self._clock.now(), reason) from error
        running = asyncio.ensure_future(asyncio.to_thread(worker.ask, pickle.dumps(document)))
        left, gave_up = WALL_SECONDS, False
        # Scrapy has no signal for the moment at which a spider begins to close.
        while not (await asyncio.wait({running}, timeout=LOOK_SECONDS))[0]:
            if self._engine.is_closing and not gave_up:
                left, gave_up = min(left, GRACE_SECONDS), True
            left -= LOOK_SECONDS
            if left <= 0:
                worker.end()
        answer = await running
        if answer is None:
            self._worker, status = None, worker.end()
            if gave_up:
                raise GivenUp(self._clock.now(), "the crawl ended")
            if left <= 0 or status == _USED_UP:
                raise NotAFeed(f"Reading {document.url} took longer than {CPU_SECONDS} s.")
            raise NotAFeed(f"Reading {document.url} ended the process that read it ({status}).")
        result: Feed | NotAFeed = pickle.loads(answer)  # noqa: S301 - of our own process
        if isinstance(result, NotAFeed):
            raise result
        return result

    def close(self) -> None:
        """End the process, if there is one; the next costly document starts another."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class Worker:
    """A process that reads documents. It is started anew, not forked: a crawl has threads."""

    def __init__(self) -> None:
        path = os.pathsep.join(map(os.path.abspath, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "walsh_scrapy.runtime.readingworker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )

    def ask(self, message: bytes) -> bytes | None:
        """Return the answer of the process; None if it has ended. Called in a thread."""
        try:
            send(cast("BinaryIO", self._process.stdin), message)
            return receive(cast("BinaryIO", self._process.stdout))
        except (OSError, ValueError):  # it ended, or was ended
            return None

    def end(self) -> int:
        """Kill the process unless it has ended; return how it ended, as `subprocess` has it."""
        self._process.kill()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not sent yet
                cast("BinaryIO", pipe).close()
        return status
