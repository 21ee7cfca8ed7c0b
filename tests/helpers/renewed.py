"""A database on PostgreSQL that each test gets as if it was new."""

from sqlalchemy import create_engine, select, text
from sqlalchemy.pool import NullPool

from walsh_scrapy.state.database import Database
from walsh_scrapy.state.tables import metadata

#: What a test leaves in a database of which it has changed no table, view, function or right.
SCHEMA = text(
    "SELECT "
    + ", ".join(
        f"(SELECT (count(*), max(xmin::text::bigint))::text FROM {catalog} WHERE {own})"
        for catalog, own in {
            "pg_class": "oid >= 16384",
            "pg_attribute": "attrelid >= 16384",
            "pg_constraint": "oid >= 16384",
            "pg_proc": "oid >= 16384",
            "pg_rewrite": "oid >= 16384",
            "pg_trigger": "oid >= 16384",
            "pg_namespace": "nspname !~ '^pg_'",
        }.items()
    )
)
SCHEMAS = text(
    "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
)
FROM_ONE = text("SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'")
TABLES = metadata.sorted_tables


def url_of(database):
    return f"postgresql+psycopg://postgres@127.0.0.1:5432/{database}"


class RenewedDatabase:
    """Its rows are deleted for each test, and its tables are made again if one was changed."""

    def __init__(self, name, server):
        self.url = url_of(name)
        self._name, self._server = name, server
        self._engine = create_engine(self.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        self._schema, self._rows = None, {}

    def renew(self, *, is_empty):
        """Give the database a new state, or nothing."""
        others = f"datname = '{self._name}' AND pid <> pg_backend_pid()"
        self._server(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        with self._engine.connect() as connection:
            if not is_empty and self._schema == self._schema_of(connection):
                self._delete_rows(connection)
                return
            for statement in (
                *(f"DROP SCHEMA {name} CASCADE" for name in connection.scalars(SCHEMAS)),
                "CREATE SCHEMA public",
                "GRANT USAGE ON SCHEMA public TO PUBLIC",  # as a new database has it
            ):
                connection.execute(text(statement))
            self._schema = None
            if not is_empty:
                Database(self.url).close()
                self._schema = self._schema_of(connection)
                self._rows = {
                    table: [tuple(row) for row in connection.execute(select(table))]
                    for table in TABLES
                }

    def _schema_of(self, connection):
        return tuple(connection.execute(SCHEMA).one())

    def _delete_rows(self, connection):
        deletions = (f"DELETE FROM {table.name}" for table in reversed(TABLES))
        connection.exec_driver_sql("; ".join(deletions))
        connection.execute(FROM_ONE)
        for table, rows in self._rows.items():
            if rows:
                connection.execute(table.insert().values(rows))
