"""Texts that many rows of the log repeat, and the names of copies: once, by number.

A number is found, or given, in the transaction that writes the row. What this process wrote on a
day it knows by heart, until a transaction fails. A text outlasts the rows that may name it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Select, Table, bindparam, case, func, select, update

from walsh_scrapy.state.rows import insert_if_new
from walsh_scrapy.state.tables import ITS_URL, NUMBERED, requests, texts

if TYPE_CHECKING:
    from walsh_scrapy.state.connection import Connection

#: Seconds for which a text counts as used, so that its row is not written for each request.
_REFRESH: Final = 86_400.0
#: Numbers that a process knows by heart.
_MOST: Final = 10_000
#: Characters of the longest text that is its own name; a hash names a longer one.
_LONGEST_NAME: Final = 64
#: What stands for a text that is no longer there, which only a change of the state explains.
LOST: Final = "?"
_OF_NAME: Final = texts.c.name == bindparam("key")
_FIND: Final = select(texts.c.id).where(_OF_NAME)
_FIND_USE: Final = select(texts.c.used_at).where(_OF_NAME)
_USE: Final = update(texts).where(_OF_NAME).values(used_at=bindparam("now"))


class _Memory:
    """Numbers of texts and until when they count, as one connection wrote them."""

    def __init__(self) -> None:
        self.failures = 0  #: transactions of the connection that failed until now
        self.known: dict[str, tuple[int, float]] = {}


_memories: WeakKeyDictionary[Connection, _Memory] = WeakKeyDictionary()


def number(connection: Connection, text: str, now: float) -> int:
    """Return the number of a text, within a transaction; ``now`` is in epoch seconds."""
    memory = _memories.setdefault(connection, _Memory())
    if memory.failures != connection.failures:  # what they gave a number may have none
        memory.failures = connection.failures
        memory.known.clear()
    found, until = memory.known.get(text, (0, 0.0))
    if not until - _REFRESH <= now <= until:
        found = _write(connection, text, now)
        if len(memory.known) >= _MOST:
            del memory.known[next(iter(memory.known))]
        memory.known[text] = found, now + _REFRESH
    return found


def numbered(connection: Connection, row: dict[str, Any], now: float) -> dict[str, Any]:
    """Return a row of the log with the numbers of its texts.

    They are written in one order, else each of two transactions could wait for the other.
    """
    given = sorted({row[name] for name in NUMBERED if row.get(name) is not None})
    numbers = {text: number(connection, text, now) for text in given}
    return row | {name: numbers.get(row[name]) for name in NUMBERED if name in row}


def selected(table: Table, names: tuple[str, ...]) -> Select[Any]:
    """Return the query for columns of a table of the log, as they were before they were written.

    Each number is the text again, and a source that is the URL of its request is that URL.
    """
    source: Any = table
    columns = list[ColumnElement[Any]]()
    for name in names:
        column = table.c[name]
        if name in NUMBERED:
            named = texts.alias(f"text_of_{name}")
            source = source.outerjoin(named, named.c.id == column)
            text = func.coalesce(named.c.text, named.c.name, LOST)
            columns.append(case((column.is_not(None), text)).label(name))
        elif column is requests.c.source:
            its_own = (column == ITS_URL, requests.c.url)
            columns.append(case(its_own, else_=column).label(name))
        else:
            columns.append(column)
    return select(*columns).select_from(source)


def _write(connection: Connection, text: str, now: float) -> int:
    is_name = len(text) <= _LONGEST_NAME
    name = text if is_name else f"#{sha256(text.encode()).hexdigest()}"
    used_at = connection.scalar(_FIND_USE, {"key": name})
    is_used = used_at is not None and used_at > now - _REFRESH
    if not is_used and not connection.run(_USE, {"key": name, "now": now}):
        row = {"name": name, "text": None if is_name else text, "used_at": now}
        insert_if_new(connection, texts, row)
    found: int = connection.scalar(_FIND, {"key": name})
    return found
