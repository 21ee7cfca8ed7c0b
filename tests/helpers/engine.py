"""The tables of a state in a database, without a state around them."""

from sqlalchemy import create_engine, event

from walsh_scrapy.state.tables import create


def open_engine(url, clock):
    """Open a database as a state does; its clock is a function that returns epoch seconds."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def tune(connection, _record):
            connection.isolation_level = None
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=OFF")

        @event.listens_for(engine, "begin")
        def lock(connection):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.begin() as connection:
        create(connection)
    return engine.execution_options(clock=clock) if clock else engine
