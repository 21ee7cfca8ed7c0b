"""A state that an earlier version wrote is upgraded: commands read it, and crawls go on with it."""

import json

import pytest
from sqlalchemy import MetaData, create_engine, text
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateIndex, CreateTable

from tests.helpers import oldstate
from walsh_scrapy.state import State
from walsh_scrapy.state.tables import VERSION
from walsh_scrapy.state.views import VIEWS
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.simulation import DAY

#: When crawls go on: a move that was seen before settles after seven days.
START = 8 * DAY
#: What is wrong if tables differ.
DIFFERS = """
An earlier state has other tables than a new one, after this version has upgraded it:
state/upgrades.py lacks a step. If a version with this schema was released, raise VERSION in
state/tables.py too.
"""
#: The commands that read a state: arguments, exit status, and what each says of it.
COMMANDS = {
    "attest": ((), 0, "holds"),
    "export": (("-o", "-", "--format", "csv"), 0, "http://docs.example/start"),
    "hosts": (("--json",), 0, "its owner asked for it"),
    "new": (("--since", "2026-01-01"), 0, "docs.example"),
    "report": (("-o", "-"), 0, "docs.example"),
    "sources": ((), 0, "gone.example"),
    "status": ((), 1, "no crawl for "),
    "why": (("http://same.example/feed",), 0, "304"),
}


@pytest.fixture
def new(written, tmp_path):
    """The URL of a new state on the same database."""
    if written.startswith("sqlite:"):
        url = f"sqlite:///{tmp_path / 'new.sqlite3'}"
    else:
        with create_engine(written, poolclass=NullPool).begin() as connection:
            connection.execute(text("CREATE SCHEMA new"))
        url = f"{written}?options=-csearch_path%3Dnew"
    State(url).close()
    return url


def reflected(url):
    engine, metadata = create_engine(url, poolclass=NullPool), MetaData()
    metadata.reflect(engine, views=True)
    return engine, metadata


#: Columns of sentences, which Python makes now.
WITH_WORDS = {
    *("readable_sources.advice", "readable_sources.due_reason", "readable_hosts.advice"),
    *("readable_hosts.reason", "readable_runs.advice"),
}


def views_of(url):
    """Return the columns of all views, each with the name of its view."""
    _, metadata = reflected(url)
    views = [table for table in metadata.tables.values() if table.name in VIEWS]
    return {f"{view.name}.{column.name}" for view in views for column in view.columns}


def tables_of(url):
    """Return the tables and indexes, as they would be created."""
    engine, metadata = reflected(url)
    tables = [table for table in metadata.sorted_tables if table.name not in VIEWS]
    statements = [CreateTable(table) for table in tables]
    statements += [CreateIndex(index) for table in tables for index in table.indexes]
    return sorted(" ".join(str(statement.compile(engine)).split()) for statement in statements)


def test_old_state_gets_the_tables_and_views_of_a_new_one(written, new):
    columns = views_of(written)
    State(written, upgrade=print).close()
    assert tables_of(written) == tables_of(new), DIFFERS
    assert columns - WITH_WORDS <= views_of(written) == views_of(new)


def test_a_command_refuses_it_before_its_upgrade(old, run_command):
    refused = run_command("status", settings={"WALSH_STATE_URL": old})
    assert (refused.returncode, "walsh_scrapy upgrade" in refused.stderr) == (3, True)


def test_every_command_reads_it_after_its_upgrade(written, run_command, tmp_path):
    file = write_sources(tmp_path / "sources.toml", oldstate.SOURCES)
    settings = oldstate.SETTINGS | {"WALSH_STATE_URL": written, "WALSH_SOURCES": file}
    upgraded = run_command("upgrade", settings=settings)
    assert (upgraded.returncode, upgraded.stdout) == (0, f"{written} has schema {VERSION}\n")
    for name, (arguments, status, word) in COMMANDS.items():
        result = run_command(name, *arguments, settings=settings)
        assert result.returncode == status, f"{name}: {result.stdout}{result.stderr}"
        assert word in result.stdout, name


def test_crawls_go_on_with_it_and_its_record_holds(written, crawl_launcher, run_command, tmp_path):
    options = {"later": True, "launcher": crawl_launcher}
    feeds, llms = oldstate.crawl(written, tmp_path / "crawl", START, **options)
    assert [item["title"] for item in feeds.items] == ["Three"], "no entry is new twice"
    assert (llms.items, llms.stats["walsh/sources/fetched"]) == ([], 1)
    hits = {hit.url: hit for hit in feeds.log}
    assert not {"held.example", "out.example"} & {hit.host for hit in feeds.log}, (
        "one host is on hold, one opted out"
    )
    assert "http://denied.example/feed" not in hits
    assert hits["http://same.example/feed"].status == 304
    robots, page = (hit for hit in feeds.log if hit.host == "blog.example")
    assert page.started - robots.ended >= 60.0, "the delay that the operator set"
    settings = oldstate.SETTINGS | {"WALSH_STATE_URL": written}
    attested = run_command("attest", "--json", settings=settings).stdout.splitlines()
    assert [row["findings"] for row in map(json.loads, attested) if row["findings"]] == []
