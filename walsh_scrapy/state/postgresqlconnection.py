"""PostgreSQL's connection, with an end to the wait for a server that says nothing more.

A server may be silent without an error: its machine is frozen, or a router drops all packets.
libpq waits for ever then, and no timeout of the server's own helps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.waiting import Ready

if TYPE_CHECKING:
    from collections.abc import Generator

    from walsh_scrapy.state.waiting import Waiting


class PostgreSQLConnection(psycopg.Connection[Any]):
    """A connection that is closed when its server was silent for longer than ``waiting`` allows."""

    waiting: Waiting | None = None  #: None until the connection is made, which has its own limit

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
        """Run an exchange with the server. Raises OperationalError if it is silent."""
        return super().wait(self._bound(gen), *arguments, **options)

    def _bound(self, exchange: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401 - psycopg's own
        """Pass an exchange's requests on; psycopg resumes it ten times a second."""
        began = time.monotonic()
        try:
            wanted = next(exchange)
            while True:
                ready = yield wanted
                if ready != Ready.NONE:
                    began = time.monotonic()
                elif self.waiting and not self.waiting.for_answer(began):
                    self.close()
                    seconds = time.monotonic() - began
                    raise psycopg.OperationalError(f"the server is silent for {seconds:.0f} s")
                wanted = exchange.send(ready)
        except StopIteration as end:
            return end.value
