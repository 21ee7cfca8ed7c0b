"""Errors of the state's database as sentences: the database, the reason, and the remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DataError, IntegrityError

from walsh_scrapy.programname import program_name
from walsh_scrapy.state.url import POOLER, is_pooled, without_password
from walsh_scrapy.state.waiting import LOCK_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.exc import DBAPIError

#: The remedy for a database on PostgreSQL whose encoding cannot store every text.
CREATE_IN_UTF8: Final = (
    "create another one with CREATE DATABASE name ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' "
    "TEMPLATE template0, and name it in WALSH_STATE_URL"
)
#: PostgreSQL's serialization_failure and deadlock_detected: the transaction may be run again.
CONFLICTS: Final = ("40001", "40P01")
#: PostgreSQL's insufficient_privilege.
_NO_RIGHTS: Final = "42501"
#: PostgreSQL's invalid_sql_statement_name and duplicate_prepared_statement.
_NOT_PREPARED: Final = ("26000", "42P05")
#: The class of PostgreSQL's errors for a full disk, too little memory and too many connections.
_NO_RESOURCES: Final = "53"
#: PostgreSQL's errors for values beyond a limit, such as the size of a row in an index, and for
#: values that a trigger or a view refuses. SQLAlchemy has no class for these errors.
_REFUSED_VALUES: Final = ("54000", "54001", "P0001", "44000")
#: The statement that PostgreSQL's messages quote, with a mark below it.
_QUOTED_STATEMENT: Final = re.compile(r"\nLINE \d+: .*\n *\^")


class StateError(RuntimeError):
    """The state cannot be used: the database, the reason, and the remedy."""


class RefusedValues(ValueError):
    """The database does not accept a value of a transaction, of which nothing was written."""


def describe_error(engine: Engine, error: DBAPIError, subject: str = "") -> StateError:
    """Return the StateError for an error of the driver.

    ``subject`` is what the transaction was about, for example a URL; the message begins with it.
    """
    name = without_password(engine.url)
    # PostgreSQL's messages have several lines.
    reason = " ".join(_QUOTED_STATEMENT.sub("", str(error.orig)).split())
    prefix = f"{subject} is not recorded: " if subject else ""
    remedy = _remedy(engine, error)
    if "malformed JSON" in reason or "syntax for type json" in reason:
        names = f"`{program_name()} export -o entries.jsonl` names a damaged entry"
        remedy = f"a row is damaged, and {names}; delete the row, or restore a backup"
    return StateError(f"{prefix}{name} cannot be used as state: {reason}; {remedy}")


def _remedy(engine: Engine, error: DBAPIError) -> str:
    reason = str(error.orig)
    if engine.dialect.name != "sqlite":
        if "lock timeout" in reason:
            seconds = f"{LOCK_TIMEOUT_SECONDS:.0f} s"
            return f"another session holds a lock for {seconds}; end it, start again"
        if sqlstate_of(error) in _NOT_PREPARED and not is_pooled(engine.url):
            return f"there is a pooler in transaction mode: add ?{POOLER}=1 to WALSH_STATE_URL"
        if "conversion between UTF8 and" in reason:
            return CREATE_IN_UTF8
        if (sqlstate_of(error) or "").startswith(_NO_RESOURCES):
            return "check the server's disk space, memory and connection limit, then start again"
        if sqlstate_of(error) == _NO_RIGHTS:
            return "a crawl needs the role that owns the tables, or, for a new state, the database"
        return "check that the server runs and accepts the login, then start again"
    if "locked" in reason:
        return "another process holds its lock; end that process, then start again"
    if "unable to open" in reason:
        return "check the permission to read and write the file and its folder, then start again"
    if "full" in reason or "readonly" in reason or "disk I/O" in reason:
        return "check the free space and the permission to write, then start again"
    return "if the file is damaged, restore a backup, or move it away to start an empty state"


def refuses_values(error: DBAPIError) -> bool:
    """Return True if an error is about the values of a statement, and not about the database."""
    return isinstance(error, (IntegrityError, DataError)) or sqlstate_of(error) in _REFUSED_VALUES


def sqlstate_of(error: DBAPIError) -> str | None:
    """Return the SQLSTATE of an error of PostgreSQL, which has five characters."""
    return getattr(error.orig, "sqlstate", None)


def unusable_url(url: str, reason: object) -> StateError:
    """Return the StateError for a URL that names no database that can be opened."""
    return StateError(
        f"WALSH_STATE_URL is {without_password(url)!r}, which does not open a database ({reason}); "
        "write sqlite:////absolute/path.sqlite3 or postgresql+psycopg://user@host/database"
    )
