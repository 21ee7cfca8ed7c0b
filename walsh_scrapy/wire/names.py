"""Host names and their addresses, looked up in the system's way (R4, decision 27)."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from scrapy.utils.datatypes import LocalCache

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Seconds for which addresses are used again: the system does not say how long they are valid.
MOST_AGE: Final = 60.0
#: Names kept at once.
MOST_NAMES: Final = 10_000
#: Lookups ahead that run at the same time.
MOST_AHEAD: Final = 8

#: As ``socket.getaddrinfo`` returns it: family, type, protocol, canonical name, address.
AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


class Addresses(NamedTuple):
    """The addresses of a name: those that are judged are those that are connected to."""

    infos: tuple[AddressInfo, ...]  #: in the order of RFC 6724, as the system sorts them

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses as text, without ports."""
        return tuple(str(info[4][0]) for info in self.infos)


class _Known(NamedTuple):
    addresses: Addresses
    since: float  #: by the monotonic clock


class Names:
    """Looks up names by ``getaddrinfo``, so by ``/etc/hosts`` and whatever else the system uses.

    Each lookup has a thread of its own, because the system may take as long as it likes, and a
    thread cannot be stopped. These threads do not delay the end of the process.
    """

    def __init__(self) -> None:
        self._known: LocalCache[tuple[str, int], _Known] = LocalCache(MOST_NAMES)
        self._running: dict[tuple[str, int], asyncio.Future[Addresses]] = {}

    async def find(self, host: str, port: int) -> Addresses:
        """Return the addresses of a host, from memory if they were found lately.

        There is no time limit here: a caller who stops waiting does not stop the lookup. Raises
        socket.gaierror if there is no address, another OSError if this machine cannot ask, and
        UnicodeError for a text that is no name.
        """
        if known := self._recall(host, port):
            return known
        # Shielded, because several requests may wait for one lookup.
        return await asyncio.shield(self._lookup(host, port))

    def look_ahead(self, names: Iterable[tuple[str, int]]) -> None:
        """Begin to look up hosts that are asked soon; ``find`` asks again after a failure."""
        for host, port in names:
            if len(self._running) >= MOST_AHEAD:
                return
            if not self._recall(host, port):
                self._lookup(host, port)

    def _recall(self, host: str, port: int) -> Addresses | None:
        known = self._known.get((host, port))
        return known.addresses if known and time.monotonic() - known.since < MOST_AGE else None

    def _lookup(self, host: str, port: int) -> asyncio.Future[Addresses]:
        key = host, port
        if key not in self._running:
            future = self._running[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda ended: self._ended(key, ended))
            thread = threading.Thread(target=_look_up, args=(host, port, future), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there are too many threads
                future.set_exception(OSError(errno.EAGAIN, str(error)))
            return future
        return self._running[key]

    def _ended(self, key: tuple[str, int], future: asyncio.Future[Addresses]) -> None:
        del self._running[key]
        if not future.cancelled() and future.exception() is None:
            self._known[key] = _Known(future.result(), time.monotonic())


def _look_up(host: str, port: int, future: asyncio.Future[Addresses]) -> None:
    """Look up a name in a thread, and settle the future in its own loop."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        outcome: Addresses | Exception = Addresses(tuple(found))  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001 - it is the outcome of the lookup
        outcome = error
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        future.get_loop().call_soon_threadsafe(_settle, future, outcome)


def _settle(future: asyncio.Future[Addresses], outcome: Addresses | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
