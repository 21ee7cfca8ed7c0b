"""Commands ask a state with a million requests as many statements as a small one."""

import contextlib
import time

import pytest
from sqlalchemy import Engine, event, text

from tests.helpers.records import commit, entry_of
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State, records
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.testing.crawl import copy_new_state, write_sources

HOUR = 3600.0
#: Sources and requests of a small state, and of a large one.
SIZES = {"small": (100, 1_000), "large": (100_000, 1_000_000)}
IDENTITY = {"user_agent": "Bot/1.0", "ua_token": "Bot", "blocklist_url": ""}
COMMANDS = {
    "status": ["status", "--json"],
    "sources": ["sources", "show", "http://h1.example/1", "--json"],
    "due": ["sources", "--due", "--json"],
    "why": ["why", "h1.example", "--json"],
    "new": ["new", "--reader", "mailer", "--json"],
    "runs": ["runs", "--json"],
    "hosts": ["hosts", "--json"],
}
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :number)"
VISITS = f"""INSERT INTO sources (url_key, url, kind, visited_at, not_before, outcome, detail,
    failures, unconnected, server_interval, feed_interval, skip_hours, skip_days, move_settled,
    resent, format, resumed, repeated, read_at)
    {NUMBERS} SELECT d.url_key, d.url, 'feed', :now, :now, 'fetched', '', 0, 0, 0, 0, '', '', 0, 0,
    'rss20', 0, 0, :now FROM declared d WHERE :number > 0"""
REQUESTS = f"""INSERT INTO requests (requested_at, delay, hold, run, status, host, url, gates,
    purpose, source)
    {NUMBERS} SELECT :now - i * 0.001, 1.0, 0.0, 1, 200, 'h' || (i % 50) || '.example',
    'http://h' || (i % 50) || '.example/' || i, '', 'target', '' FROM n"""


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The URLs of two states and of their sources files, by their sizes."""
    made = {}
    for name, (sources, requests) in SIZES.items():
        folder = tmp_path_factory.mktemp(name)
        urls = [f"http://h{number % 50}.example/{number}" for number in range(sources)]
        file = write_sources(folder / "sources.txt", urls)
        url = f"sqlite:///{folder / 'state.sqlite3'}"
        copy_new_state(url)
        now = time.time()
        with contextlib.closing(State(url)) as state:
            state.runs.begin(RunRecord(spider="feeds", started_at=now - HOUR, settings=IDENTITY))
            Stores(state).sync(file, now)
            record = SourceRecord(url="http://other.example/feed", kind="feed")
            commit(state, record, [entry_of(record.url, at=now)])
            for statement, number in ((VISITS, 1), (REQUESTS, requests)):
                params = {"number": number, "now": now - HOUR}
                state.write(lambda c, sql=statement, given=params: c.execute(text(sql), given))
        made[name] = url, file
    return made


@pytest.fixture
def count(called, monkeypatch, states):
    """Call a command on a state, and return the number of statements."""
    run = records.run_by_driver

    def counted(name, size):
        seen = []
        note = lambda *given: seen.append(given[2])  # noqa: E731
        url, file = states[size]
        event.listen(Engine, "before_cursor_execute", note)
        monkeypatch.setattr(
            records, "run_by_driver", lambda *given: (seen.append(given[1]), run(*given))[1]
        )
        settings = {"WALSH_STATE_URL": url, "WALSH_SOURCES": file}
        status, _, error = called(*COMMANDS[name], **settings)
        event.remove(Engine, "before_cursor_execute", note)
        assert status <= 1, error
        return len(seen)

    return counted


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_asks_as_many_statements_of_a_large_state(count, name):
    for size in SIZES:  # the first call may number entries, or note that the file is unchanged
        count(name, size)
    few, many = (count(name, size) for size in SIZES)
    assert few == many > 0
