"""A state behind a pooler in transaction mode: each transaction has another session."""

from contextlib import closing
from itertools import pairwise

import pytest
from sqlalchemy import text

from tests.helpers.pooler import Pooler
from tests.helpers.records import exchange, make_state
from tests.helpers.sites import feed, feeds, site
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.database import Database
from walsh_scrapy.state.moving import move
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply

#: The commands that read a state, with a word of their output.
COMMANDS = {
    "attest": ((), "verdict"),
    "export": (("-o", "-", "--format", "csv"), "http://h0.example/feed"),
    "backup": (("-o", "copy"), ""),
    "hosts": ((), "waits_until"),
    "new": (("--since", "2026-01-01"), "h0.example"),
    "report": (("-o", "-"), "h0.example"),
    "sources": ((), "h0.example"),
    "status": ((), "severity"),
    "why": (("http://h0.example/feed",), "200"),
}


@pytest.fixture
def pooler(postgresql_url):
    with Pooler(postgresql_url) as pooler:
        yield pooler


def test_each_transaction_has_another_session(pooler):
    number = text("SELECT pg_backend_pid()")
    database = Database(pooler.url)
    numbers = [database.scalar(number) for _ in range(4)]
    database.close()
    assert len(set(numbers)) == 4


def test_no_parameter_of_a_connection_is_refused(pooler):
    State(pooler.url).close()
    assert pooler.refused == []


def test_a_state_moves_through_the_pooler_and_back(pooler, tmp_path):
    urls = [f"sqlite:///{tmp_path / 'first'}", pooler.url, f"sqlite:///{tmp_path / 'last'}"]
    make_state(urls[0])
    for source, target in pairwise(urls):
        with closing(Database(source)) as state:
            assert move(state, target, print)["sources"] == 1


def test_limits_hold_in_each_transaction(pooler):
    limits = text(
        "SELECT current_setting('lock_timeout'),"
        "current_setting('idle_in_transaction_session_timeout')"
    )
    database = Database(pooler.url)
    found = {tuple(database.first(limits)) for _ in range(8)}
    with database.snapshot() as connection:
        snapshot = tuple(connection.execute(limits).one())
    database.close()
    assert found == {("10s", "5s")}
    assert snapshot == ("10s", "0")


def test_a_pooler_that_the_url_does_not_announce_is_named(pooler):
    query = text("SELECT count(*) FROM runs WHERE id = :number")

    def read_often(database):
        for number in range(100):
            database.scalar(query, number=number)

    with closing(Database(pooler.direct_url)) as database, pytest.raises(StateError) as caught:
        read_often(database)
    assert "?pooler=1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_value_of_pooler_is_refused(postgresql_url):
    with pytest.raises(StateError, match="pooler must be 1"):
        Database(f"{postgresql_url}?pooler=yes")


def test_two_workers_share_their_hosts(pooler, direct_web, crawl):
    hosts = [f"h{number}.example" for number in range(6)]
    busy = [Reply(status=429, headers={"Retry-After": "2"}), feed()]
    web = direct_web(
        *(site(host, feed=feed(host=host), two=feed(host=host)) for host in hosts),
        site("busy.example", feed=busy),
    )
    sources = [*(f"http://{host}/{name}" for host in hosts for name in ("feed", "two"))]
    sources += feeds("busy")
    given = {"sources": sources, "settings": {"WALSH_STATE_URL": pooler.url}}
    running = [crawl.start(web, **given) for _ in range(2)]
    results = [worker.wait() for worker in running]
    assert [result.exit_code for result in results] == [0, 0]
    assert_polite(web.log, serial=False)
    fetched = [hit.url for hit in web.log if hit.status == 200 and "robots" not in hit.url]
    assert sorted(fetched) == sorted(sources), "each once, by one of them"
    assert not any("is lost" in result.stderr for result in results)


def test_every_command_works(pooler, direct_web, crawl, run_command, tmp_path):
    web, file = direct_web(site("h0.example")), tmp_path / "sources.txt"
    file.write_text("http://h0.example/feed")
    settings = {"WALSH_STATE_URL": pooler.url, "WALSH_SOURCES": file}
    assert crawl(web, sources=file, settings=settings).exit_code == 0
    for name, (arguments, word) in COMMANDS.items():
        ended = run_command(name, *arguments, settings=settings)
        assert word in ended.stdout, f"{name}: {ended.stdout}{ended.stderr}"
        assert "Traceback" not in ended.stderr, name


def test_an_operator_changes_a_host(pooler, run_command):
    settings = {"WALSH_STATE_URL": pooler.url}
    with closing(State(pooler.url)) as state:
        exchange(state, "a.example", status=429, retry_after=600.0)
    ended = run_command("hosts", "release", "a.example", "--because", "asked", settings=settings)
    assert ended.returncode == 0, ended.stderr
    with closing(State(pooler.url)) as state:
        assert state.hosts.find("a.example").hold == 0.0
