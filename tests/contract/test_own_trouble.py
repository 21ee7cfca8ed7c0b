"""Our own trouble ends the run in order: one line, exit status 1, nothing lost (decision 29)."""

import json
import math
import os
import signal
import sqlite3
import uuid
from collections import Counter
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from threading import Event

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from tests.helpers import HANG_SECONDS
from tests.helpers.records import zero_page
from tests.helpers.relay import Relay
from tests.helpers.sites import (
    critical_line,
    feed,
    log_lines,
    paths,
    refusal,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.state import State
from walsh_scrapy.testing.crawl import keep_empty_blocklist, write_sources
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Certificate, Reply, Site, redirect


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "xml"])
@pytest.mark.parametrize("posts", [2, 400])
def test_an_export_on_a_full_disk_ends_the_run_with_one_line(
    loopback_web, crawl, tmp_path, suffix, posts
):
    """A short export fails when it is closed, a long one before."""
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(posts)])))
    whole = tmp_path / "whole.jsonl"
    exports = {"/dev/full": {"format": suffix}, str(whole): {"format": "jsonl"}}
    result = crawl(
        web, sources=["http://blog.example/feed"], settings={"FEEDS": json.dumps(exports)}
    )
    line = critical_line(result)
    assert "/dev/full" in line
    assert f"Stored jsonl feed ({posts} items) in: {whole}" in result.stderr
    assert "items) in: /dev/full" not in result.stderr
    assert len(whole.read_text().splitlines()) == posts
    assert rows_of(crawl, "SELECT count(*) FROM entries") == [(posts,)]
    assert result.stats["walsh/sources/fetched"] == 1


def test_what_a_full_disk_keeps_from_being_visited_is_still_due(loopback_web, crawl):
    many = [str(number) for number in range(400)]
    slow = "User-agent: *\nCrawl-delay: 3\n"
    web = loopback_web(
        site("big.example", feed=feed(posts=many)),
        site("late.example", slow, feed=feed(host="late.example")),
    )
    urls = ["http://big.example/feed", "http://late.example/feed"]
    full = {"FEEDS": json.dumps({"/dev/full": {"format": "csv"}})}
    result = crawl(web, sources=urls, settings=full)
    assert result.exit_code == 1
    assert result.stats["finish_reason"] == "export_failed"
    assert "failed" not in str(rows_of(crawl, "SELECT outcome FROM sources"))
    second = crawl(web, sources=urls)
    assert second.exit_code == 0
    assert {url for (url,) in rows_of(crawl, "SELECT source FROM entries")} == set(urls)


def test_a_state_on_a_full_disk_ends_the_run_with_one_line(loopback_web, crawl):
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(1000)])))
    result = crawl(web, sources=["http://blog.example/feed"], settings=trouble("FullState"))
    line = critical_line(result)
    assert "disk is full" in line
    assert "http://blog.example/feed" in line
    assert result.stats["finish_reason"] == "state_failed"
    assert rows_of(crawl, "SELECT * FROM sources") == []
    second = crawl(web, sources=["http://blog.example/feed"])
    assert second.exit_code == 0
    assert len(second.items) == 1000, "no entry of the first run was committed"


NO_ENTRY = {
    "sqlite": "CREATE TRIGGER no BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'no'); END",
    "postgresql": "ALTER TABLE entries ADD CHECK (convert_to(item, 'LATIN1') IS NOT NULL)",
}
DISK_FULL = (
    """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE USING ERRCODE = 'disk_full'; END $$""",
    "CREATE TRIGGER full_disk BEFORE INSERT ON entries EXECUTE FUNCTION full_disk()",
)


def execute_on(url, *statements):
    """Run statements on the state at a URL, which is made if there is none."""
    State(url).close()
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_a_visit_whose_values_are_refused_has_failed(direct_web, crawl, url):
    """Its source backs off, and is not read again in every run."""
    execute_on(url, NO_ENTRY[make_url(url).get_backend_name()])
    web = direct_web(site("dash.example", feed=feed("A \u2014 dash", ["\u2014"])))
    settings = {"WALSH_STATE_URL": url}
    bad = "http://dash.example/feed"
    first = crawl(web, sources=[bad], settings=settings)
    assert bad in critical_line(first)
    assert first.stats["walsh/sources/failed"] == 1
    ((outcome, failures, detail),) = rows(url, "SELECT outcome, failures, detail FROM sources")
    assert (outcome, failures) == ("failed", 1)
    assert "does not accept" in detail
    assert rows(url, "SELECT count(*) FROM entries") == [(0,)]
    assert crawl(web, sources=[bad], settings=settings).log == [], "it backs off"


