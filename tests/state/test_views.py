"""The stored views: what each says of planted rows, the same on SQLite and PostgreSQL."""

import contextlib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from sqlalchemy import create_engine, insert, text
from sqlalchemy.pool import NullPool

from tests.helpers import cases
from walsh_scrapy.crawl.scrapyinternals import EarlyEnd
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.tables import metadata
from walsh_scrapy.state.views import VIEWS, has_views

PAGE = Path(__file__).parents[2] / "docs" / "state.md"
#: 2026-05-23 06:00:00 UTC, and a part of a second that is cut off.
NOW = 1779516000.9
HOUR = 3600.0
URL = "http://a.example/feed"
SOURCE = {"url_key": 1, "url": URL, "kind": "feed"}
ROBOTS = b"User-agent: *"
EVIDENCE = {"robots": 1, "robots_at": -2, "host": "a.example", "url": URL, "run": 1}
#: What a planted row has unless its case says otherwise; moments are hours after now.
DEFAULTS = {
    "files": {"id": 1, "path": "/sources.toml", "sha256": "x", "read_at": 0},
    "declared": {**SOURCE, "file": 1, "every": 0.0, "details": "", "host": "a.example"},
    "sources": {**SOURCE, "visited_at": -1, "not_before": -1, "outcome": "fetched"},
    "hosts": {"host": "a.example"},
    "workers": {"id": "us", "run": 1, "started_at": -2, "expires_at": 0.01},
    "overrides": {
        "host": "a.example",
        "override": "delay",
        "seconds": 60.0,
        "made_at": -1,
        "reason": "they asked",
    },
    "runs": {"id": 1, "spider": "feeds", "started_at": -2, "versions": "{}", "settings": "{}"},
    "requests": {
        **EVIDENCE,
        "requested_at": -1,
        "delay": 1.0,
        "hold": 0.0,
        "status": 200,
        "gates": "robots: allowed",
        "purpose": "target",
        "source": "",
    },
    "denials": {**EVIDENCE, "denied_at": -1, "gate": "robots", "reason": "line 2"},
    "copies": {
        "id": 1,
        "sha256": "abc",
        "kind": "robots",
        "body": ROBOTS,
        "first_used_at": -1,
        "last_used_at": 0,
    },
    "robots": {"origin": "http://a.example:80", "requested_at": -1, "body": ROBOTS},
    "blocklist": {
        "url": "http://l.example/",
        "copy": "abc",
        "requested_at": -1,
        "adopted": '[21600.0, ""]\nb.example\t\t',
    },
    "entries": {
        "key": "1",
        "source": URL,
        "kind": "feed",
        "first_seen": -3,
        "item": "{}",
        "run": 1,
    },
}
#: Columns of `sources` that its declaration repeats.
REPEATED = ("visited_at", "not_before", "failures", "unconnected")
#: Columns of which a case names a part.
SENTENCES = ("advice", "reason", "due_reason")


def plant(state, clock, rows):
    """Write rows by table to a state, now."""
    clock.at = NOW
    rows = dict(rows)
    declaration = rows.pop("declared", {})
    with_files = declaration != "none" and ("sources" in rows or declaration or not rows)
    if with_files:
        visited = DEFAULTS["sources"] | rows.get("sources", {}) if "sources" in rows else {}
        facts = {name: visited[name] for name in REPEATED if name in visited}
        rows = {"files": {}, "declared": facts | declaration, **rows}

    def write(connection):
        for name, row in rows.items():
            values = DEFAULTS[name] | row
            table = metadata.tables[name]
            connection.execute(insert(table).values({k: stored(k, v) for k, v in values.items()}))

    state.write(write)


def stored(column, value):
    """Return a value of a case as its column has it."""
    if value == "NULL":
        return None
    if column in ("etag", "last_modified"):
        return value.encode("latin-1")
    is_moment = column.endswith(("_at", "_since", "_until")) or column in (
        "not_before",
        "first_seen",
    )
    return NOW + value * HOUR if is_moment else value


@cases("view", "planted", "shown")
def test_a_planted_row_is_shown(state, clock, view, planted, shown):
    plant(state, clock, planted)
    (row,) = state.rows(f"readable_{view}")
    for name, value in shown.items():
        if name in SENTENCES + ("problem",) * (view == "problems") and value != "NULL":
            assert value in row[name], name
            continue
        expected = None if value == "NULL" else value
        assert row[name] == pytest.approx(expected), name
        assert isinstance(row[name], bool) == isinstance(expected, bool), name


@cases("planted")
def test_a_state_without_problems_has_none(state, clock, planted):
    plant(state, clock, {"runs": {"ended_at": -1}} | planted)
    assert list(state.rows("readable_problems")) == []


@pytest.mark.parametrize("reason", get_args(EarlyEnd))
def test_a_run_that_could_not_go_on_has_its_reason_as_problem(state, clock, reason):
    plant(state, clock, {"runs": {"ended_at": -1, "finish_reason": reason}})
    (row,) = state.rows("readable_runs")
    assert row["problem"] == reason


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
