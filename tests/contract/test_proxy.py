"""What users behind a proxy rely on: it looks up the names, and gets the credentials; nobody else.

The proxy is a `LoopbackWeb`. A `DirectWeb` beside it has the names of the machine, the proxy's
among them, and a host for which no proxy is to be used.
"""

import base64
import contextlib
import itertools
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from scrapy import Request

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.runtime.messages import endpoint_of, message_of
from walsh_scrapy.testing.names import REFUSED, UNKNOWN, Answer
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Certificate, Site, redirect

NEAR = Site("proxy.example", dns=Answer(("127.0.0.1",)))
BASIC = f"Basic {base64.b64encode(b'me:secret').decode()}"
SETTINGS = {"RETRY_TIMES": 0, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.5}


def behind(port, name="proxy.example", **more):
    """The environment of a user whose proxy listens on a port, and wants his name."""
    url = f"http://me:secret@{name}:{port}"
    return {"http_proxy": url, "https_proxy": url, "no_proxy": "near.example"} | more


def without_credentials(hits):
    """The hits as if the proxy had wanted no credentials, for the judge."""
    for hit in hits:
        kept = (each for each in hit.headers if each[0].lower() != "proxy-authorization")
        yield replace(hit, headers=tuple(kept))


def test_a_crawl_through_a_proxy(loopback_web, direct_web, crawl):
    proxy = loopback_web(
        site("plain.example"),
        replace(site("secure.example", other="no feed"), tls=Certificate.GOOD),
        site("closed.example"),
        site("old.example", feed=redirect("https://secure.example/other")),
        # To us they are public: their addresses are known to the proxy only.
        site("inside.example", feed=redirect("http://127.0.0.1:9/feed")),
        site("meta.example", feed=redirect("http://169.254.169.254/latest/meta-data/")),
        site("hop.example", feed=redirect("http://near.example/hop")),
    )
    web = direct_web(site("near.example", hop="private"), NEAR)
    hosts = ("plain", "old", "inside", "meta", "hop", "near")
    sources = [f"http://{host}.example/feed" for host in hosts]
    sources += ["https://secure.example/feed", "https://closed.example/feed"]
    certificates = {"SSL_CERT_FILE": proxy.environment["SSL_CERT_FILE"]}
    result = crawl(
        web,
        sources=sources,
        settings=SETTINGS,
        environment=behind(proxy.port, **certificates),
    )
    assert result.exit_code == 0
    assert {lookup.name for lookup in web.lookups} == {"proxy.example", "near.example"}
    log = sorted([*web.log, *proxy.log], key=lambda hit: hit.started)
    assert_polite(without_credentials(log), connections=proxy.connections, declared=sources)
    assert web.most_open_connections == 1

    wants = [hit for hit in proxy.log if hit.scheme == "http" or hit.method == "CONNECT"]
    assert {hit.header("Proxy-Authorization") for hit in wants} == {BASIC}
    others = [hit for hit in log if hit not in wants]
    assert {hit.header("Proxy-Authorization") for hit in others} == {None}
    assert sorted({hit.url for hit in others}) == [
        "http://near.example/feed",
        "http://near.example/robots.txt",
        "https://secure.example/feed",
        "https://secure.example/other",
        "https://secure.example/robots.txt",
    ]
    tunnels = [hit for hit in proxy.log if hit.method == "CONNECT"]
    assert {(hit.host, hit.status) for hit in tunnels} == {
        ("secure.example", 200),
        ("closed.example", 501),
    }
    assert [each.handshake for each in proxy.connections].count("full") == 1
    assert paths(wants, "plain.example") == ["plain.example/robots.txt", "plain.example/feed"]

    ends = {
        url: (end, detail)
        for url, end, detail in rows_of(result, "SELECT url, outcome, detail FROM sources")
    }
    outcome, detail = ends["https://closed.example/feed"]
    refusal = f"the proxy proxy.example:{proxy.port} opens no tunnel to closed.example"
    assert (outcome, detail.endswith(f"{refusal}: 501 Not Implemented")) == ("failed", True)
    for host in ("inside", "meta", "hop"):
        assert ends[f"http://{host}.example/feed"][0] == "denied by publicweb"
    for url in ("http://plain.example/feed", "http://near.example/feed"):
        assert ends[url] == ("fetched", "")
    assert ends["https://secure.example/feed"] == ("fetched", "")
    assert rows_of(result, "SELECT host FROM hosts WHERE silences") == []


@pytest.mark.parametrize("answer", [Answer((REFUSED,)), UNKNOWN], ids=["refused", "unknown"])
def test_a_proxy_that_is_not_there_counts_against_nobody(direct_web, crawl, answer):
    web = direct_web(Site("proxy.example", dns=answer))
    result = crawl(
        web,
        sources=["http://plain.example/feed", "https://secure.example/feed"],
        environment=behind(3128),
    )
    assert result.exit_code == 1
    assert result.stats["finish_reason"] == "machine_trouble"
    (line,) = [line for line in result.stderr.splitlines() if " CRITICAL " in line]
    assert "the proxy proxy.example: " in line
    assert "Traceback" not in result.stderr
    assert {lookup.name for lookup in web.lookups} == {"proxy.example"}
    for table in ("sources", "requests", "robots"):
        assert rows_of(result, f"SELECT * FROM {table}") == []
    assert rows_of(result, "SELECT host FROM hosts WHERE strikes OR silences OR hold_until") == []


