"""States of earlier versions: what later ones added is taken back."""

from sqlalchemy import text


def take_back_runs(connection):
    """Undo what version 11 changed."""
    for index in ("requests_by_host", "robots_by_copy"):
        connection.execute(text(f"DROP INDEX {index}"))
    for table, names in (
        ("entries", "run"),
        ("requests", "run purpose pause hold rule line robots robots_at blocklist"),
        ("robots", "copy"),
        ("blocklist", "copy"),
    ):
        for name in names.split():
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {name}"))
    for table in ("runs", "copies", "denials"):
        connection.execute(text(f"DROP TABLE {table}"))


def take_back_validators(connection):
    """Undo what version 10 changed."""
    for name in ("validator_url", "etag", "last_modified"):
        connection.execute(text(f"ALTER TABLE robots DROP COLUMN {name}"))
    connection.execute(text("DROP TABLE robots_waits"))
