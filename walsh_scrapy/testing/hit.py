"""One request as the server saw it, and the log of these, which several threads may read."""

import json
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final, Generic, TypeVar

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One request and its response.

    `started` is taken after the request was read, `ended` before the last bytes of the response are
    written. So the gap between two hits is never shorter than the pause that the crawler made: a
    polite crawler never looks impolite. If the crawler disconnected early, `ended` is the last
    moment at which it was known to be connected.
    """

    started: float  #: seconds of `time.monotonic`, which all processes of a machine share
    ended: float  #: the same clock; infinite while the response is not complete
    wall: float  #: seconds since the epoch when `started` was taken
    method: str
    scheme: str
    host: str  #: lower-case, without port or trailing dot
    port: int
    path: str  #: as sent, with its query
    headers: Headers = ()  #: in the order of the wire
    number: int = 1  #: counts the requests for this page, from 1
    status: int = 0  #: of the response; 0 if there is none, or none yet
    answer: Headers = ()  #: the headers of the response
    size: int = 0  #: bytes of the response body that were written to the socket
    complete: bool = False  #: True if the whole response was written
    client: int = 0  #: the remote port; requests with the same one shared a connection

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

    def to_json(self) -> str:
        """Return the hit as one line of JSON; `ended` is null if it is infinite."""
        ended = None if math.isinf(self.ended) else self.ended
        return json.dumps(asdict(self) | {"ended": ended})

    @classmethod
    def from_json(cls, line: str) -> "Hit":
        """Return the hit that `to_json` wrote."""
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
    """Return the hits that `save_log` wrote."""
    return [Hit.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _named(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name.lower()]


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Return the largest number of spans, each with its start and its end, that share a moment."""
    # At the same moment, ends are counted first: (t, -1) sorts before (t, 1).
    edges = sorted(edge for start, end in spans for edge in ((start, 1), (end, -1)))
    return max(accumulate(change for _, change in edges), default=0)


Entry = TypeVar("Entry")


class SharedLog(Generic[Entry]):
    """Entries in the order in which they were opened; an entry may change later."""

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
        """Remove every entry, except those to keep."""
        with self._changed:
            self._entries = {key: entry for key, entry in self._entries.items() if keep(entry)}

    def wait_for(self, predicate: Callable[[Sequence[Entry]], bool], timeout: float) -> bool:
        """Block until the predicate is true for the log; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(list(self._entries.values())), timeout)
