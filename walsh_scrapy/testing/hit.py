"""The logs of a test web's servers: requests, and the TCP connections that they accepted.

Several threads may read both logs.

The end of a connection is learned from the kernel, which knows it in the order in which the client
acted. So a client that closes one connection and then opens another is never seen with two.
"""

import math
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, Generic, TypeVar
from urllib.parse import urljoin, urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One request and its response, as the server saw them.

    `started` is the moment after the request was read, `ended` the moment before the last bytes of
    the response are written. So the gap between two hits is never shorter than the delay of the
    crawler, and a polite crawler never looks impolite. If the crawler disconnected early, `ended`
    is the last moment at which it was known to be connected.
    """

    started: float  #: seconds of `time.monotonic`, which all processes of a machine share
    ended: float  #: the same clock; infinite while the response is not complete
    wall: float  #: seconds since the epoch when `started` was taken
    method: str
    scheme: str
    host: str  #: lower-case, without port or trailing dot
    port: int
    path: str  #: path and query as they were sent
    headers: Headers = ()  #: the request headers, in the order in which they were sent
    number: int = 1  #: this is the n-th request for the page
    status: int = 0  #: the status of the response; 0 if there is no response (yet)
    answer: Headers = ()  #: the headers of the response
    size: int = 0  #: bytes of the response body that were written to the socket
    complete: bool = False  #: True if the whole response was written
    client: int = 0  #: the remote port; requests with the same port shared a connection

    @property
    def origin(self) -> str:
        """Scheme, host and port: the scope of a robots.txt (RFC 9309 2.3)."""
        if self.port == DEFAULT_PORTS.get(self.scheme):
            return f"{self.scheme}://{self.host}"
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL that was requested."""
        return self.origin + self.path

    def header(self, name: str) -> str | None:
        """Return the first request header of that name, in any case."""
        return next(iter(self.header_values(name)), None)

    def header_values(self, name: str) -> list[str]:
        """Return every request header of that name, in any case."""
        return _named(self.headers, name)

    def answered(self, name: str) -> str | None:
        """Return the first response header of that name, in any case."""
        return next(iter(_named(self.answer, name)), None)


def _named(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name.lower()]


_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_UNWRITTEN: Final = re.compile(r"[^\x21-\x7e]")  # never in a URL; sent percent-encoded
_DOT_SEGMENT: Final = re.compile(r"(?<=/)(?:%2e|\.){1,2}(?=/|$)", re.IGNORECASE)
_SLASHES: Final = re.compile(r"^(https?:)?/{2,}", re.IGNORECASE)


def redirect_target(hit: Hit) -> str | None:
    """Return the URL that the response redirects to, spelled as in `Hit.url`, or None."""
    location = hit.answered("Location")
    if hit.status not in _REDIRECTS or location is None:
        return None
    marks = [location.find(mark) for mark in "?#" if mark in location]
    mark = min(marks, default=len(location))
    written = location[:mark].replace("\\", "/") + location[mark:]
    written = _UNWRITTEN.sub(lambda match: f"%{ord(match[0]):02X}", written.strip())
    try:
        parts = urlsplit(urljoin(hit.url, _SLASHES.sub(r"\1//", written)))
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
        host = f"[{host}]" if ":" in host else host
    except ValueError:  # not a URL
        return None
    netloc = host if port in (None, DEFAULT_PORTS.get(parts.scheme)) else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    path = _DOT_SEGMENT.sub(lambda match: match[0].lower().replace("%2e", "."), parts.path)
    if not path.startswith("//"):  # which would be read as a host
        path = urlsplit(urljoin("http://base.example/", path)).path
    return f"{parts.scheme}://{netloc}{path or '/'}{query}"


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Return the maximum number of spans, pairs of start and end, that overlap at one moment."""
    # At the same moment, ends are counted first: (t, -1) sorts before (t, 1).
    edges = sorted(edge for start, end in spans for edge in ((start, 1), (end, -1)))
    return max(accumulate(change for _, change in edges), default=0)


Entry = TypeVar("Entry")


class SharedLog(Generic[Entry]):
    """A log for several threads: entries in the order of their start, which may change later."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._next = 0
        self._changed = threading.Condition()

    def open(self, entry: Entry) -> int:
        """Add an entry and return its key."""
        with self._changed:
            self._next += 1
            self._entries[self._next] = entry
            self._changed.notify_all()
            return self._next

    def change(self, key: int, change: Callable[[Entry], Entry]) -> None:
        """Replace the entry of that key, unless the log was cleared in the meantime."""
        with self._changed:
            if key in self._entries:
                self._entries[key] = change(self._entries[key])
            self._changed.notify_all()

    def entries(self) -> list[Entry]:
        """Return a copy of the log."""
        with self._changed:
            return list(self._entries.values())

    def clear(self, keep: Callable[[Entry], bool] = lambda _: False) -> None:
        """Remove every entry for which `keep` is false."""
        with self._changed:
            self._entries = {key: entry for key, entry in self._entries.items() if keep(entry)}

    def wait_for(self, predicate: Callable[[Sequence[Entry]], bool], timeout: float) -> bool:
        """Block until the predicate is true for the log; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(list(self._entries.values())), timeout)


#: The values of `ConnectionRecord.handshake` with TLS.
FULL: Final = "full"
RESUMED: Final = "resumed"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """One TCP connection, by the server's `time.monotonic`."""

    host: str  #: the host by address, SNI or Host header; empty if unknown
    scheme: str
    opened: float  #: when it was accepted
    closed: float = math.inf  #: when the first of both ends closed it; infinite while it is open
    handshake: str = ""  #: "full" or "resumed"; "failed" unless it is complete; empty without TLS
    client: int = 0  #: the remote port; a `Hit` with the same port came over this connection
    address: str = ""  #: the local address: where the client connected to


