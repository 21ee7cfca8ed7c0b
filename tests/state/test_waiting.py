"""The waits for a database end in time, and sooner once the run is to end."""

import contextlib
import re
import sqlite3
import time
from types import SimpleNamespace

import pytest
from sqlalchemy import make_url, text

from tests.helpers.records import SOURCE, commit
from tests.helpers.relay import Relay
from walsh_scrapy.state import State, StateError, database
from walsh_scrapy.state.database import Database, Waiting


def test_a_wait_is_shorter_once_the_run_is_to_end_and_the_last_one(monkeypatch, clock):
    goes_on = [True]
    monkeypatch.setattr(database.time, "monotonic", clock.now)
    waits = Waiting(lambda: goes_on[0])
    clock.at += 10.0
    assert waits.may_last(began=100.0, seconds=10.0)
    goes_on[0] = False
    assert waits.may_last(began=clock.at - database.ENDING_SECONDS, seconds=10.0)
    assert not waits.may_last(began=100.0, seconds=10.0)
    is_begun = waits.may_last(began=clock.at, seconds=10.0)
    assert not is_begun, "nothing is waited for after a wait in vain"


def test_a_short_lock_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "state.sqlite3"
    with (
        contextlib.closing(State(f"sqlite:///{path}")) as state,
        contextlib.closing(sqlite3.connect(path)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        found = []

        def end_lock(self, began, _seconds):
            found.append(time.monotonic() - began)
            other.rollback()
            return True

        monkeypatch.setattr(Waiting, "may_last", end_lock)
        commit(state, SOURCE)
        assert state.sources.find(SOURCE.url) == SOURCE
    assert len(found) == 1


def test_readers_of_a_state_that_is_locked_as_a_whole_wait_too(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "LOCKED_SECONDS", 0.0)
    path = tmp_path / "state.sqlite3"
    State(f"sqlite:///{path}").close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateError, match="database is locked; another process holds its lock"):
            State(f"sqlite:///{path}")


@contextlib.contextmanager
def relayed(url):
    """Give a relay to the server of a URL, and the URL through the relay."""
    server = make_url(url)
    with Relay(server.host, server.port) as relay:
        yield relay, server.set(port=relay.port).render_as_string(hide_password=False)


@pytest.mark.parametrize("size", [1, 30_000_000])
def test_a_server_that_falls_silent_is_not_asked_again(postgresql_url, monkeypatch, size):
    """What it is sent may be more than the buffers of the connection take."""
    told, real = [], time.monotonic
    with relayed(postgresql_url) as (relay, url):
        later = SimpleNamespace(
            time=time.time,
            monotonic=lambda: real() + database.SILENT_SECONDS * relay.asked.is_set(),
        )
        monkeypatch.setattr(database, "time", later)

        def failed(error):
            told.append(str(error))
            return LookupError()

        with contextlib.closing(Database(url, failed)) as opened:

            def write(connection):
                relay.silence()
                connection.execute(text("SELECT length(:sent)"), {"sent": "x" * size})

            for _ in range(2):
                with pytest.raises(LookupError):
                    opened.write(write)
    assert told[0] == told[1], "the second time it was not asked"
    assert re.search("cannot be used as state: the server is silent for [0-9]+ s; check", told[0])


def test_a_server_that_answers_no_new_connection_is_given_up_at_the_end_of_a_run(postgresql_url):
    with relayed(postgresql_url) as (relay, url):
        state = State(url, waits=lambda: not relay.asked.is_set())
        with contextlib.closing(state):
            relay.silence()
            relay.end_connections()
            before = relay.connections
            for _ in range(5):
                with pytest.raises(StateError, match="timeout expired; check that the server runs"):
                    commit(state, SOURCE)
            assert relay.connections == before + 1, "nothing is waited for after a wait in vain"


def test_a_connection_whose_packets_are_lost_ends_by_the_means_of_tcp(postgresql_url):
    def of(url):
        with contextlib.closing(Database(url)) as opened, opened.snapshot() as connection:
            return connection.connection.driver_connection.info.get_parameters()

    assert of(postgresql_url)["tcp_user_timeout"] == "30000"
    given = of(f"{postgresql_url}?keepalives_idle=60")
    assert (given["keepalives_idle"], given["keepalives_count"]) == ("60", "4")