class Forwarder:
    """A port in front of a proxy. Once the proxy is gone it takes connections, and closes them."""

    def __init__(self, port):
        self._behind = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.is_cut = False
        self._open = []
        self._threads = ThreadPoolExecutor(32)
        self._threads.submit(self._accept)

    def _accept(self):
        while True:
            taken, _ = self._listener.accept()
            if self.is_cut:
                taken.close()
                continue
            onward = socket.create_connection(self._behind)
            self._open += [taken, onward]
            self._threads.submit(self._forward, taken, onward)
            self._threads.submit(self._forward, onward, taken)

    def _forward(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut(self):
        self.is_cut = True
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads.shutdown()
        for each in (self._listener, *self._open):
            each.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_dies_during_a_crawl_counts_against_nobody(loopback_web, crawl, scheme):
    hosts = [f"h{number}.example" for number in range(6)]

    def last(hit):
        if hit.host == "h2.example":
            front.cut()
        return feed(host=hit.host)

    kind = {"tls": Certificate.GOOD} if scheme == "https" else {}
    web = loopback_web(*(replace(site(host, feed=last), **kind) for host in hosts))
    with closing(Forwarder(web.port)) as front:
        result = crawl(
            web,
            sources=[f"{scheme}://{host}/feed" for host in hosts],
            settings=SETTINGS,
            environment=behind(front.port, "127.0.0.1"),
        )
    assert result.exit_code == 1
    assert result.stats["finish_reason"] == "machine_trouble"
    (line,) = [line for line in result.stderr.splitlines() if " CRITICAL " in line]
    assert "the proxy 127.0.0.1: it closes each connection before it was asked" in line
    assert "Traceback" not in result.stderr
    assert rows_of(result, "SELECT DISTINCT outcome FROM sources") == [("fetched",)]
    assert rows_of(result, "SELECT host FROM hosts WHERE strikes OR silences OR hold_until") == []


def test_a_proxy_that_wants_other_credentials_is_nobodys_failure(loopback_web, crawl):
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        threads.submit(_refuse, listener)
        web = loopback_web(replace(site("secure.example"), tls=Certificate.GOOD))
        port = listener.getsockname()[1]
        result = crawl(
            web, sources=["https://secure.example/feed"], environment=behind(port, "127.0.0.1")
        )
        listener.shutdown(socket.SHUT_RDWR)
    assert result.exit_code == 1
    assert result.stats["finish_reason"] == "machine_trouble"
    assert "the proxy 127.0.0.1: it wants other credentials (407 Log in)" in result.stderr
    assert rows_of(result, "SELECT * FROM sources") == []


@pytest.mark.parametrize(
    ("statuses", "declared", "asked", "why"),
    [((), 1, 2, ": does it work?"), ((502, 407, 504, 503), 6, 5, " yet: ")],
    ids=["silent", "refusing"],
)
def test_a_proxy_through_which_nothing_comes_ends_the_run(
    loopback_web, crawl, statuses, declared, asked, why
):
    """It takes connections, and never answers, or with a status of its own: nobody's failure."""
    sources = [f"http://h{number}.example/feed" for number in range(declared)]
    sources += [f"https://s{number}.example/feed" for number in range(declared)]
    with closing(Forbidding(statuses)) as proxy:
        result = crawl(
            loopback_web(site("plain.example")),
            sources=sources,
            settings=SETTINGS | {"DOWNLOAD_TIMEOUT": 1, "WALSH_CONNECT_TIMEOUT": 1},
            environment=behind(proxy.port, "127.0.0.1"),
        )
    assert result.exit_code == 1
    assert result.stats["finish_reason"] == "machine_trouble"
    (line,) = [line for line in result.stderr.splitlines() if " CRITICAL " in line]
    assert f"no host has answered through the proxy 127.0.0.1{why}" in line
    assert "Traceback" not in result.stderr
    assert rows_of(result, "SELECT count(DISTINCT host) FROM requests") == [(asked,)]
    for table in ("sources", "robots"):
        assert rows_of(result, f"SELECT * FROM {table}") == []
    assert rows_of(result, "SELECT host FROM hosts WHERE strikes OR silences OR hold_until") == []


class Forbidding:
    """A proxy that takes connections, and sends one status after the other; none: no answer."""

    def __init__(self, statuses):
        self._statuses = itertools.cycle(statuses)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._accept)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listener.accept()
                self._open.append(taken)
                for status in itertools.islice(self._statuses, 1):
                    # A 407 to CONNECT is another case.
                    is_tunnel = taken.recv(65_536).startswith(b"CONNECT")
                    taken.sendall(_no(502 if is_tunnel else status))
                    taken.shutdown(socket.SHUT_WR)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.shutdown()
        for each in (self._listener, *self._open):
            each.close()


def _no(status):
    return b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status


def _refuse(listener):
    with contextlib.suppress(OSError):
        while True:
            taken, _ = listener.accept()
            with taken:
                taken.recv(65_536)
                taken.sendall(b"HTTP/1.1 407 Log in\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("url", "target", "is_told"),
    [
        ("http://a.example:8080/feed?q=1#x", b"http://a.example:8080/feed?q=1", True),
        ("http://a.example", b"http://a.example/", True),
        ("https://a.example/feed?q=1", b"/feed?q=1", False),
    ],
)
def test_http_is_asked_for_by_its_whole_url_and_https_as_without_a_proxy(url, target, is_told):
    request = Request(
        url,
        headers={"Proxy-Authorization": BASIC},
        meta={"proxy": "http://proxy.example:3128"},
    )
    endpoint = endpoint_of(request)
    _, sent, fields = message_of(request, endpoint)
    assert sent == target
    assert ((b"Proxy-Authorization", BASIC.encode()) in fields) is is_told
    assert endpoint.proxy.authorization == BASIC.encode()
    without_proxy = request.replace(meta={})
    _, _, fields = message_of(without_proxy, endpoint_of(without_proxy))
    assert b"Proxy-Authorization" not in dict(fields), "it is for the proxy only"
