"""What tests of several parts share: our own pytest plugin, and an empty database of each kind."""

import uuid

import pytest
from hypothesis import settings
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

pytest_plugins = ["walsh_scrapy.testing.plugin"]
# No test is timed: on a busy machine any example may take its time.
settings.register_profile("timeless", deadline=None)
settings.load_profile("timeless")

SERVER = "postgresql+psycopg://postgres@127.0.0.1:5432/test"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'state.sqlite3'}"
    return request.getfixturevalue("postgresql_url")


@pytest.fixture
def postgresql_url():
    """The URL of an empty database on the PostgreSQL of this machine."""
    name = f"walsh_{uuid.uuid4().hex}"
    server = create_engine(
        SERVER, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 2}
    )
    try:
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
    except OperationalError:
        server.dispose()
        pytest.skip("there is no PostgreSQL at 127.0.0.1:5432")
    yield SERVER.rsplit("/", 1)[0] + f"/{name}"
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()
