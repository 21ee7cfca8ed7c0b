"""Documents that the crawls of this process share, whatever state each of them has (R2, R3).

The first crawl that needs a document fetches it, and others wait for that. Each writes the copy
into its own state, so that its record names what was in force.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from walsh_scrapy.crawl.engine import PerLoop
from walsh_scrapy.policy.pacing import RECHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable

    from walsh_scrapy.policy.robots.copy import RobotsCopy
    from walsh_scrapy.state.records import BlocklistCopy

T = TypeVar("T")
#: Bytes of all documents of one kind that are kept in memory; the oldest go first.
MAX_BYTES: Final = 64 * 1024 * 1024


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
        """Wait until no other crawl fetches a document, and keep others from it meanwhile.

        ``check`` is called now and then; its exception ends the wait.
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
