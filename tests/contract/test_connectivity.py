"""Without a network nobody is blamed. A source is whose name does not exist (decision 29)."""

import contextlib
import socket
import threading
from dataclasses import replace

import pytest

from tests.helpers.sites import blamed_hosts, critical_line, rows_of, site
from walsh_scrapy.testing.site import NO_RESOLVER, UNKNOWN

LAME = "http://lame.example/feed"
GOOD = "http://good.example/feed"


def outcomes(crawl):
    return dict(rows_of(crawl, "SELECT url, outcome FROM sources"))


def assert_own_trouble(result):
    """One line and exit status 1; no source has failed, and no host is blamed."""
    assert critical_line(result)
    assert result.stats["finish_reason"] == "machine_trouble"
    assert "walsh/sources/failed" not in result.stats
    assert blamed_hosts(result) == []
    assert rows_of(result, "SELECT * FROM robots WHERE failing_since > 0") == []


@pytest.fixture
def web(direct_web):
    return direct_web(replace(site("lame.example"), dns=NO_RESOLVER), site("good.example"))


def test_a_name_that_does_not_exist_fails_alone(direct_web, crawl):
    """The visit is tried again after a day, and not after the week that was declared."""
    web = direct_web(replace(site("lame.example"), dns=UNKNOWN))
    result = crawl(web, sources=[{"url": LAME, "every": "P7D"}])
    assert result.stats["finish_reason"] == "finished"
    assert outcomes(crawl) == {LAME: "failed"}
    assert rows_of(crawl, "SELECT failures, unconnected FROM declared") == [(1, 1)]
    ((days,),) = rows_of(
        crawl, "SELECT julianday(due_at) - julianday(visited_at) FROM readable_sources"
    )
    assert days == pytest.approx(1.0, abs=0.01)


def test_no_answer_of_a_name_server_is_decided_by_other_runs(web, crawl):
    """A lame delegation gives no answer for ever."""
    assert_own_trouble(crawl(web, sources=[LAME]))
    assert_own_trouble(crawl(web, sources=[LAME]))
    assert outcomes(crawl) == {}
    assert crawl(web, sources=[GOOD]).exit_code == 0
    result = crawl(web, sources=[LAME])
    assert result.stats["finish_reason"] == "finished"
    assert outcomes(crawl) == {GOOD: "fetched", LAME: "failed"}


def test_a_source_that_is_new_offline_is_not_blamed(web, crawl):
    assert crawl(web, sources=[GOOD]).exit_code == 0
    assert_own_trouble(crawl(web, sources=[LAME]))
    assert outcomes(crawl) == {GOOD: "fetched"}


def test_another_host_of_the_run_decides(web, crawl):
    result = crawl(web, sources=[LAME, GOOD])
    assert result.exit_code == 0
    assert outcomes(crawl) == {GOOD: "fetched", LAME: "failed"}


def test_a_source_that_was_read_before_is_not_blamed_offline(web, crawl, again):
    assert crawl(web, sources=[GOOD]).exit_code == 0
    web.dns = NO_RESOLVER
    assert_own_trouble(again(web, sources=[GOOD]))
    assert outcomes(crawl) == {GOOD: "fetched"}


@contextlib.contextmanager
def proxy(status):
    """A proxy that answers each request, and CONNECT, with this status; 0: with nothing."""
    head = f"HTTP/1.1 {status} Told\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def serve():
        with contextlib.suppress(OSError):
            while True:
                with server.accept()[0] as taken:
                    taken.recv(65_536)
                    taken.sendall(head.encode() if status else b"")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            yield {"http_proxy": url, "https_proxy": url}
        finally:
            server.shutdown(socket.SHUT_RDWR)


QUICK = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.1, "RETRY_TIMES": 0}


@pytest.mark.parametrize("status", [0, 502, 503, 504])
def test_a_proxy_that_opens_no_tunnel_is_no_failure_of_a_host(direct_web, crawl, status):
    url = "https://blog.example/feed"
    with proxy(status) as environment:
        result = crawl(direct_web(), sources=[url], settings=QUICK, environment=environment)
    assert_own_trouble(result)
    assert outcomes(crawl) == {}


@pytest.mark.parametrize(
    ("scheme", "status"),
    [("http", 403), ("https", 403), ("http", 500), ("https", 500), ("http", 0)],
)
def test_any_other_answer_of_a_proxy_is_the_hosts(direct_web, crawl, scheme, status):
    url = f"{scheme}://blog.example/feed"
    with proxy(status) as environment:
        result = crawl(direct_web(), sources=[url], settings=QUICK, environment=environment)
    assert result.stats["finish_reason"] == "finished"
    assert outcomes(crawl) == {url: "failed"}
