"""One request as a server saw it, and a log of them that several threads may read."""

import json
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One exchange, timed so that a crawler that keeps its word can never look as if it did not.

    `started` is taken after the request was read, `ended` before the last bytes of the answer were
    handed to the socket: between two hits the crawler waited at most what the log shows. Of an
    exchange that the crawler left, `ended` is the last moment at which it was known to be there.
    """

    started: float  #: seconds of `time.monotonic`, which all processes of a machine share
    ended: float  #: the same clock; infinite while the exchange is going on
    wall: float  #: seconds since the epoch when `started` was taken
    method: str
    scheme: str
    host: str  #: lower-case, without port or trailing dot
    port: int
    path: str  #: as sent, with its query
    headers: Headers = ()  #: in the order of the wire
    number: int = 1  #: the how many-th request for this page of the web, from 1
    status: int = 0  #: 0 when nothing was answered, or nothing yet
    answer: Headers = ()  #: the headers of the answer
    size: int = 0  #: bytes of the answer's body that were handed to the socket
    complete: bool = False  #: whether the whole answer was
    client: int = 0  #: the remote port: requests that share one came on one connection

    @property
    def origin(self) -> str:
        """Scheme, host and port: what a robots.txt is for."""
        if self.port == DEFAULT_PORTS.get(self.scheme):
            return f"{self.scheme}://{self.host}"
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL that was asked for."""
        return self.origin + self.path

    def header(self, name: str) -> str | None:
        """Return the first request header of that name, in any case."""
        return next(iter(self.header_values(name)), None)

    def header_values(self, name: str) -> list[str]:
        """Return every request header of that name, in any case."""
        return _named(self.headers, name)

    def answered(self, name: str) -> str | None:
        """Return the first header of the answer of that name, in any case."""
        return next(iter(_named(self.answer, name)), None)

    def to_json(self) -> str:
        """Return the hit as one line of JSON; an exchange still going on ends with null."""
        ended = None if math.isinf(self.ended) else self.ended
        return json.dumps(asdict(self) | {"ended": ended})

    @classmethod
    def from_json(cls, line: str) -> "Hit":
        """Read what `to_json` wrote."""
        fields = json.loads(line)
        for name in ("headers", "answer"):
            fields[name] = tuple((key, value) for key, value in fields[name])
        if fields["ended"] is None:
            fields["ended"] = math.inf
        return cls(**fields)


def save_log(log: Iterable[Hit], path: Path) -> None:
    """Write hits as JSON lines."""
    path.write_text("".join(f"{hit.to_json()}\n" for hit in log), encoding="utf-8")


def load_log(path: Path) -> list[Hit]:
    """Read the hits that `save_log` wrote, perhaps in another process."""
    return [Hit.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Log:
    """Hits in the order in which they started; the server writes, anybody reads or waits."""

    def __init__(self) -> None:
        self._hits: dict[int, Hit] = {}
        self._next = 0
        self._changed = threading.Condition()

    def open(self, hit: Hit) -> int:
        """Add an exchange that has just begun and return its key."""
        with self._changed:
            self._next += 1
            self._hits[self._next] = hit
            self._changed.notify_all()
            return self._next

    def close(self, key: int, hit: Hit) -> None:
        """Put what became of the exchange in its place, unless it was cleared away meanwhile."""
        with self._changed:
            if key in self._hits:
                self._hits[key] = hit
            self._changed.notify_all()

    def hits(self) -> list[Hit]:
        """Return a copy of the log."""
        with self._changed:
            return list(self._hits.values())

    def clear(self) -> None:
        """Forget every hit."""
        with self._changed:
            self._hits.clear()

    def wait_for(self, predicate: Callable[[Sequence[Hit]], bool], timeout: float) -> bool:
        """Block until the predicate holds of the log; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(list(self._hits.values())), timeout)


def _named(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name.lower()]
