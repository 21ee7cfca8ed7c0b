"""How long a crawl waits for its database: for a lock, a silent server, or one that went away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

#: Seconds of waiting for another process's transaction before that is an error.
LOCK_TIMEOUT_SECONDS: Final = 10.0
#: Seconds that a transaction may stay idle. That is less than others wait for its locks, so a
#: process that is frozen within a transaction harms nobody.
IDLE_TIMEOUT_SECONDS: Final = 5.0
#: Seconds that a server may stay silent. That is more than it waits for a lock without a word.
SILENCE_TIMEOUT_SECONDS: Final = 20.0
#: The same for a statement of an upgrade, which changes all rows of a table.
UPGRADE_SILENCE_TIMEOUT_SECONDS: Final = 3600.0
#: Seconds that a crawl waits for a database server that went away.
LOST_SERVER_TIMEOUT_SECONDS: Final = 120.0
#: Seconds of an attempt to connect: of the first one, and of each later one. libpq accepts no time
#: shorter than 2 s.
CONNECT_TIMEOUT_SECONDS: Final = 10.0
RECONNECT_TIMEOUT_SECONDS: Final = 2.0
#: Seconds of any wait once the run is to end.
ENDING_TIMEOUT_SECONDS: Final = 1.0


class Waiting:
    """The waits of one `Database`; after a wait that took too long there is no other one.

    ``may_wait`` returns False once the run is to end. So a run that was stopped or failed ends
    within seconds, however many transactions follow. Moments are times of the monotonic clock.
    A server may be silent for ``silence_seconds`` during a statement.
    """

    def __init__(
        self, may_wait: Callable[[], bool], silence_seconds: float = SILENCE_TIMEOUT_SECONDS
    ) -> None:
        self.may_wait = may_wait
        self.silence_seconds = silence_seconds
        self.is_over = False
        self.is_open = False  #: True once the database was used, so that connections are repeated

    def may_last(self, began: float, seconds: float) -> bool:
        """Return True while a wait that ``began`` then may go on, ``seconds`` at most.

        The first wait that takes too long ends all waits.
        """
        limit = seconds if self.may_wait() else ENDING_TIMEOUT_SECONDS
        self.is_over = self.is_over or time.monotonic() - began > limit
        return not self.is_over


def bounded_connector(waiting: Waiting) -> Callable[..., object]:
    """Return a function that opens connections which are closed if their server is silent too long.

    A server may be silent without an error: its machine is frozen, or a router drops all packets.
    libpq would wait forever then, and no timeout of the server helps.
    """
    # The driver is in an extra, so it may be absent.
    import psycopg  # noqa: PLC0415
    from psycopg.waiting import Ready  # noqa: PLC0415

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
            return super().wait(self._bound(gen), *arguments, **options)

        def _bound(self, exchange: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401 - psycopg's
            """Pass on what an exchange waits for; psycopg resumes it ten times per second."""
            began = time.monotonic()
            try:
                wanted = next(exchange)
                while True:
                    ready = yield wanted
                    if ready != Ready.NONE:
                        began = time.monotonic()
                    elif not waiting.may_last(began, waiting.silence_seconds):
                        self.close()
                        seconds = time.monotonic() - began
                        raise psycopg.OperationalError(f"the server is silent for {seconds:.0f} s")
                    wanted = exchange.send(ready)
            except StopIteration as end:
                return end.value

    def connect(
        _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> BoundedConnection:
        if waiting.is_open:
            options = options | {"connect_timeout": RECONNECT_TIMEOUT_SECONDS}
        return BoundedConnection.connect(*arguments, **options)

    return connect
