"""The clock that all workers share: the clock of the database.

A statement reads the present as `NOW`, so that two machines whose clocks differ still agree how
long a host must wait. `ServerClock` gives the same time between statements.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from sqlalchemy import Double, bindparam, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection

#: Seconds after which the clock of the server is read again, because somebody may have set it.
MAX_CLOCK_AGE_SECONDS: Final = 1.0
#: Seconds that the time of day may move against the monotonic clock, for example while NTP slews
#: it. After a larger step the machine was suspended, which stops its monotonic clock, or its time
#: of day was set.
MAX_SLEW_SECONDS: Final = 0.05


class _ServerNow(FunctionElement[float]):
    type = Double()
    inherit_cache = True


@compiles(_ServerNow, "postgresql")
def _compile_for_postgresql(*_: object, **__: object) -> str:
    # One moment for the whole statement, from before it waits for a lock: ages count to it.
    return "extract(epoch FROM statement_timestamp())::double precision"


@compiles(_ServerNow, "sqlite")
def _compile_for_sqlite(*_: object, **__: object) -> str:
    return "NULL"


#: The present in epoch seconds, for statements that are run with the parameter of `clock_of`.
NOW: Final[ColumnElement[float]] = func.coalesce(bindparam("now", type_=Double), _ServerNow())


def clock_of(connection: Connection) -> dict[str, float | None]:
    """Return the parameter of `NOW`.

    It is None on PostgreSQL, which reads its own clock. SQLite gets the clock of this machine. The
    execution option ``clock``, a function that returns epoch seconds, replaces both.
    """
    clock = connection.get_execution_options().get("clock")
    if clock is None and connection.dialect.name == "sqlite":
        clock = time.time
    return {"now": None if clock is None else clock()}


class ServerClock:
    """The time of a server without a query each time: an offset to this machine's monotonic clock.

    Nobody sets the monotonic clock, so the offset stays right until the server's clock is set.
    """

    def __init__(self) -> None:
        self._measured_at = -math.inf
        # Seconds that each clock is ahead of the monotonic clock.
        self._server_ahead = 0.0
        self._wall_ahead = math.inf

    def now(self) -> float:
        """Return epoch seconds by the last measurement."""
        return time.monotonic() + self._server_ahead

    @property
    def is_old(self) -> bool:
        """Whether the server's clock should be measured again."""
        now = time.monotonic()
        return now - self._measured_at > MAX_CLOCK_AGE_SECONDS or self._wall_clock_jumped(now)

    def _wall_clock_jumped(self, now: float) -> bool:
        """Return True before the first measurement, and if this machine slept or was set since."""
        return abs(time.time() - now - self._wall_ahead) > MAX_SLEW_SECONDS

    def measure(self, read: Callable[[], float]) -> None:
        """Measure the offset; ``read`` queries the server's clock and returns epoch seconds."""
        began = time.monotonic()
        now = read()
        ended = time.monotonic()
        ahead = now - (began + ended) / 2  # the server looked at its clock in between
        # A slow answer may be less exact than the last measurement: keep that if both can be true.
        if abs(ahead - self._server_ahead) > (ended - began) / 2 or self._wall_clock_jumped(ended):
            self._server_ahead = ahead
        self._wall_ahead = time.time() - ended
        self._measured_at = ended
