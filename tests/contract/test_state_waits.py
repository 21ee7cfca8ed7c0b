"""A state that is locked or silent ends the run in order, and a signal ends it at once."""

import os
import re
import signal
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from tests.helpers.relay import Relay
from tests.helpers.sites import critical_line, feed, site, trouble

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
            if sum(each.path == "/feed" for each in web.log) == 2:
                relay.silence()
            return feed(host=hit.host)

        web = direct_web(*(site(host, feed=silence) for host in HOSTS))
        url = server.set(port=relay.port).render_as_string(hide_password=False)
        settings = {"WALSH_STATE_URL": url} | waits(is_signalled=is_signalled)
        running = crawl.start(web, sources=URLS, settings=settings)
        result = end_of(running, relay.asked.wait, is_signalled=is_signalled)
    assert re.search(r"the server is silent for [0-9]+ s;", judge_end(result))
    engine = create_engine(postgresql_url, poolclass=NullPool)
    with engine.connect() as connection:
        recorded = connection.execute(text("SELECT url, failures FROM sources")).all()
        entries = connection.scalar(text("SELECT count(*) FROM entries"))
    assert [failures for _, failures in recorded] == [0]
    assert len(result.items) == entries == 2, "what was handed out is in the state"


@pytest.mark.parametrize("is_signalled", [True, False])
def test_a_lock_that_is_held_for_a_minute_ends_the_run(direct_web, crawl, is_signalled):
    path = crawl.folder / "walsh.sqlite3"

    def take_lock(hit):
        if sum(each.path == "/feed" for each in web.log) == 2:
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
    assert "database is locked; another process holds its lock" in judge_end(result)
    assert recorded == [(0,)]
    assert len(result.items) == entries == 2
