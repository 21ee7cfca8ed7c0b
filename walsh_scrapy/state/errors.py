"""Errors of the state's database as sentences: the database, the reason, and the remedy."""

from __future__ import annotations

import re
import sqlite3
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
    "TEMPLATE template0, and name that one"
)
#: The remedy for an SQLite file with a damaged page.
DAMAGED: Final = "if the file is damaged, restore a backup, or move it away to start an empty state"
#: PostgreSQL's serialization_failure and deadlock_detected, and the error of a prepared statement
#: whose table another process has upgraded: the transaction may be run again.
CONFLICTS: Final = ("40001", "40P01", "0A000")
#: PostgreSQL's read_only_sql_transaction: after a failover, or for a role that may only read.
READ_ONLY: Final = "25006"
#: PostgreSQL's invalid_sql_statement_name and duplicate_prepared_statement.
_NOT_PREPARED: Final = ("26000", "42P05")
_OTHER_TABLES: Final = (
    "its tables are not as walsh-scrapy made them; restore a backup, or name another database"
)
#: The remedies for errors of PostgreSQL by their SQLSTATE, or by a class of SQLSTATEs.
_REMEDIES: Final = {
    "08": "check that the server runs and accepts the login, then start again",
    "25006": "the server, the database or the role only allows reading: wait until a failover is "
    "over, name the primary server, or set default_transaction_read_only = off "
    "for the role, then start again",
    "25P03": "set a longer idle_in_transaction_session_timeout for the role, then start again",
    "25P04": "set a longer transaction_timeout for the role, then start again",
    "3D000": "create the database, or name another one",
    "3F000": "set the search_path of the role to a schema that exists, then start again",
    "40": "other sessions change the same rows again and again; end them, then start again",
    "42": _OTHER_TABLES,
    "42501": "a crawl needs the role that owns the tables, or, for a new state, the database",
    "53": "check the server's disk space, memory and connection limit, then start again",
    "53300": "a crawl and a command need two connections each: raise the connection limit of the "
    "server, the database or the role, or end other sessions, then start again",
    "55P03": f"another session holds a lock for {LOCK_TIMEOUT_SECONDS:.0f} s; end it, start again",
    "57014": "the server stopped a statement: set statement_timeout = 0 for the role (ALTER ROLE "
    "... SET ...), then start again",
    "58": "the server cannot read or write its files; see its log, then start again",
    "XX": "the server failed, or its files are damaged; see its log, or restore a backup",
}
#: How PostgreSQL says that there are too many connections. An error of a connection that was not
#: made has no SQLSTATE.
_TOO_MANY_CONNECTIONS: Final = re.compile("too many connections|too many clients|connection slots")
#: The remedies for errors of SQLite by their primary code.
_SQLITE_REMEDIES: Final = {
    sqlite3.SQLITE_ERROR: _OTHER_TABLES,
    sqlite3.SQLITE_BUSY: "another process holds its lock; end that process, then start again",
    sqlite3.SQLITE_LOCKED: "another process holds its lock; end that process, then start again",
    sqlite3.SQLITE_CANTOPEN: "check the permission to read and write the file and its folder, then "
    "start again",
    sqlite3.SQLITE_FULL: "check the free space and the permission to write, then start again",
    sqlite3.SQLITE_READONLY: "check the free space and the permission to write, then start again",
    sqlite3.SQLITE_IOERR: "check the free space and the permission to write, then start again",
}
#: The low bits of SQLite's extended error codes.
_PRIMARY_CODE: Final = 0xFF
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
    if engine.dialect.name == "sqlite":
        return _SQLITE_REMEDIES.get(primary_code(error), DAMAGED)
    state = sqlstate_of(error) or ""
    if state in _NOT_PREPARED and not is_pooled(engine.url):
        return f"there is a pooler in transaction mode: add ?{POOLER}=1 to the URL"
    if "conversion between UTF8 and" in str(error.orig):
        return CREATE_IN_UTF8
    if _TOO_MANY_CONNECTIONS.search(str(error.orig)):
        state = "53300"
    return _REMEDIES.get(state) or _REMEDIES.get(state[:2]) or _REMEDIES["08"]


def primary_code(error: DBAPIError) -> int:
    """Return the primary error code of an error of SQLite; 0 for another error."""
    code: int = getattr(error.orig, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE


def refuses_values(error: DBAPIError) -> bool:
    """Return True if an error is about the values of a statement, and not about the database."""
    return isinstance(error, (IntegrityError, DataError)) or sqlstate_of(error) in _REFUSED_VALUES


def sqlstate_of(error: DBAPIError) -> str | None:
    """Return the SQLSTATE of an error of PostgreSQL, which has five characters."""
    return getattr(error.orig, "sqlstate", None)