def test_a_failure_that_cannot_be_recorded_is_named(direct_web, crawl):
    """Its source stays due, and the run says so."""
    url = f"sqlite:///{crawl.folder / 'walsh.sqlite3'}"
    no_source = NO_ENTRY["sqlite"].replace("entries", "sources")
    execute_on(url, no_source)
    web = direct_web(site("blog.example"))
    source = "http://blog.example/feed"
    result = crawl(web, sources=[source], settings={"WALSH_STATE_URL": url})
    assert f"{source} stays due" in critical_line(result)
    assert result.stats["walsh/sources/deferred"] == 1


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_in_another_encoding_stops_the_start(crawl, direct_web, encoded, encoding):
    web = direct_web(site("blog.example"))
    settings = {"WALSH_STATE_URL": encoded(encoding)}
    reason = refusal(crawl(web, sources=["http://blog.example/feed"], settings=settings))
    assert encoding in reason
    assert "CREATE DATABASE" in reason


def test_a_server_on_a_full_disk_counts_nothing(direct_web, crawl, postgresql_url):
    execute_on(postgresql_url, *DISK_FULL)
    web = direct_web(site("blog.example"))
    given = {
        "sources": ["http://blog.example/feed"],
        "settings": {"WALSH_STATE_URL": postgresql_url},
    }
    first = crawl(web, **given)
    assert "http://blog.example/feed" in critical_line(first)
    assert rows(postgresql_url, "SELECT * FROM sources") == []
    execute_on(postgresql_url, "DROP TRIGGER full_disk ON entries")
    second = crawl(web, **given)
    assert second.exit_code == 0
    assert len(second.items) == 2


@pytest.mark.parametrize("posts", [0, 2])
def test_an_export_that_cannot_be_opened_ends_the_run_with_1(loopback_web, crawl, tmp_path, posts):
    (tmp_path / "file").touch()
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(posts)])))
    exports = {str(tmp_path / "file" / "items.jsonl"): {"format": "jsonl"}}
    result = crawl(
        web, sources=["http://blog.example/feed"], settings={"FEEDS": json.dumps(exports)}
    )
    assert "items.jsonl" in critical_line(result)
    assert rows_of(crawl, "SELECT count(*) FROM entries") == [(posts,)]


def test_a_reader_that_closes_its_pipe_ends_the_run_with_1(run_command, loopback_web, tmp_path):
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(4000)])))
    (tmp_path / "sources.txt").write_text("http://blog.example/feed\n")
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    keep_empty_blocklist(state)
    reader, writer = os.pipe()
    os.close(reader)
    ended = run_command(
        "crawl", "feeds", "-O", "-:jsonlines", "-s", f"WALSH_STATE_URL={state}",
        "-a", f"sources={tmp_path / 'sources.txt'}",
        environment=dict(web.environment), stdout=writer,
    )  # fmt: skip
    os.close(writer)
    assert ended.returncode == 1, ended.stderr
    assert "Broken pipe" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_log_on_a_full_disk_ends_the_run_with_one_line(direct_web, crawl):
    hosts = [f"h{number}.example" for number in range(3)]
    web = direct_web(*map(site, hosts))
    urls = [f"http://{host}/feed" for host in hosts]
    result = crawl(web, sources=urls, settings=trouble("FullLog") | {"LOG_LEVEL": "DEBUG"})
    assert result.exit_code == 1
    assert len(result.log) < 2 * len(hosts)
    told = result.stderr.partition(r"they say \x1b[2J" + "\n")[2]
    (line,) = told.splitlines()
    assert "No space left" in line
    recorded = rows_of(crawl, "SELECT url, outcome FROM sources")
    assert {outcome for _, outcome in recorded} <= {"fetched"}
    assert rows_of(crawl, "SELECT count(*) FROM entries") == [(len(result.items),)]


