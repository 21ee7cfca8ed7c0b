"""The TCP connections that a web of a test accepted: when each was open, and its TLS handshake.

The kernel tells when a client has closed its end: before the server reads what that client sent
last, and in the order in which the client acted. So a client that closes one connection and then
opens another is never seen with two.
"""

import math
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from walsh_scrapy.testing.hit import SharedLog, most_at_once

#: What `ConnectionRecord.handshake` is with TLS.
FULL: Final = "full"
RESUMED: Final = "resumed"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """One TCP connection, by the server's `time.monotonic`."""

    host: str  #: that the client wanted, by address, SNI or Host; empty if nothing told
    scheme: str
    opened: float  #: when it was accepted
    closed: float = math.inf  #: when the first of both ends closed it; infinite while it is open
    handshake: str = ""  #: "full" or "resumed"; "failed" unless it is complete; empty without TLS
    client: int = 0  #: the remote port; a `Hit` with the same one came over this connection
    address: str = ""  #: the local address: where the client connected to


class ConnectionLog:
    """The log of connections, and the watch over those that are open."""

    def __init__(self) -> None:
        self._log = SharedLog[ConnectionRecord]()
        self._lock = threading.Lock()
        self._keys: dict[int, int] = {}  # of the log, by descriptor
        # Elsewhere than on Linux, closed ends are noticed only when the server reads.
        self._watch = select.epoll() if hasattr(select, "epoll") else None

    @property
    def descriptor(self) -> int | None:
        """What is readable while `sweep` has something to do; None where that is unknown."""
        return self._watch.fileno() if self._watch else None

    def open(self, accepted: socket.socket, client: int, host: str, scheme: str) -> "CountedSocket":
        """Add a connection that was just accepted; return its socket, which tells when it ends."""
        self.sweep()
        address = accepted.getsockname()[0]
        with self._lock:
            record = ConnectionRecord(
                host,
                scheme,
                opened=time.monotonic(),
                handshake=FAILED if scheme == "https" else "",
                client=client,
                address=address,
            )
            key = self._log.open(record)
            counted = CountedSocket(accepted, client, key, self._ended)
            self._keys[counted.fileno()] = key
            if self._watch:
                self._watch.register(counted, select.EPOLLRDHUP)
        return counted

    def change(self, counted: "CountedSocket", **changes: str) -> None:
        """Set fields of a record that become known later."""
        self._log.change(counted.key, lambda record: replace(record, **changes))  # type: ignore[arg-type]

    def sweep(self) -> None:
        """Note the connections whose clients have closed them."""
        if self._watch is None:
            return
        with self._lock:
            if not self._watch.closed:
                for descriptor, _ in self._watch.poll(0):
                    self._end(descriptor)

    def records(self) -> list[ConnectionRecord]:
        """Return a copy of the log, in the order in which the connections were opened."""
        self.sweep()
        return self._log.entries()

    def wait_for(
        self, predicate: Callable[[Sequence[ConnectionRecord]], bool], timeout: float
    ) -> bool:
        """Block until the predicate is true for the records; return False after `timeout` s."""
        return self._log.wait_for(predicate, timeout)

    def clear(self) -> None:
        """Remove the records of all connections that are closed."""
        self.sweep()
        self._log.clear(keep=lambda record: math.isinf(record.closed))

    def close(self) -> None:
        """End the watch."""
        with self._lock:
            if self._watch:
                self._watch.close()

    def _ended(self, counted: "CountedSocket") -> None:
        with self._lock:
            self._end(counted.fileno())

    def _end(self, descriptor: int) -> None:
        if (key := self._keys.pop(descriptor, None)) is None:
            return
        if self._watch and not self._watch.closed:
            self._watch.unregister(descriptor)
        now = time.monotonic()
        self._log.change(key, lambda record: replace(record, closed=now))


class CountedSocket(socket.socket):
    """An accepted socket that tells when the server closes it, before the client can see that."""

    def __init__(
        self,
        accepted: socket.socket,
        client: int,
        key: int,
        ended: Callable[["CountedSocket"], None],
    ) -> None:
        self.client = client  #: its remote port, which the system forgets after a reset
        self.key = key  #: of its record
        self._ended = ended
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())

    def close(self) -> None:
        """Note the end of the connection, then close it."""
        if self.fileno() >= 0:
            self._ended(self)
        super().close()


def most_open(records: Iterable[ConnectionRecord]) -> int:
    """Return the largest number of connections that were open at one moment."""
    return most_at_once((each.opened, each.closed) for each in records)