class ConnectionLog:
    """The log of connections. It watches open connections to see when the client closes them."""

    def __init__(self) -> None:
        self._log = SharedLog[ConnectionRecord]()
        self._lock = threading.Lock()
        self._keys: dict[int, int] = {}  # of the log, by descriptor
        # On other systems than Linux a closed end is noticed only when the server reads.
        self._watch = select.epoll() if hasattr(select, "epoll") else None

    @property
    def descriptor(self) -> int | None:
        """A file descriptor that is readable while `sweep` has work; None without epoll."""
        return self._watch.fileno() if self._watch else None

    def open(self, accepted: socket.socket, client: int, host: str, scheme: str) -> "CountedSocket":
        """Add a connection that was just accepted, and return a socket that records its end."""
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
            counted = CountedSocket(accepted, client, key, self._record_end)
            self._keys[counted.fileno()] = key
            if self._watch:
                self._watch.register(counted, select.EPOLLRDHUP)
        return counted

    def change(self, counted: "CountedSocket", **changes: str) -> None:
        """Set fields of a connection's record that become known after it was accepted."""
        self._log.change(counted.key, lambda record: replace(record, **changes))  # type: ignore[arg-type]

    def sweep(self) -> None:
        """Record the end of every connection that its client has closed."""
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

    def _record_end(self, counted: "CountedSocket") -> None:
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
    """An accepted socket that records its end before the client can see that it was closed."""

    def __init__(
        self,
        accepted: socket.socket,
        client: int,
        key: int,
        on_close: Callable[["CountedSocket"], None],
    ) -> None:
        self.client = client  #: its remote port, which the system forgets after a reset
        self.key = key  #: the key of its record in the log
        self._on_close = on_close
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())

    def close(self) -> None:
        """Record the end of the connection, then close it."""
        if self.fileno() >= 0:
            self._on_close(self)
        super().close()


def most_open(records: Iterable[ConnectionRecord]) -> int:
    """Return the maximum number of connections that were open at one moment."""
    return most_at_once((record.opened, record.closed) for record in records)


def without_requests(connections: Iterable[ConnectionRecord], log: Iterable[Hit]) -> list[Hit]:
    """Return a hit for each connection on which no request came: its host was contacted anyway.

    The hit is a CONNECT without a response, like a tunnel in which TLS failed. It ends when it
    starts, because the server cannot know how long the client waited. Connections to a proxy are
    left out.
    """
    idle = {id(record): record for record in connections if record.host}
    by_client: dict[int, list[ConnectionRecord]] = {}
    for record in sorted(idle.values(), key=lambda record: record.opened):
        by_client.setdefault(record.client, []).append(record)
    for hit in log:
        records = by_client.get(hit.client, ())
        if earlier := [record for record in records if record.opened <= hit.started]:
            idle.pop(id(earlier[-1]), None)
    return [
        Hit(
            started=record.opened,
            ended=record.opened,
            wall=0.0,
            method="CONNECT",
            scheme=record.scheme,
            host=record.host,
            port=DEFAULT_PORTS[record.scheme],
            path="",
            client=record.client,
        )
        for record in idle.values()
    ]
