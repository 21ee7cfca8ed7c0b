"""The stored views: what each says of planted rows, the same on SQLite and PostgreSQL."""

import contextlib
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.helpers import cases
from tests.helpers.planted import NOW, plant
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.advice import complete_host, complete_run, complete_source
from walsh_scrapy.state import State
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.views import VIEWS, has_views

PAGE = Path(__file__).parents[2] / "docs" / "state.md"
#: What adds the words to the rows of a view.
COMPLETE = {"sources": complete_source, "hosts": complete_host, "runs": complete_run}
#: Columns of which a case names a part.
SENTENCES = ("advice", "reason", "due_reason")


@cases("view", "planted", "shown")
def test_a_planted_row_is_shown(state, clock, view, planted, shown):
    plant(state, clock, planted)
    (row,) = map(COMPLETE.get(view, dict), state.rows(f"readable_{view}"))
    for name, value in shown.items():
        if name in SENTENCES and value != "NULL":
            assert value in row[name], name
            continue
        expected = None if value == "NULL" else value
        assert row[name] == pytest.approx(expected), name
        assert isinstance(row[name], bool) == isinstance(expected, bool), name


def test_an_entry_has_its_fields_as_columns(state, clock):
    item = {"title": "Ünï %s :x", "authors": ["Jo", "Al"], "url": None}
    plant(state, clock, {"sources": {}, "entries": {"item": json.dumps(item)}})
    (row,) = state.rows("readable_entries")
    assert {field.name for field in fields(EntryItem)} <= row.keys()
    assert row["first_seen"] == "2026-05-23T03:00:00Z"
    assert (row["title"], row["url"], row["backfill"]) == ("Ünï %s :x", None, False)
    assert json.loads(row["authors"]) == ["Jo", "Al"]


def test_a_time_that_no_calendar_has_is_null(state, clock):
    plant(state, clock, {"sources": {"failing_since": 1e300}})
    (row,) = state.rows("readable_sources")
    assert row["failing_since"] is None


def test_rows_are_selected_and_ordered(state, clock):
    plant(state, clock, {"overrides": {}})
    state.hosts.set_delay("b.example", 30.0, "100 % sure")
    rows = state.rows(
        "readable_overrides",
        columns="host",
        where="host <> :host AND reason LIKE '%'",
        order_by="id DESC",
        params={"host": "a.example"},
    )
    assert list(rows) == [{"host": "b.example"}]


def test_declared_sources_are_from_the_last_read_file(state, tmp_path):
    files = [tmp_path / "a.toml", tmp_path / "b.toml"]
    for file in files:
        file.write_text(f'[[source]]\nurl = "http://{file.stem}.example/"\n')
    for moment, file in enumerate([*files, files[0]]):
        Stores(state).sync(file, NOW + moment)
        declared = [row["url"] for row in state.rows("readable_sources", where="is_declared")]
        assert declared == [f"http://{file.stem}.example/"]


@pytest.fixture
def changed_view(monkeypatch):
    """The view of overrides as another version of the package has it."""

    def change():
        monkeypatch.setitem(
            VIEWS, "readable_overrides", lambda _sql: "SELECT reason FROM overrides"
        )

    return change


@pytest.mark.parametrize("view", VIEWS)
def test_a_stored_view_has_the_columns_of_its_page(url, view):
    with contextlib.closing(State(url)):
        engine = create_engine(url, poolclass=NullPool)
        with engine.connect() as connection:
            columns = list(connection.execute(text(f"SELECT * FROM {view}")).keys())
    section = PAGE.read_text("utf-8").partition(f"\n### {view}\n")[2].partition("\n#")[0]
    items = re.findall(r"^- ((?:`\w+`,?\s*)+):", section, re.MULTILINE)
    described = [name for item in items for name in re.findall(r"\w+", item)]
    assert described == columns


def test_a_view_of_another_version_is_created_again(url, database, changed_view):
    assert database.read(has_views)
    changed_view()
    with contextlib.closing(Database(url)) as opened:
        assert opened.all(text("SELECT reason FROM readable_overrides")) == []
        assert opened.read(has_views)


def test_a_role_that_may_only_read_gets_the_rows(postgresql_url, changed_view, caplog):
    with contextlib.closing(State(postgresql_url)) as state:
        state.hosts.set_delay("a.example", 60.0, "they asked")
    changed_view()
    reader = f"{postgresql_url}?options=-c%20role%3Dpg_read_all_data"
    with contextlib.closing(State(reader)) as state:
        assert list(state.rows("readable_overrides")) == [{"reason": "they asked"}]
    assert "cannot update the views" in caplog.text


def test_a_file_that_may_only_be_read_gives_the_rows(tmp_path, changed_view, monkeypatch, caplog):
    path = tmp_path / "state.sqlite3"
    with contextlib.closing(State(f"sqlite:///{path}")) as state:
        state.hosts.set_delay("a.example", 60.0, "they asked")
    changed_view()
    monkeypatch.setattr("walsh_scrapy.state.engine.os.access", lambda *_arguments: False)
    with contextlib.closing(State(f"sqlite:///{path}")) as state:
        assert list(state.rows("readable_overrides")) == [{"reason": "they asked"}]
    assert "cannot update the views" in caplog.text
