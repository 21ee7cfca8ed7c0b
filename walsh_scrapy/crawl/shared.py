"""What the crawls of this process share: one event loop, and documents.

The serial crawls of a process share the counts of R4, and so they share an event loop. All share
robots.txt and the blocklist, whatever state each of them has (R2, R3): the first crawl that needs a
document fetches it, and the others wait. Each writes the copy into its own state, so that its
request log names the copy that it obeyed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from walsh_scrapy.policy.pacing import RECHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable

    from walsh_scrapy.policy.robots.copy import RobotsCopy
    from walsh_scrapy.state.records import BlocklistCopy

T = TypeVar("T")
_loops: Final[WeakKeyDictionary[object, asyncio.AbstractEventLoop]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


class AnotherLoop(RuntimeError):
    """A serial crawl runs in another event loop of this process already (R4)."""


#: Bytes of all documents of one kind that are kept in memory; the oldest go first.
MAX_BYTES: Final = 64 * 1024 * 1024


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
        if any(used is not loop and used.is_running() for used in _loops.values()):
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


class SharedDocuments(Generic[T]):
    """The last good copies of documents, by a key. ``size`` returns the bytes of one."""

    def __init__(self, size: Callable[[T], int]) -> None:
        self._size = size
        self._copies: OrderedDict[Hashable, T] = OrderedDict()
        self._bytes = 0
        self._locks: PerLoop[WeakValueDictionary[Hashable, asyncio.Lock]]
        self._locks = PerLoop(WeakValueDictionary)

    def find(self, key: Hashable) -> T | None:
        """Return the copy of a document, however old, or None."""
        return self._copies.get(key)

    def keep(self, key: Hashable, copy: T) -> None:
        """Replace the copy of a document."""
        replaced = self._copies.pop(key, None)
        if replaced is not None:
            self._bytes -= self._size(replaced)
        self._copies[key] = copy
        self._bytes += self._size(copy)
        while self._bytes > MAX_BYTES:
            self._bytes -= self._size(self._copies.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all copies."""
        self._copies.clear()
        self._bytes = 0

    @asynccontextmanager
    async def fetching(self, key: Hashable, check: Callable[[], None]) -> AsyncIterator[None]:
        """Fetch a document in an ``async with`` block, in which no other crawl fetches it.

        ``check`` is called regularly while this waits; its exception ends the wait.
        """
        lock = self._locks.get().setdefault(key, asyncio.Lock())
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(lock.acquire(), RECHECK_SECONDS)
                break
            check()
        try:
            yield
        finally:
            lock.release()


class SharedBlocklist(NamedTuple):
    """A blocklist as a state keeps it, and the document that it came from."""

    copy: BlocklistCopy
    document: bytes


#: By User-Agent and origin.
ROBOTS: Final[SharedDocuments[RobotsCopy]] = SharedDocuments(lambda copy: len(copy.body or b""))
#: By the URLs of list and schema.
BLOCKLISTS: Final[SharedDocuments[SharedBlocklist]] = SharedDocuments(
    lambda shared: len(shared.document)
)
