"""How long the state's connections wait: for a lock, an answer, a server that went away.

SQLite's own wait for a lock hears no signal, so `SQLiteConnection` repeats what found one.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from sqlalchemy.exc import DBAPIError

logger = logging.getLogger(__name__)

#: How long to wait for another process's transaction before that is an error.
LOCKED_SECONDS: Final = 10.0
#: How long a server may be silent; more than LOCKED_SECONDS, after which it reports a lock.
SILENT_SECONDS: Final = 20.0
#: How long to wait for anything once the run is to end.
ENDING_SECONDS: Final = 1.0
#: How long one attempt to connect may take: at the start, and later, when it is repeated.
CONNECT_SECONDS: Final = 10.0
RECONNECT_SECONDS: Final = 2.0  #: libpq takes no shorter time
#: How long a crawl waits for a database server that went away before it gives up.
LOST_SECONDS: Final = 120.0
_RETRY_SECONDS: Final = 1.0


class Waiting:
    """The waits of one Database; after one that took too long no other is begun.

    ``goes_on`` returns False once the run is to end. So a stopped or failed run ends within
    seconds, however many transactions are left.
    """

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self.goes_on = goes_on
        self.is_over = False
        self.is_open = False  #: True once the database was used, so that connections are repeated

    def for_lock(self, began: float) -> bool:
        """Return True while a lock may be waited for, since ``began`` by the monotonic clock."""
        return self._goes_on(began, LOCKED_SECONDS)

    def for_answer(self, began: float) -> bool:
        """Return True while a server may be silent, since ``began`` by the monotonic clock."""
        return self._goes_on(began, SILENT_SECONDS)

    def _goes_on(self, began: float, seconds: float) -> bool:
        limit = seconds if self.goes_on() else ENDING_SECONDS
        self.is_over = self.is_over or time.monotonic() - began > limit
        return not self.is_over


class Outage:
    """Waits for a server that went away, and says so in the log."""

    def __init__(self, name: str, waiting: Waiting) -> None:
        self._name = name
        self._waiting = waiting
        self._until: float | None = None
        self.is_final = False  #: True once the server was waited for in vain

    def wait(self, error: DBAPIError) -> None:
        """Return when the lost connection is to be made again; raise the error if it is not."""
        until = time.monotonic() + LOST_SECONDS if self._until is None else self._until
        is_late = time.monotonic() > until or not self._waiting.goes_on()
        if self._waiting.is_over or is_late:
            self.is_final = True
            raise error
        if self._until is None:
            self._until = until
            reason = str(error.orig).partition("\n")[0]
            logger.warning("%s is lost (%s); the crawl waits for it", self._name, reason)
            return  # mostly only the connection is lost, and a new one works at once
        time.sleep(_RETRY_SECONDS)

    def end(self) -> None:
        """Note that the server answers."""
        self._until = None
        logger.warning("%s is back; the crawl continues", self._name)


#: How long SQLite itself waits. It does so in C, where Python handles no signal.
BUSY_SECONDS: Final = 0.1
#: SQLite does not wait at all while another process switches the file to WAL mode.
_REPEAT_SECONDS: Final = 0.02
_PRIMARY_CODE: Final = 0xFF  # an extended code has more in its higher bits


class SQLiteConnection(sqlite3.Connection):
    """A connection that repeats what found a lock, as long as its ``waiting`` allows."""

    waiting: Waiting

    def cursor(self, factory: Any = None) -> Any:  # noqa: ANN401 - as in typeshed
        """Return a cursor that waits."""
        return super().cursor(factory or _Cursor)


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Self:  # noqa: ANN401 - as in typeshed
        connection: Any = self.connection
        began = time.monotonic()
        while True:
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError as error:
                is_locked = error.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
                # Within a transaction a statement that is repeated could wait for itself.
                if not is_locked or connection.in_transaction:
                    raise
                if not connection.waiting.for_lock(began):
                    raise
            time.sleep(_REPEAT_SECONDS)
