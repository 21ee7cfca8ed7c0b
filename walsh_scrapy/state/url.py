"""`WALSH_STATE_URL`: the SQLAlchemy URL that names the database of the state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from sqlalchemy import URL, make_url

#: The query parameter that says that a connection pooler in transaction mode is in between, so that
#: each transaction may have another session. Statements are not prepared then, because the next
#: session does not know them; a first visit takes a fifth longer.
POOLER: Final = "pooler"
MALFORMED: Final = "in a password write %40 for @, %2F for /, %3A for : and %3F for ?"
#: Scheme and user of a URL.
_USER: Final = re.compile("(?:[^/:]*:?//)?[^/:?@]*")


def parse_url(text: str) -> URL:
    """Parse a URL; for SQLite it gets the absolute path of its file.

    In a path ``%20`` is a space, as in every URL. SQLAlchemy before 2.1 does not decode it, and
    takes the part after a ``?`` for options. Raises ValueError.
    """
    url = make_url(text)
    if not names_file(url):
        if text.count("@") > 1 or "@" in text.partition("?")[2]:
            raise ValueError(MALFORMED)
        return url
    _, _, written = text.partition(":///")
    if "?" in written:
        raise ValueError("a '?' in the path is written as %3F, and no options may follow it")
    path = unquote(written, errors="strict")
    if not path.isprintable():
        raise ValueError("the path has control characters")
    if path.startswith("~"):
        raise ValueError("a '~' in the path is not expanded")
    if path != written and Path(written).exists() and not Path(path).exists():
        raise ValueError(f"it names {path!r}, but the file is {written!r}: write %25 for a '%'")
    return url.set(database=str(Path(path).absolute()))


def names_file(url: URL) -> bool:
    """Return True for an SQLite file; False for SQLite in memory, and for a server."""
    is_sqlite = url.get_backend_name() == "sqlite"
    return is_sqlite and url.database not in (None, "", ":memory:")


def is_pooled(url: URL) -> bool:
    """Return True if the URL says that a connection pooler in transaction mode is in between."""
    return POOLER in url.query


def setting_of(text: str) -> str:
    """Return a URL of a database as it may stand in a file of settings: without its password."""
    url = parse_url(text)
    if names_file(url):
        return f"sqlite:///{quote(str(url.database))}"
    shown = URL.create(  # `URL.set` cannot remove a password
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query=url.query,
    )
    return shown.difference_update_query(["password", "sslpassword"]).render_as_string()


def without_password(url: str | URL) -> str:
    """Return a URL for logs and messages, with ``***`` for the password and the query.

    The URL may be malformed, and its password may have characters that should be escaped.
    """
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    if text.startswith("sqlite"):
        return text
    place, mark, query = text.partition("?")
    scheme_and_user = _USER.match(text)
    user = scheme_and_user[0] if scheme_and_user else ""
    if "@" in query:  # where the password ends cannot be told
        return f"{user}:***"
    before, at, host = place.rpartition("@")
    shown = f"{user}:***@{host}" if at and user != before else place
    return f"{shown}?***" if mark else shown
