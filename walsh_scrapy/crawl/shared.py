"""What the serial crawls of this process share: an event loop, and with it the counts of R4."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
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
