"""Records of a state, with values for what a test does not care about."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from random import Random

from scrapy.settings import Settings
from sqlalchemy import insert

from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.feeds.stores.entrywriter import EntryRecord
from walsh_scrapy.options import Options
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.entrykeys import EntryKeys
from walsh_scrapy.policy.pacing import Exchange, Hold
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state import State, ownership
from walsh_scrapy.state.evidence import (
    NO_EVIDENCE,
    DenialRecord,
    Evidence,
    RequestRecord,
    denial_writer,
    log_end,
)
from walsh_scrapy.state.ownership import RequestLimits, Worker
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import entries
from walsh_scrapy.tools.report import choose_period, gather, render
from walsh_scrapy.tools.status import find_problems

BACKOFF = Backoff(2.0, 300.0, Random(1))
US, THEM = Worker("us", 1.0), Worker("them", 1.0)
SOURCE = SourceRecord(url="http://a.example/feed", kind="feed")
#: A request that was sent at 100.0.
RECORD = RequestRecord(100.0, "a.example", "http://a.example/", "robots: allowed", 200, 0.1)
DENIAL = DenialRecord(
    *(100.0, "a.example", "http://a.example/private", "robots"),
    *("line 2 of robots.txt says 'Disallow: /private'", 1, NO_EVIDENCE),
)


def make_state(url):
    """Open a state, which may be new, and write `SOURCE` to it."""
    with closing(State(url)) as state:
        commit(state, SOURCE)


def commit(state, record, found=(), llmstxt=None):
    """Write the outcome of a visit, whatever the record was; return the new entries."""
    known, host = Stores(state).sources.find(record.url), host_of(record.address)
    written = state.write(
        Stores(state).sources.outcome_writer(known, record, found, llmstxt, host=host)
    )
    return [found[place] for place in sorted(written.new)]


def begin(state, host="a.example", worker=US, delay=0.0):
    """Take a host, and begin a request of at most 60 s to it; return its answer."""

    def write(connection):
        ownership.take(connection, host, worker)
        return ownership.begin(connection, host, worker, RequestLimits(delay, 60.0))

    return state.write(write)


def exchange(state, host="a.example", worker=US, **answer):
    """Take a host, request it once, and let it go; the answer is that of an `Exchange`."""
    ended = Exchange(**{"delay": 1.0} | answer)
    status, begun = begin(state, host, worker)
    assert status == "ready"
    times = begun.times.after(ended, BACKOFF, begun.now)

    def write(connection):
        ownership.end(connection, host, worker, begun.times, times, 0.0)
        ownership.let_go(connection, host, worker)

    state.write(write)


def hold(state, host, seconds, by="", status=0):
    """Put a host on hold, as its worker does."""

    def write(connection):
        ownership.take(connection, host, US)
        ownership.lengthen_waits(connection, host, hold=Hold(seconds, by, status))
        ownership.let_go(connection, host, US)

    state.write(write)


def keep_robots(state, origin, copy, host=None, run=None):
    """Keep the copy of a robots.txt, as a run does that asked for it."""
    state.database.write(lambda connection: state.robots.write(connection, origin, copy, host, run))


def log_requests(state, *records):
    """Write requests that have ended to the log of a state.

    The machine's own clock advances as the time of day does, unless a record has another one.
    """

    def write(connection):
        for record in records:
            clock = record.monotonic or record.requested_at + (record.duration or 0.0)
            log_end(connection, replace(record, monotonic=clock))

    state.database.write(write)


def deny(state, record):
    """Write a denial to the log of a state."""
    state.database.write(denial_writer(record))


def entry_of(source, key="k", *, at=1.0, item="{}", **fields):
    """An entry of a feed, first seen at `at`; `item` is JSON, and `key` that of its page."""
    given = {"keys": EntryKeys(key), "kind": "feed", "first_seen": at, "item": item}
    return EntryRecord(source=source, **given | fields)


# States for the tests of the report: some hosts with many requests, and strangers' texts.

NOW = 1_779_516_000.0  # 2026-05-23 06:00 UTC
DAY = 86_400.0
BEGUN = NOW - 3 * DAY
GATES = "blocklist: not listed; robots: allowed"
RULE = "Allow: /<b>feed</b>\u202e"
#: Titles as strangers may write them.
HOSTILE = (
    "<script>alert(1)</script>",
    "\u202egnippals\u202c \x1b[31m\u2028",
    "</style><img src=//evil.example/x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %}",
    "x" * 1_000_000,
    "全角の見出し",
)
STATUSES = (200, 304, 304, 200, 301, 404, 429, 500, None)
TROUBLES = (
    {"outcome": "failed", "failures": 6, "status": 404, "detail": "404 <b>Not Found</b>"},
    {"outcome": "gone", "failures": 1, "status": 410, "not_before": float("inf")},
    {"outcome": "denied by robots", "detail": "line 3 of robots.txt says 'Disallow: /'"},
    {"moved_to": "https://new.example/feed", "moved_since": NOW - 9 * DAY, "move_settled": True},
)


def request(number, hosts, run):
    """One of many requests: 10 s between two of them, so each host is asked in time."""
    status = STATUSES[number % len(STATUSES)]
    host = f"blog{number % hosts}.example"
    answer = {"status": status, "duration": 0.25, "error": "" if status else "<i>refused</i>"}
    answer["hold"] = 5.0 if status in (429, 500) else 0.0
    robots = {"url": f"http://{host}/robots.txt", "gates": "blocklist: not listed"}
    sent = replace(
        RECORD, requested_at=BEGUN + 10.0 * number, host=host, run=run, **robots, **answer
    )
    sent = replace(sent, purpose="robots")
    target = {"url": f"http://{host}/feed", "gates": GATES, "purpose": "target", "delay": 1.0}
    return replace(sent, **target, evidence=Evidence(RULE, 3)) if number >= hosts else sent


def fill(folder, *size):
    """Fill a state in a folder, declare its sources, and return its URL and the file of these."""
    url, file = f"sqlite:///{folder / 'state.sqlite3'}", folder / "sources.txt"
    file.write_text("\n".join(write_state(url, *size)))
    sync(url, file)
    return url, file


def sync(url, file):
    """Declare the sources of a file, as a crawl does."""
    with closing(State(url)) as state:
        Stores(state).sync(file, NOW)


def report_of(url, sources_file="sources.txt", since=None):
    """The facts of the report about a state at `NOW`, by default about its last crawl."""
    options = Options.from_settings(Settings())
    with closing(State(url, clock=lambda: NOW)) as state:
        period = choose_period(state, NOW, since)
        settings = Settings({"ADDONS": {"walsh_scrapy.Addon": 500}})
        problems = find_problems(settings, options, state, str(sources_file))
        return gather(state, options, problems, period, NOW)


def page_of(url, sources_file="sources.txt", since=None):
    """The page of the report about a state."""
    return render(report_of(url, sources_file, since))


def write_state(url, count, hosts=1):
    """Fill the state at a URL with a run of `count` requests; return the URLs of its sources."""
    urls = [f"http://blog{number}.example/feed" for number in range(hosts)]
    with closing(State(url)) as state:
        versions = {"contract": "v1", "scrapy": "2.19.0"}
        begun = RunRecord(spider="feeds", started_at=BEGUN, versions=versions)
        run = state.runs.begin(begun)
        for number, source in enumerate(urls):
            fields = {"visited_at": NOW - 3600, "not_before": NOW + 3600, "outcome": "fetched"}
            if number and number <= len(TROUBLES):
                fields |= TROUBLES[number - 1]
            commit(state, SourceRecord(url=source, kind="feed", **fields), [])
        log_requests(state, *(request(number, hosts, run) for number in range(count)))
        reason = "line 2 of robots.txt says 'Disallow: /private<b>'"
        given = {"denied_at": BEGUN + 20.0, "reason": reason, "run": run}
        given["evidence"] = Evidence("Disallow: /private<b>", 2)
        for number in range(7 if count else 0):
            host = f"blog{number % hosts}.example"
            deny(state, replace(DENIAL, host=host, url=f"http://{host}/private", **given))
        found = []
        for number in range(count // 10):
            source = urls[number % hosts]
            title = HOSTILE[number] if number < len(HOSTILE) else f"Title {number}"
            url = f"javascript:alert({number})" if number % 5 == 4 else f"{source}/{number}"
            item = {"kind": "feed", "source": source, "source_title": title, "url": url}
            row = {"key": str(number), "source": source, "kind": "feed"}
            row |= {"first_seen": BEGUN + number % 3 * DAY, "run": run}
            found.append(row | {"item": json.dumps(item | {"title": title})})
        if found:
            state.database.write(lambda connection: connection.execute(insert(entries), found))
        state.runs.end(run, NOW, "finished", {})
    return urls


def zero_page(file, table):
    """Fill the first page of a table of an SQLite file with zeros, as a bad disk does."""
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        found = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        ((number,),) = database.execute(found, (table,))
        ((size,),) = database.execute("PRAGMA page_size")
    with file.open("r+b") as opened:
        opened.seek((number - 1) * size)
        opened.write(bytes(size))
