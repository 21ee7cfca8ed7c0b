"""Connections that are kept alive for the next request to their origin (R4, decision 26)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from walsh_scrapy.wire.proxy import Proxy
    from walsh_scrapy.wire.stream import Stream

#: Seconds after which an idle connection is closed.
MOST_AGE: Final = 15.0


class Endpoint(NamedTuple):
    """What a connection leads to; one that is kept serves requests with the same endpoint."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None
    bind_address: tuple[str, int] | None = None


class _Idle(NamedTuple):
    stream: Stream
    end: asyncio.TimerHandle


class IdleConnections:
    """Connections between two requests, bounded in number and age.

    If ``alone``, at most one connection is open at any time, busy or idle: a request holds
    ``turn``, and ``take`` closes an idle connection that the request cannot use.
    """

    def __init__(self, most: int, *, alone: bool) -> None:
        self._most = most
        self._alone = alone
        self._lock = asyncio.Lock() if alone else None
        self._idle: OrderedDict[Endpoint, _Idle] = OrderedDict()

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        """A context for one exchange, from before ``take`` until the connection is idle again."""
        return self._lock or nullcontext()

    @property
    def is_in_use(self) -> bool:
        """Whether an exchange has its turn; always True where several may have it at once."""
        return self._lock is None or self._lock.locked()

    def take(self, endpoint: Endpoint) -> Stream | None:
        """Return an idle connection to an endpoint, if there is one that the server left open."""
        if self._alone:
            for other in [each for each in self._idle if each != endpoint]:
                self._close(other)
        if (found := self._idle.pop(endpoint, None)) is None:
            return None
        found.end.cancel()
        if found.stream.has_unread:  # its end, or bytes that no request asked for
            found.stream.close()
            return None
        return found.stream

    def keep(self, endpoint: Endpoint, stream: Stream) -> None:
        """Keep a connection for the next request; the oldest is closed if there are too many."""
        self._close(endpoint)
        end = asyncio.get_running_loop().call_later(MOST_AGE, self._close, endpoint)
        self._idle[endpoint] = _Idle(stream, end)
        while len(self._idle) > self._most:
            self._close(next(iter(self._idle)))

    def close(self) -> None:
        """Close every idle connection."""
        for endpoint in list(self._idle):
            self._close(endpoint)

    def _close(self, endpoint: Endpoint) -> None:
        if found := self._idle.pop(endpoint, None):
            found.end.cancel()
            found.stream.close()
