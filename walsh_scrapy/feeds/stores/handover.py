"""The hand-over of entries: each reader gets every entry, in the order of the entries' numbers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from sqlalchemy import bindparam, select

from walsh_scrapy.feeds.stores.entrystore import has_unnumbered, number_entries
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.errors import StateError
from walsh_scrapy.state.records import insert_into
from walsh_scrapy.state.tables import LAST_SEQ, STATE_ID, STATE_ID_SQL, choices, readers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

_POSITION: Final = re.compile(r"([0-9a-f]{16}):([0-9]{1,18})")
_POSITION_SQL: Final = select(choices).where(choices.c.name.in_((STATE_ID, LAST_SEQ)))
_SEQ_SQL: Final = select(readers.c.seq).where(readers.c.name == bindparam("reader"))


class Position(NamedTuple):
    """A place in the order in which readers get the entries of a state."""

    state: str | None  #: the id of the state; None before the first entry
    seq: int  #: the number of the last entry that the reader has got, 0 for none

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a position such as `0123456789abcdef:42`, or `0`: the begin. Raises ValueError."""
        if text == "0":
            return cls(None, 0)
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text[:60]!r} is not a position: copy one from the column `position` of "
                "`walsh new --json`, or write 0 to begin with the first entry"
            )
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.state}:{self.seq}"


class HandoverStore(Store):
    """Numbers entries, and remembers how far each reader has got."""

    def last_position(self) -> Position:
        """Give a number to all entries that have none; return the position of the last entry.

        A role that may only read can call this while every entry has its number.
        """
        if self._database.read(has_unnumbered):
            self._database.write(number_entries)
        return self._database.read(_last_position)

    @contextmanager
    def open_reader(self, name: str) -> Iterator[int | None]:
        """Keep other processes from reading as this reader for a block.

        The value is the number of the last entry that it has got, None for a new reader. Raises
        StateError if another process reads now.
        """
        # With the id, because the states of two bots may be schemas of one database.
        state_id = self._database.scalar(STATE_ID_SQL)
        with self._database.lock(f"reader {state_id} {name}") as is_free:
            if not is_free:
                raise StateError(
                    f"another process reads as {name!r} now; wait until it has ended, or read "
                    "under another name"
                )
            yield self._database.scalar(_SEQ_SQL, reader=name)

    def remember(self, name: str, seq: int, now: float) -> None:
        """Remember that a reader has got all entries up to a number.

        ``now`` is in epoch seconds.
        """
        changes = {"seq": seq, "read_at": now}

        def write(connection: Connection) -> None:
            new = insert_into(connection.dialect.name, readers).values(name=name, **changes)
            connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=changes))

        self._database.write(write)

    def check(self, position: Position, last: Position) -> None:
        """Raise StateError for a position that is not one of this state.

        ``last`` is the position of the last entry.
        """
        if position.state not in (None, last.state):
            raise StateError(
                f"the position {position} is of another state than {self._database}, whose id is "
                f"{last.state}: a copy or a restored backup has an id of its own; compare what you "
                f"have with all entries (`walsh new --after 0`), then go on at the "
                "last position"
            )
        if position.seq > last.seq:
            raise StateError(
                f"the position {position} is after the last entry of {self._database}, "
                f"{last}: was a backup restored? Compare what you have with all entries "
                f"(`walsh new --after 0`), then go on at the last position"
            )


def _last_position(connection: Connection) -> Position:
    values = {row.name: row.value for row in connection.execute(_POSITION_SQL)}
    return Position(values[STATE_ID], int(values[LAST_SEQ]))
