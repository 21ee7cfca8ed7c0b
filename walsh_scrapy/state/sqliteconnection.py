"""SQLite's connection, with waits for a lock during which signals are heard."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import Self

    from walsh_scrapy.state.waiting import Waiting

#: How long SQLite itself waits. It does so in C, where Python handles no signal.
BUSY_SECONDS: Final = 0.1
#: SQLite does not wait at all while another process switches the file to WAL mode.
_RETRY_SECONDS: Final = 0.02
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
            time.sleep(_RETRY_SECONDS)
