"""The views of the state: readable times and names, the same on SQLite and PostgreSQL."""

import contextlib
import json
import math
import time

import pytest
from sqlalchemy import text

from tests.helpers.records import US, begin, commit, entry_of, hold
from walsh_scrapy.state import State, tables
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.tables import has_views

#: 2026-05-23 06:00:00 UTC, and a part of a second that is cut off.
AT = 1779516000.9
URL = "http://a.example/feed"
GONE = "http://gone.example/feed"


@pytest.fixture
def view(state, database, clock):
    """The rows of a view of a state with a few records."""
    clock.at = time.time()
    item = {"title": "Ünï %s :x", "authors": ["Jo", "Al"], "url": None}
    entry = entry_of(URL, at=AT, item=json.dumps(item), run=1)
    number = state.runs.begin(RunRecord(spider="feeds", begun=AT))
    state.runs.end(number, AT + 60.0, "finished", {})
    commit(state, SourceRecord(url=URL, kind="feed", fetched_at=AT, asked_until=AT), [entry])
    commit(state, SourceRecord(url=GONE, kind="feed", asked_until=math.inf, moved_since=1e300))
    hold(state, "a.example", 3600.0)
    state.hosts.delay("b.example", 60.0, "they asked for it")
    begin(state, "c.example")

    def read(name):
        with database._engine.connect() as connection:
            return connection.execute(text(f"SELECT * FROM {name}")).mappings().all()

    return read


def test_times_are_readable_and_none_is_empty(view):
    first, gone = sorted(view("readable_sources"), key=lambda row: row["url"])
    assert (first["fetched_at"], first["due_at"]) == ("2026-05-23 06:00:00", "2026-05-24 06:00:00")
    assert (bool(first["is_due"]), first["entries"]) == (True, 1)
    days = (time.time() - AT) / 86_400
    assert first["newest_days_ago"] == pytest.approx(days, abs=0.1)
    assert (gone["fetched_at"], gone["due_at"], bool(gone["is_due"])) == (None, None, False)
    assert gone["moved_since"] is None, "no calendar has that time"
    assert (gone["entries"], gone["newest_days_ago"]) == (0, None)


def test_an_entry_has_its_fields_as_columns(view):
    (entry,) = view("readable_entries")
    assert entry["first_seen"] == "2026-05-23 06:00:00"
    assert (entry["title"], entry["url"], entry["run"]) == ("Ünï %s :x", None, 1)
    assert json.loads(entry["authors"]) == ["Jo", "Al"]


def test_hosts_overrides_and_runs_are_readable(view):
    held, slow, asked = sorted(view("readable_hosts"), key=lambda row: row["host"])
    assert (bool(held["is_on_hold"]), held["owner"], held["busy_until"]) == (True, "", None)
    assert (bool(slow["is_on_hold"]), slow["operator_delay"]) == (False, 60.0)
    assert (bool(asked["is_in_flight"]), asked["owner"]) == (True, US.id)
    assert asked["busy_until"] > held["hold_since"]
    (made,) = view("readable_overrides")
    assert (made["host"], made["override"], made["seconds"]) == ("b.example", "delay", 60.0)
    (run,) = view("readable_runs")
    assert (run["begun"], run["ended"]) == ("2026-05-23 06:00:00", "2026-05-23 06:01:00")
    assert run["seconds"] == pytest.approx(60.0)


def test_a_view_that_another_version_defined_otherwise_is_made_anew(url, database, monkeypatch):
    with database._engine.connect() as connection:  # it has the views of this version already
        assert has_views(connection)
    monkeypatch.setitem(tables._VIEWS, "runs", "id settings")
    with contextlib.closing(Database(url)) as opened:
        assert opened.all(text("SELECT settings FROM readable_runs")) == []
        assert opened.read(has_views)


def test_who_may_only_read_uses_a_state_with_the_views_of_another_version(
    postgresql_url, monkeypatch, caplog
):
    monkeypatch.setitem(tables._VIEWS, "runs", "id settings")
    reader = f"{postgresql_url}?options=-c%20role%3Dpg_read_all_data"
    with contextlib.closing(State(reader)) as state:
        assert state.runs.moments() == {}
    (warning,) = caplog.messages
    assert warning.startswith("the views stay as another version made them: ")
    assert "a crawl needs the role that owns the tables" in warning
