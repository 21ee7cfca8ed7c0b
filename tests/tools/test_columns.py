"""A new column of a source or a host appears in text, JSON, `status` and the page alike."""

import contextlib
import json
from argparse import ArgumentParser
from importlib import import_module

import pytest
from scrapy.settings import Settings

from tests.helpers.records import commit, hold
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.tools import hosts
from walsh_scrapy.tools.output import Column
from walsh_scrapy.tools.sources import overview

URL = "http://a.example/feed"
DAY = 86_400.0


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    """Return a function that runs a command on a state with a failing source and a held host."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sources.txt").write_text(f"{URL}\n")
    url = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
    with contextlib.closing(State(url)) as state:
        failed = {"outcome": "failed", "failures": 9, "failing_since": 1.0}
        commit(state, SourceRecord(url=URL, kind="feed", fetched_at=1.0, **failed))
        hold(state, "a.example", 9 * DAY, "backoff", 503)

    def run(name, *words):
        command = import_module(f"walsh_scrapy.commands.{name}").Command()
        given = {"WALSH_STATE_URL": url, "WALSH_SOURCES": "sources.txt"}
        command.settings = Settings(given)
        parser = ArgumentParser(conflict_handler="resolve")
        command.add_options(parser)
        options, left = parser.parse_known_args(words)
        command.run(left, options)
        return capfd.readouterr().out

    return run


@pytest.mark.parametrize(
    ("columns", "name"), [(overview.COLUMNS, "sources"), (hosts.COLUMNS, "hosts")]
)
def test_a_new_column_is_shown_everywhere(call, columns, name):
    added = [Column("shoe_size", lambda row: "44½"), Column("hidden", lambda row: 7, shown=False)]
    columns.extend(added)
    try:
        (row,) = json.loads(call(name, "--json"))
        assert (row["shoe_size"], row["hidden"]) == ("44½", 7)
        heading, line, *_ = call(name).splitlines()
        assert "shoe size" in heading
        assert "hidden" not in heading
        assert "44½" in line
        found = {
            each["check"]: each["rows"] for each in json.loads(call("status", "--json"))["findings"]
        }
        assert [each["shoe_size"] for each in found[name]] == ["44½"]
        page = call("report", "-o", "-")
        assert "shoe size" in page.lower()
        assert "44½" in page
    finally:
        del columns[-2:]