def test_a_command_reports_a_full_disk_in_one_line(run_command, tmp_path):
    (tmp_path / "sources.txt").write_text("http://blog.example/feed\n")
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - no file to be made
        ended = run_command(
            "sources", "-s", f"WALSH_SOURCES={tmp_path / 'sources.txt'}",
            "-s", f"WALSH_STATE_URL=sqlite:///{tmp_path / 'state'}", stdout=full.fileno(),
        )  # fmt: skip
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "No space left" in line


# Our own standstill blames nobody and harms no host (decision 29); see `benchmarks.faults`.
#
# A crawl is stopped by SIGSTOP when its request has arrived. It goes on when somebody else has got
# an answer that takes longer than a request of the crawl may take, or when another worker is done.

TIMEOUT = 2
CLOCK = Site("clock.example", "", {"/": Reply(delay=TIMEOUT + 1.0)})
BLAMES = (
    "SELECT host FROM hosts "
    "WHERE hold_until > 0 OR unreachable > 0 OR server_errors > 0 OR delay > 1.5"
)
#: What a server does to the connections to its database when it is restarted.
END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def rows(url, statement):
    """Return what a statement finds in the state."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return connection.execute(text(statement)).all()


@contextmanager
def stopped(running):
    """Let a crawl stand still meanwhile."""
    os.kill(running.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(running.pid, signal.SIGCONT)


def get_late_answer(web):
    """Ask the clock, and wait for its answer."""
    with closing(HTTPConnection(web.address(CLOCK.host), web.ports["http"])) as connection:
        connection.request("GET", "/", headers={"Host": CLOCK.host})
        connection.getresponse()


def in_flight(web):
    def is_asked(log):
        return any(hit.path == "/feed" and math.isinf(hit.ended) for hit in log)

    return web.wait_for(is_asked, HANG_SECONDS)


def in_handshake(web):
    return web.wait_for_connections(bool, HANG_SECONDS)


@pytest.mark.parametrize(("scheme", "begun"), [("http", in_flight), ("https", in_handshake)])
def test_a_crawl_that_stood_still_blames_no_host(direct_web, crawl, postgresql_url, scheme, begun):
    pages = {"/feed": feed(delay=1.0)}
    tls = Certificate.GOOD if scheme == "https" else None
    web = direct_web(Site("blog.example", "", pages, tls=tls), CLOCK, latency=0.1)
    given = {
        "sources": [f"{scheme}://blog.example/feed"],
        "settings": {"WALSH_STATE_URL": postgresql_url, "DOWNLOAD_TIMEOUT": TIMEOUT},
    }
    running = crawl.start(web, **given)
    assert begun(web)
    with stopped(running):
        get_late_answer(web)
    assert running.wait(HANG_SECONDS).exit_code == 0
    assert crawl(web, **given).exit_code == 0, "what was deferred is done in the next run"
    assert_polite(hit for hit in web.log if hit.host != CLOCK.host)
    assert rows(postgresql_url, "SELECT outcome, failures FROM sources") == [("fetched", 0)]
    assert rows(postgresql_url, BLAMES) == []


def test_a_redirect_that_loses_its_database_is_followed_once(direct_web, crawl, postgresql_url):
    def cut(_hit):
        rows(postgresql_url, END_OTHERS)
        return feed()

    def cut_and_redirect(hit):
        cut(hit)
        return redirect("http://new.example/feed", 302)

    web = direct_web(site("old.example", feed=cut_and_redirect), site("new.example", feed=cut))
    settings = {"WALSH_STATE_URL": postgresql_url}
    for _ in range(2):
        assert crawl(web, sources=["http://old.example/feed"], settings=settings).exit_code == 0
    assert_polite(web.log)
    assert set(Counter(hit.url for hit in web.log).values()) == {1}
    assert rows(postgresql_url, "SELECT outcome, failures FROM sources") == [("fetched", 0)]


def test_a_visit_whose_commit_was_not_answered_has_ended(direct_web, crawl, postgresql_url):
    """Its host was let go with it, and is not lost: its entries are exported, and once."""
    web = direct_web(site("a.example"))
    settings = {"WALSH_STATE_URL": postgresql_url} | trouble("UnansweredCommits")
    runs = [crawl(web, sources=["http://a.example/feed"], settings=settings) for _ in range(2)]
    assert "is lost (" in runs[0].stderr
    assert [run.exit_code for run in runs] == [0, 0]
    assert log_lines(runs[0], "another worker") == []
    assert len(runs[0].items) == 2
    assert runs[1].items == []


@pytest.mark.long
def test_a_worker_that_lost_its_host_follows_no_redirect(direct_web, crawl, postgresql_url):
    target = "http://new.example/page"
    web = direct_web(
        site("old.example", feed=redirect(target, 302)),
        site("new.example", "User-agent: *\nCrawl-delay: 3\n", page=feed()),
    )
    settings = {"WALSH_STATE_URL": postgresql_url, "DOWNLOAD_TIMEOUT": TIMEOUT}
    given = {
        "sources": ["http://old.example/feed"],
        "settings": settings | trouble("ShortBeats"),
    }
    first = crawl.start(web, **given)

    def its_robots_was_read(log):
        return any(hit.host == "new.example" and hit.complete for hit in log)

    assert web.wait_for(its_robots_was_read, HANG_SECONDS)
    with stopped(first):  # it waits for the Crawl-delay
        assert crawl(web, **given).exit_code == 0
    assert first.wait(HANG_SECONDS).exit_code == 0
    assert_polite(web.log, serial=False, crawl_delays=web.crawl_delays)
    assert Counter(hit.url for hit in web.log)[target] == 1
    assert rows(postgresql_url, BLAMES.replace("1.5", "3.5")) == []


def test_a_state_that_is_read_only_for_a_while_is_waited_for(direct_web, crawl, postgresql_url):
    web = direct_web(site("blog.example"))
    settings = {"WALSH_STATE_URL": postgresql_url} | trouble("ReadOnlyState")
    result = crawl(web, sources=["http://blog.example/feed"], settings=settings)
    assert result.exit_code == 0, result.stderr
    assert "read-only" in log_lines(result, "is lost (")[0]
    assert len(result.items) == 2
    assert rows(postgresql_url, "SELECT outcome, failures FROM sources") == [("fetched", 0)]


def test_a_state_that_was_always_read_only_stops_at_once(direct_web, crawl, postgresql_url):
    keep_empty_blocklist(postgresql_url)
    web = direct_web(site("blog.example"))
    settings = {"WALSH_STATE_URL": f"{postgresql_url}?options={READ_ONLY}"}
    result = crawl(web, sources=["http://blog.example/feed"], settings=settings)
    assert "default_transaction_read_only" in refusal(result)
    assert log_lines(result, "waits for it") == []


def test_a_role_with_one_connection_is_refused_in_one_line(
    direct_web, crawl, postgresql_url, postgresql_server
):
    role = f"walsh_{uuid.uuid4().hex}"
    postgresql_server(f"CREATE ROLE {role} LOGIN SUPERUSER")
    execute_on(postgresql_url, f"ALTER ROLE {role} NOSUPERUSER CONNECTION LIMIT 1")
    execute_on(postgresql_url, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    execute_on(postgresql_url, f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
    keep_empty_blocklist(postgresql_url)
    url = make_url(postgresql_url).set(username=role).render_as_string(hide_password=False)
    web = direct_web(site("blog.example"))
    settings = {"WALSH_STATE_URL": url}
    try:
        result = crawl(web, sources=["http://blog.example/feed"], settings=settings)
    finally:
        execute_on(postgresql_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert "connection limit" in refusal(result)


# A failure of the state counts against no source, and is logged once.

READ_ONLY = "-cdefault_transaction_read_only%3Don"
FOLLOWS_LINKS = """
from scrapy import Spider

