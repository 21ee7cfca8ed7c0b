"""A log that the server writes, and that several threads may read."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class Log(Generic[Entry]):
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
