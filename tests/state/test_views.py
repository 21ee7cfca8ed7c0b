"""The stored views: what each says of a planted row, the same on SQLite and PostgreSQL."""

import contextlib
import json
from dataclasses import fields

import pytest
from sqlalchemy import text

from tests.helpers.records import commit, entry_of
from walsh_scrapy.items import EntryItem
from walsh_scrapy.state import State
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.views import VIEWS, has_views

URL = "http://a.example/feed"
#: 2026-05-23 06:00:00 UTC, and a part of a second that is cut off.
AT = 1779516000.9


@pytest.fixture
def changed_view(monkeypatch):
    """Define the view of overrides as another version of the package would."""
    monkeypatch.setitem(VIEWS, "readable_overrides", lambda _sql: "SELECT reason FROM overrides")


@pytest.mark.parametrize("view", VIEWS)
def test_a_stored_view_is_read_with_the_clock_of_the_database(url, view):
    with contextlib.closing(State(url)) as state:
        assert isinstance(list(state.rows(view)), list)


def test_an_entry_has_its_fields_as_columns(state):
    item = {"title": "Ünï %s :x", "authors": ["Jo", "Al"], "url": None}
    entry = entry_of(URL, at=AT, item=json.dumps(item), run=1)
    commit(state, SourceRecord(url=URL, kind="feed", visited_at=AT, not_before=AT), [entry])
    (row,) = state.rows("readable_entries")
    assert {field.name for field in fields(EntryItem)} <= row.keys()
    assert row["first_seen"] == "2026-05-23T06:00:00Z"
    assert (row["title"], row["url"], row["backfill"]) == ("Ünï %s :x", None, True)
    assert json.loads(row["authors"]) == ["Jo", "Al"]


def test_a_view_of_another_version_is_created_again(url, database, changed_view):
    with contextlib.closing(Database(url)) as opened:
        assert opened.all(text("SELECT reason FROM readable_overrides")) == []
        assert opened.read(has_views)