class Pages(Spider):
    name = "pages"
    start_urls = ["http://a.example/page", "http://b.example/page"]

    def parse(self, response):
        yield {"url": response.url}
"""
OWN_BOT = {
    "WALSH_USER_AGENT": "ownbot/1.0 (+https://bot.example/)",
    "WALSH_UA_TOKEN": "ownbot",
    "WALSH_SCOPE": "any",
}


def test_a_damaged_page_that_the_scheduler_reads_is_one_line(direct_web, crawl, project_with):
    page = Reply("<html>", content_type="text/html")
    web = direct_web(site("a.example", page=page), site("b.example", page=page))
    given = {"project": project_with(FOLLOWS_LINKS), "settings": OWN_BOT}
    assert crawl(web, "pages", **given).exit_code == 0
    zero_page(crawl.folder / "walsh.sqlite3", "robots")
    result = crawl(web, "pages", **given)
    assert "malformed" in critical_line(result)
    assert result.log == []


def test_a_crawl_does_not_start_on_a_damaged_file(direct_web, crawl, on_state, tmp_path):
    """No crawl of this source reads the page, but the daily check does."""
    web = direct_web(site("blog.example"))
    sources = write_sources(tmp_path / "sources.txt", ["http://blog.example/feed"])
    assert crawl(web, sources=sources).exit_code == 0
    assert "sound" in on_state("status").stderr
    web.clear()
    rows_of(crawl, "UPDATE choices SET value = '0 ok' WHERE name = 'quick_check'")
    zero_page(crawl.folder / "walsh.sqlite3", "overrides")
    for _ in range(2):
        assert "damaged" in refusal(crawl(web, sources=sources))
    shown = on_state("status", "--json")
    assert shown.returncode == 1
    assert "damaged" in json.loads(shown.stdout.splitlines()[0])["problem"]


@pytest.mark.parametrize("table", ["hosts", "requests"])
def test_a_refused_row_of_ours_ends_the_run_with_one_line(direct_web, crawl, table):
    url = f"sqlite:///{crawl.folder / 'walsh.sqlite3'}"
    execute_on(url, NO_ENTRY["sqlite"].replace("entries", table))
    web = direct_web(site("blog.example"))
    result = crawl(web, sources=["http://blog.example/feed"], settings={"WALSH_STATE_URL": url})
    assert critical_line(result)
    assert result.stats["finish_reason"] == "state_failed"
    assert result.log == []


@pytest.mark.parametrize("table", ["hosts", "sources"])
def test_a_failing_state_ends_the_run_with_1_and_fails_no_source(loopback_web, crawl, table):
    hosts = [f"h{number}.example" for number in range(4)]

    def fail(_hit):
        rows_of(crawl, f"ALTER TABLE {table} RENAME TO lost")
        return feed()

    web = loopback_web(site(hosts[0], feed=[fail, feed(host=hosts[0])]), *map(site, hosts[1:]))
    urls = [f"http://{host}/feed" for host in hosts]
    first = crawl(web, sources=urls)
    assert f"no such table: {table}" in critical_line(first)
    assert " failed:" not in first.stderr
    rows_of(crawl, f"ALTER TABLE lost RENAME TO {table}")
    assert {row[0] for row in rows_of(crawl, "SELECT failures FROM sources")} <= {0}
    rows_of(crawl, "UPDATE hosts SET owner = '', in_flight_until = 0")

    second = crawl(web, sources=urls)
    assert second.exit_code == 0
    sources = {item["source"] for item in first.items + second.items}
    assert sources == set(urls), "what was not reached is still due"


def test_deleting_the_state_ends_the_run_and_creates_no_other(direct_web, crawl):
    """SQLite would go on writing into the file without a name (decision 29)."""
    hosts = [f"h{number}.example" for number in range(3)]

    def delete(_hit):
        for path in crawl.folder.glob("walsh.sqlite3*"):
            path.unlink()
        return feed()

    web = direct_web(*(site(host, feed=delete) for host in hosts))
    result = crawl(web, sources=[f"http://{host}/feed" for host in hosts])
    line = critical_line(result)
    assert f"{crawl.folder}/walsh.sqlite3" in line
    assert "deleted" in line
    assert result.stats["finish_reason"] == "state_failed"
    assert sum(hit.path == "/feed" for hit in result.log) == 1
    assert result.items == [], "no entry is handed out whose record is lost"
    assert list(crawl.folder.glob("walsh.sqlite3*")) == []


def test_deleting_the_state_at_the_end_is_reported(direct_web, crawl):
    web = direct_web(site("blog.example"))
    gone = trouble("StateDeletedAtTheEnd")
    result = crawl(web, sources=["http://blog.example/feed"], settings=gone)
    assert "deleted" in critical_line(result)


@pytest.mark.parametrize("table", ["choices", "blocklist"])
def test_a_state_failure_before_any_request_stops_the_start(loopback_web, crawl, table):
    web = loopback_web(site("blog.example"))
    assert crawl(web, sources=["http://blog.example/feed"]).exit_code == 0
    web.clear()
    rows_of(crawl, f"ALTER TABLE {table} RENAME TO lost")
    result = crawl(web, sources=["http://blog.example/feed"], arguments={"force": "1"})
    assert f"no such table: {table}" in refusal(result)


def test_a_state_failure_while_reading_due_sources_ends_the_run(loopback_web, crawl, tmp_path):
    web, file = loopback_web(site("blog.example")), tmp_path / "sources.txt"
    file.write_text("http://blog.example/feed")
    assert crawl(web, sources=file).exit_code == 0
    rows_of(crawl, "ALTER TABLE sources RENAME TO lost")
    result = crawl(web, sources=file, arguments={"force": "1"})
    assert critical_line(result)
    assert result.stats["finish_reason"] == "state_failed"


@pytest.mark.parametrize(
    ("spider", "kind", "content_type"),
    [
        ("llms", "llms", "text/html"),  # the visit would go on with llms.txt
        ("feeds", "feed", "application/xml"),  # its page is no feed
    ],
)
def test_a_state_failure_before_the_record_defers_the_source(
    loopback_web, crawl, spider, kind, content_type
):
    def fail(_hit):
        rows_of(crawl, "ALTER TABLE sources RENAME TO lost")
        return Reply("<p>", content_type=content_type)

    web = loopback_web(Site("blog.example", "", {"/page": fail}))
    url = "http://blog.example/page"
    result = crawl(web, spider, sources=[{"url": url, "kind": kind}])
    assert critical_line(result)
    assert result.stats["finish_reason"] == "state_failed"
    assert result.stats["walsh/sources/deferred"] == 1
    assert log_lines(result, url, "deferred")
    assert "spider_exceptions/count" not in result.stats


def test_an_unreadable_row_ends_the_run_and_fails_no_source(loopback_web, crawl, again):
    hosts = [f"h{number}.example" for number in range(3)]
    web = loopback_web(*map(site, hosts))
    urls = [f"http://{host}/feed" for host in hosts]
    assert crawl(web, sources=urls).exit_code == 0
    rows_of(crawl, "UPDATE hosts SET hold_by = CAST(x'ff' AS TEXT)")
    result = again(web, sources=urls)
    assert result.exit_code == 1
    assert "hold_by" in result.stderr
    assert " failed:" not in result.stderr
    assert {row[0] for row in rows_of(crawl, "SELECT failures FROM sources")} == {0}


def test_a_run_goes_on_when_its_database_server_was_restarted(loopback_web, crawl, postgresql_url):
    hosts = [f"h{number}.example" for number in range(6)]

    def restart(hit):
        rows(postgresql_url, END_OTHERS)
        return feed(host=hit.host)

    web = loopback_web(*(site(host, feed=restart) for host in hosts))
    urls = [f"http://{host}/feed" for host in hosts]
    result = crawl(web, sources=urls, settings={"WALSH_STATE_URL": postgresql_url})
    assert result.exit_code == 0
    assert_polite(result.log)
    assert sorted(paths(result.log)) == sorted(
        f"{host}/{page}" for host in hosts for page in ("robots.txt", "feed")
    )
    assert {item["source"] for item in result.items} == set(urls)
    assert "is lost" in result.stderr
    assert "is back" in result.stderr


def test_no_url_is_too_long_for_the_record_of_a_source(loopback_web, crawl, postgresql_url):
    """PostgreSQL refuses long texts. A source without a record would be visited in every run."""
    some, most, more = (f"/{'x' * length}" for length in (2500, 4000, 4096))
    far = redirect(f"http://{'x' * 60}.{'x.' * 100}example/")
    web = loopback_web(
        site("some.example", feed=redirect(some), **{some[1:]: feed(etag='"1"')}),
        site("most.example", feed=redirect(most, 302), **{most[1:]: feed(etag='"1"')}),
        site("more.example", feed=redirect(more), **{more[1:]: feed()}),
        site("far.example", feed=far),
    )
    urls = [f"http://{host}.example/feed" for host in ("some", "most", "more", "far")]
    settings = {"WALSH_STATE_URL": postgresql_url}
    first = crawl(web, sources=urls, settings=settings)
    assert first.stats["walsh/sources/fetched"] == first.stats["walsh/sources/failed"] == 2
    assert log_lines(first, "http://more.example/feed failed", "301")
    assert crawl(web, sources=urls, settings=settings).log == []


# A state that is locked or silent ends the run in order, and a signal ends it at once.

HOSTS = ("a.example", "b.example", "c.example")
URLS = [f"http://{host}/feed" for host in HOSTS]


def waits(*, is_signalled):
    """Return the settings of a crawl that a signal has to end, or that ends after a short wait."""
    return trouble("LongWaits" if is_signalled else "ShortWaits")


def end_of(running, asked, *, is_signalled):
    """Wait until the state is `asked` in vain, and return what came of the run."""
    while not asked(0.02):
        assert running.running
    if is_signalled:
        os.kill(running.pid, signal.SIGTERM)
    return running.wait()


def wait_for_record(read):
    """Wait until the first document is in the state; ``read`` returns its rows."""
    never = Event()
    while not read():
        never.wait(0.02)


def judge_end(result):
    assert " failed:" not in result.stderr
    assert f"Stored jsonl feed ({len(result.items)} items)" in result.stderr
    assert "; sources:" in result.stderr
    assert sum(hit.path == "/feed" for hit in result.log) == 2, "the third source is not asked for"
    return critical_line(result)


@pytest.mark.parametrize("is_signalled", [True, False])
def test_a_server_that_is_silent_ends_the_run(direct_web, crawl, postgresql_url, is_signalled):
    server = make_url(postgresql_url)
    with Relay(server.host, server.port) as relay:

        def silence(hit):
            if sum(hit.path == "/feed" for hit in web.log) == 2:
                wait_for_record(lambda: rows(postgresql_url, "SELECT url FROM sources"))
                relay.silence()
            return feed(host=hit.host)

        web = direct_web(*(site(host, feed=silence) for host in HOSTS))
        url = server.set(port=relay.port).render_as_string(hide_password=False)
        settings = {"WALSH_STATE_URL": url} | waits(is_signalled=is_signalled)
        running = crawl.start(web, sources=URLS, settings=settings)
        result = end_of(running, relay.asked.wait, is_signalled=is_signalled)
    assert "server is silent" in judge_end(result)
    assert rows(postgresql_url, "SELECT failures FROM sources") == [(0,)]
    ((entries,),) = rows(postgresql_url, "SELECT count(*) FROM entries")
    assert len(result.items) == entries == 2, "what was handed out is in the state"


@pytest.mark.parametrize("is_signalled", [True, False])
def test_a_lock_that_is_held_for_a_minute_ends_the_run(direct_web, crawl, is_signalled):
    path = crawl.folder / "walsh.sqlite3"

    def take_lock(hit):
        if sum(hit.path == "/feed" for hit in web.log) == 2:
            wait_for_record(lambda: other.execute("SELECT url FROM sources").fetchall())
            other.execute("BEGIN IMMEDIATE")
        return feed(host=hit.host)

    web = direct_web(*(site(host, feed=take_lock) for host in HOSTS))
    running = crawl.start(web, sources=URLS, settings=waits(is_signalled=is_signalled))
    with closing(sqlite3.connect(path, check_same_thread=False, timeout=60.0)) as other:

        def is_waiting(seconds):
            return web.wait_for(lambda _log: other.in_transaction, seconds)

        result = end_of(running, is_waiting, is_signalled=is_signalled)
        recorded = other.execute("SELECT failures FROM sources").fetchall()
        (entries,) = other.execute("SELECT count(*) FROM entries").fetchone()
    assert "database is locked" in judge_end(result)
    assert recorded == [(0,)]
    assert len(result.items) == entries == 2
