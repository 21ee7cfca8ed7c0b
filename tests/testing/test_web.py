"""The loopback web answers as described, over real sockets, and logs every request."""

import contextlib
import gzip
import http.client
import io
import itertools
import json
import math
import socket
import ssl
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import feedparser
import pytest

from tests.helpers import HANG_SECONDS, cases
from walsh_scrapy.testing.authority import CertificateAuthority
from walsh_scrapy.testing.feeds import Post, atom, json_feed, rss
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.web import Certificate, Fault, LoopbackWeb, Reply, Site

FEED = "http://blog.example/feed.xml"


def get(web, url, method="GET", **headers):
    """Ask the web as a proxy; return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=HANG_SECONDS)
    try:
        connection.request(
            method, url, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def ended(web, count):
    """Return the log once it holds that many exchanges that have ended."""
    assert web.wait_for(lambda log: sum(h.ended < math.inf for h in log) >= count, HANG_SECONDS)
    return web.log


def site(page, **more):
    return Site("blog.example", pages={"/feed.xml": page}, **more)


class TestAnswers:
    def test_a_proxied_and_a_direct_request_get_the_same_page(self, loopback_web):
        web = loopback_web(Site("127.0.0.1", pages={"/x": "direct"}), site("proxied"))
        assert get(web, FEED)[2] == b"proxied"
        with urllib.request.urlopen(f"{web.url}/x", timeout=HANG_SECONDS) as response:
            assert response.read() == b"direct"

    def test_the_environment_sends_every_host_through_the_web(self, loopback_web, monkeypatch):
        web = loopback_web(site("here"))
        monkeypatch.setenv("NO_PROXY", "*")
        for name, value in web.environment.items():
            monkeypatch.setenv(name, value)
        proxies = urllib.request.getproxies()
        assert {proxies["http"], proxies["https"]} == {web.url}
        assert "no" not in proxies
        with urllib.request.build_opener().open(FEED, timeout=HANG_SECONDS) as response:
            assert response.read() == b"here"

    @pytest.mark.parametrize(
        ("url", "status"),
        [
            ("http://blog.example/robots.txt", 404),
            ("http://blog.example/none", 404),
            ("http://nobody.example/", 502),
            ("http://BLOG.example./feed.xml", 200),
            ("http://user:pw@blog.example:80/feed.xml", 200),
            ("http://blog.example/feed.xml?a=1", 200),
        ],
    )
    def test_status_by_url(self, loopback_web, url, status):
        web = loopback_web(site("x"))
        assert get(web, url)[0] == status
        assert [hit.status for hit in ended(web, 1)] == [status]

    def test_a_port_may_be_another_site(self, loopback_web):
        web = loopback_web(Site("a.example", robots="80"), Site("a.example:8080", robots="8080"))
        assert get(web, "http://a.example/robots.txt")[2] == b"80"
        assert get(web, "http://a.example:8080/robots.txt")[2] == b"8080"
        assert [hit.origin for hit in web.log] == ["http://a.example", "http://a.example:8080"]

    def test_a_query_may_have_its_own_page(self, loopback_web):
        web = loopback_web(Site("a.example", pages={"/f": "plain", "/f?b=2": "query"}))
        assert get(web, "http://a.example/f?b=2")[2] == b"query"
        assert get(web, "http://a.example/f?b=3")[2] == b"plain"

    def test_connect_is_refused_and_logged(self, loopback_web):
        web = loopback_web(site("x"))
        assert get(web, "blog.example:443", method="CONNECT")[0] == 501
        (hit,) = ended(web, 1)
        assert (hit.method, hit.url, hit.status) == ("CONNECT", "https://blog.example", 501)

    @pytest.mark.parametrize("request_", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
    def test_a_malformed_request_gets_400(self, loopback_web, request_):
        web = loopback_web()
        with socket.create_connection(("127.0.0.1", web.port), timeout=HANG_SECONDS) as client:
            client.sendall(request_)
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")

    def test_a_site_can_be_replaced_while_serving(self, loopback_web):
        web = loopback_web(site("one"))
        web.add(site("two"))
        assert get(web, FEED)[2] == b"two"


class TestReplies:
    def test_headers_and_content_type(self, loopback_web):
        web = loopback_web(site(Reply("x", 203, "a/b", {"X-Y": "z"})))
        status, headers, _ = get(web, FEED)
        assert (status, headers["Content-Type"], headers["X-Y"]) == (203, "a/b", "z")
        assert headers["Content-Length"] == "1"
        assert headers["Date"]

    def test_own_headers_win(self, loopback_web):
        own = [("date", "never"), ("ETag", '"b"')]
        web = loopback_web(site(Reply("x", headers=own, etag='"a"')))
        _, headers, _ = get(web, FEED)
        assert headers.get_all("Date") == ["never"]
        assert headers.get_all("ETag") == ['"b"']

    def test_head_has_no_body(self, loopback_web):
        web = loopback_web(site("four"))
        status, headers, body = get(web, FEED, method="HEAD")
        assert (status, headers["Content-Length"], body) == (200, "4", b"")

    def test_a_sequence_repeats_its_last(self, loopback_web):
        busy = Reply(status=429, headers={"Retry-After": "3"})
        web = loopback_web(site([busy, ["never", "b"], lambda hit: f"c{hit.number}"]))
        assert get(web, FEED)[0] == 429
        assert [get(web, FEED)[2] for _ in range(3)] == [b"b", b"c3", b"c4"]
        assert web.log[0].answered("retry-after") == "3"

    def test_pages_count_for_themselves(self, loopback_web):
        pages = {"/a": ["a1", "a2"], "/b": ["b1", "b2"]}
        web = loopback_web(Site("x.example", pages=pages))
        bodies = [get(web, f"http://x.example{path}")[2] for path in ("/a", "/b", "/a")]
        assert bodies == [b"a1", b"b1", b"a2"]

    def test_clear_forgets_the_log_only(self, loopback_web):
        web = loopback_web(site(["a", "b"]))
        get(web, FEED)
        web.clear()
        assert web.log == []
        assert get(web, FEED)[2] == b"b"

    @pytest.mark.parametrize("encoding", ["gzip, deflate", "identity"])
    def test_gzip_for_clients_that_accept_it(self, loopback_web, encoding):
        web = loopback_web(site(Reply("x" * 1000, gzip=True)))
        _, headers, body = get(web, FEED, Accept_Encoding=encoding)
        packed = headers.get("Content-Encoding") == "gzip"
        assert packed == ("gzip" in encoding)
        assert (gzip.decompress(body) if packed else body) == b"x" * 1000

    def test_an_error_of_a_page_is_raised_by_close(self):
        web = LoopbackWeb(site(lambda hit: 1 / 0)).start()
        with pytest.raises(http.client.RemoteDisconnected):
            get(web, FEED)
        with pytest.raises(ZeroDivisionError):
            web.close()
        web.close()


MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"
OTHER = "Fri, 02 Jan 2026 00:00:00 GMT"


class TestValidators:
    @cases("sent", "status")
    def test_only_exact_validators_match(self, loopback_web, sent, status):
        web = loopback_web(site(Reply("x", etag='W/"a"', last_modified=MODIFIED)))
        got, headers, body = get(web, FEED, **sent)
        assert (got, body) == (status, b"x" if status == 200 else b"")
        assert (headers["ETag"], headers["Last-Modified"]) == ('W/"a"', MODIFIED)

    def test_without_validators_nothing_matches(self, loopback_web):
        web = loopback_web(site("x"))
        assert get(web, FEED, If_None_Match="", If_Modified_Since="None")[0] == 200


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "error", "status", "size"),
        [
            (Fault.RESET, ConnectionResetError, 0, 0),
            (Fault.CLOSE, (http.client.RemoteDisconnected, ConnectionResetError), 0, 0),
            (Fault.TRUNCATE, http.client.IncompleteRead, 200, 4),
        ],
    )
    def test_a_fault_ends_an_exchange(self, loopback_web, fault, error, status, size):
        web = loopback_web(site(Reply("12345678", fault=fault)))
        with pytest.raises(error):
            get(web, FEED)
        (hit,) = ended(web, 1)
        assert (hit.status, hit.size, hit.complete) == (status, size, False)

    def test_slow(self, loopback_web):
        web = loopback_web(site(Reply("12345678", delay=0.05, drip=0.1)))
        before = time.monotonic()
        assert get(web, FEED)[2] == b"12345678"
        taken = time.monotonic() - before
        (hit,) = ended(web, 1)
        assert 0.15 <= hit.ended - hit.started <= taken
        assert (hit.size, hit.complete) == (8, True)

    def test_a_client_that_disconnects_ends_the_exchange(self, loopback_web):
        web = loopback_web(site(Reply("x", delay=60)))
        with socket.create_connection(("127.0.0.1", web.port)) as client:
            client.sendall(f"GET {FEED} HTTP/1.1\r\n\r\n".encode())
            assert web.wait_for(lambda log: len(log) == 1, HANG_SECONDS)
            assert web.log[0].ended == math.inf
        left = time.monotonic()
        (hit,) = ended(web, 1)
        assert hit.started <= hit.ended <= left
        assert (hit.status, hit.complete) == (0, False)


class TestLog:
    def test_a_hit_shows_the_request_as_it_was_sent(self, loopback_web):
        web = loopback_web(site("four"))
        before, wall = time.monotonic(), time.time()
        with socket.create_connection(("127.0.0.1", web.port)) as client:
            client.sendall(
                b"GET http://Blog.example/feed.xml?q=%41 HTTP/1.1\r\n"
                b'host: blog.example\r\nX-A:  1\r\nx-a: "\xe9"\r\n\r\n'
            )
            port = client.getsockname()[1]
            assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        (hit,) = ended(web, 1)
        assert (hit.url, hit.path) == (f"{FEED}?q=%41", "/feed.xml?q=%41")
        assert (hit.scheme, hit.host, hit.port) == ("http", "blog.example", 80)
        assert hit.headers == (("host", "blog.example"), ("X-A", "1"), ("x-a", '"é"'))
        assert (hit.header("X-a"), hit.header_values("x-A")) == ("1", ["1", '"é"'])
        assert hit.header("none") is None
        assert (hit.status, hit.size, hit.client, hit.number) == (200, 4, port, 1)
        assert before <= hit.started <= hit.ended <= time.monotonic()
        assert wall <= hit.wall <= time.time()

    @pytest.mark.parametrize(
        "sent",
        [
            [("User-Agent", "me")],  # no Host
            [("Host", "a.example"), ("Host", "b.example")],
            [("Host", "blog.example"), ("User-Agent ", "me")],
            [("Host", "blog.example"), ("", "me")],
            [("Host", "blog.example"), ("If-None-Match", '"a\x00b"')],
            [("Host", "blog.example"), ("User-Agent", "me"), (" and", "you")],
            [("Host", "blog.example"), ("Content-Length", "0"), ("Content-Length", "0")],
        ],
    )
    def test_a_faulty_request_is_logged_as_it_was_sent(self, loopback_web, sent):
        web = loopback_web(site("four"))
        lines = [f"GET {FEED}?\xe9 HTTP/1.1", *(f"{name}: {value}" for name, value in sent)]
        with socket.create_connection(("127.0.0.1", web.port), timeout=HANG_SECONDS) as client:
            client.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
            assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
        (hit,) = ended(web, 1)
        assert (hit.url, hit.headers) == (f"{FEED}?\xe9", tuple(sent))

    def test_the_gap_in_the_log_is_never_shorter_than_the_clients(self, loopback_web):
        web = loopback_web(site("x" * 300_000))
        finished, gaps = None, []
        for _ in range(50):
            if finished:
                gaps.append(time.monotonic() - finished)
            get(web, FEED)
            finished = time.monotonic()
        log = ended(web, 50)
        seen = [b.started - a.ended for a, b in itertools.pairwise(log)]
        assert all(server >= client for server, client in zip(seen, gaps, strict=True))

    def test_a_request_body_is_skipped(self, loopback_web):
        web = loopback_web(site("x"))
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=HANG_SECONDS)
        for _ in range(2):
            connection.request("POST", FEED, body=b"12345")
            assert connection.getresponse().read() == b"x"
        connection.close()

    def test_many_clients_at_once(self, loopback_web):
        web = loopback_web(site("x"))
        threads = [threading.Thread(target=get, args=(web, FEED)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log = ended(web, 20)
        assert [hit.started for hit in log] == sorted(hit.started for hit in log)

    def test_wait_for_gives_up(self, loopback_web):
        assert not loopback_web().wait_for(bool, 0.01)


class TestDescription:
    @pytest.mark.parametrize(
        ("robots", "delay"),
        [
            (None, None),
            ("User-agent: *\nDisallow: /x\n", None),
            ("User-agent: *\nCrawl-delay: 2 # s\n", 2.0),
            ("User-agent: *\nCrawl-delay: 2\nCRAWL-DELAY:10\n", 10.0),
            ("User-agent: Walsh-Research\nCrawl-delay: 2\nUser-agent: *\nCrawl-delay: 9\n", None),
            (Reply("User-agent: *\nCrawl-delay: 2\n"), None),
        ],
    )
    def test_crawl_delay_is_read_only_from_a_single_star_group(self, robots, delay):
        web = LoopbackWeb(Site("a.example", robots))
        assert web.crawl_delays == ({} if delay is None else {"a.example": delay})

    def test_a_web_that_was_never_started_closes(self):
        LoopbackWeb().close()

    def test_no_thread_is_left(self):
        with LoopbackWeb(site("x")) as web, socket.create_connection(("127.0.0.1", web.port)):
            assert urlsplit(web.url).port == web.port
        assert "loopback-web" not in {thread.name for thread in threading.enumerate()}


# The feed builders.

LINK = "http://a.example/"
POSTS = ["One", Post("<Two> & 'more'", "http://a.example/2?a=1&b=2", "tag:2"), Post("Bare", None)]


@pytest.mark.parametrize(("build", "version"), [(rss, "rss20"), (atom, "atom10")])
def test_xml_feeds_parse(build, version):
    parsed = feedparser.parse(io.BytesIO(build("A & B", POSTS, LINK).encode()))
    assert (parsed.bozo, parsed.version, parsed.feed.title) == (False, version, "A & B")
    one, two, bare = parsed.entries
    assert (one.title, one.link, one.id) == ("One", "http://a.example/1", "http://a.example/1")
    assert (two.link, two.id) == ("http://a.example/2?a=1&b=2", "tag:2")
    assert one.published_parsed[:5] == (2026, 1, 1, 12, 0)
    assert "link" not in bare


def test_json_feed():
    feed = json.loads(json_feed("A", [*POSTS, Post("Undated", published=None)], LINK))
    assert feed["version"] == "https://jsonfeed.org/version/1.1"
    assert [item.get("id") for item in feed["items"]] == [f"{LINK}1", "tag:2", None, None]
    assert feed["items"][0]["date_published"] == "2026-01-01T12:00:00+00:00"
    assert feed["items"][3] == {"title": "Undated"}


# The loopback web serves https sites through tunnels, and logs every request.

BAD = [kind for kind in Certificate if kind not in (Certificate.GOOD, Certificate.NAMELESS)]


def secure_site(page="x", kind=Certificate.GOOD, name="blog.example"):
    return Site(name, pages={"/feed": page}, tls=kind)


def tunnel(web, host="blog.example", port=443):
    """A connection to a host through the web, from a client that trusts only the web's CA."""
    context = ssl.create_default_context(cafile=web.environment.get("SSL_CERT_FILE"))
    connection = http.client.HTTPSConnection(
        "127.0.0.1", web.port, timeout=HANG_SECONDS, context=context
    )
    connection.set_tunnel(host, port)
    return connection


def get_inside(connection, path="/feed"):
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read()


def fetched(web, **where):
    connection = tunnel(web, **where)
    try:
        return get_inside(connection)
    finally:
        connection.close()


def all_ended(web, count):
    """Return the log once it holds that many exchanges, all of them ended."""
    assert web.wait_for(
        lambda log: len(log) == count and all(h.ended < math.inf for h in log), HANG_SECONDS
    )
    return web.log


def test_requests_in_a_tunnel_are_hits_like_any_other(loopback_web):
    web = loopback_web(secure_site("page"))
    connection = tunnel(web)
    assert [get_inside(connection), get_inside(connection, "/none")[0]] == [
        (200, b"page"),
        404,
    ]
    connection.close()
    way, page, none = all_ended(web, 3)
    assert (way.method, way.url, way.status) == ("CONNECT", "https://blog.example", 200)
    assert (page.url, none.url) == ("https://blog.example/feed", "https://blog.example/none")
    assert (page.scheme, page.port, page.header("Host")) == ("https", 443, "blog.example")
    assert (page.status, page.size, page.complete, page.number) == (200, 4, True, 1)
    assert len({hit.client for hit in web.log}) == 1
    assert way.started <= way.ended <= page.started <= page.ended <= none.started


def test_a_port_is_part_of_the_name(loopback_web):
    web = loopback_web(secure_site("443"), secure_site("8443", name="blog.example:8443"))
    assert fetched(web, port=8443) == (200, b"8443")
    assert fetched(web) == (200, b"443")
    assert [hit.url for hit in all_ended(web, 4)][1] == "https://blog.example:8443/feed"


@pytest.mark.parametrize("host", ["127.0.0.1", "xn--bcher-kva.example"])
def test_a_certificate_is_for_the_requested_host(loopback_web, host):
    web = loopback_web(secure_site(name=host))
    assert fetched(web, host=host)[0] == 200


@pytest.mark.parametrize("kind", BAD)
def test_a_client_that_rejects_a_certificate_is_logged(loopback_web, kind):
    web = loopback_web(secure_site(kind=kind))
    for _ in range(2):
        with pytest.raises(ssl.SSLCertVerificationError):
            fetched(web)
    log = all_ended(web, 2)
    assert [(hit.method, hit.status, hit.complete) for hit in log] == [("CONNECT", 0, False)] * 2
    # It was in touch with the host, so the judge counts it.
    (sentence,) = violations(log, interval=3600)
    assert sentence.startswith("R4: blog.example: ")


def test_a_tunnel_of_its_own_for_each_request_is_no_second_visit(loopback_web):
    web = loopback_web(Site("blog.example", "", {"/feed": "x"}, tls=Certificate.GOOD))
    for path in ("/robots.txt", "/feed"):
        connection = tunnel(web)
        connection.request("GET", path, headers={"User-Agent": "me"})
        connection.getresponse().read()
        connection.close()
    log = all_ended(web, 4)
    assert violations(log, user_agent="me", interval=0, revisit=3600) == []


HOSTS = {
    "my_shop.example": "my_shop.example",
    "_dmarc.my_shop.example": "_dmarc.my_shop.example",
    "-a.example": "-a.example",
    "ab--c.example": "ab--c.example",
    "*.wild.example": "any.wild.example",
    "bücher.example": "xn--bcher-kva.example",
    "xn--bcher-kva.example": "xn--bcher-kva.example",
    "my_bücher.example": "xn--my_bcher-95a.example",
    f"{'a' * 63}.{'b' * 63}.example": f"{'a' * 63}.{'b' * 63}.example",
    "a.example.": "a.example",
    "127.0.0.1": "127.0.0.1",
    "[::1]": "::1",
}


@pytest.mark.parametrize(("host", "name"), HOSTS.items())
def test_a_certificate_is_for_any_host(host, name):
    authority = CertificateAuthority()
    sides = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=authority.file).wrap_bio(
        *sides, server_hostname=name
    )
    server = authority.context(host, Certificate.GOOD).wrap_bio(*sides[::-1], server_side=True)
    for side in (client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.getpeercert()["notBefore"].endswith("2020 GMT")
    authority.close()


def test_a_client_that_leaves_before_tls(loopback_web):
    web = loopback_web(secure_site())
    with socket.create_connection(("127.0.0.1", web.port), timeout=HANG_SECONDS) as client:
        client.sendall(b"CONNECT blog.example:443 HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        left = time.monotonic()
    (hit,) = all_ended(web, 1)
    assert (hit.status, hit.complete) == (0, False)
    assert hit.ended <= left


def test_slow_and_large_bodies(loopback_web):
    web = loopback_web(secure_site([Reply("12345678", drip=0.1), "x" * 3_000_000]))
    connection = tunnel(web)
    before = time.monotonic()
    assert get_inside(connection) == (200, b"12345678")
    taken = time.monotonic() - before
    assert len(get_inside(connection)[1]) == 3_000_000
    connection.close()
    _, slow, large = all_ended(web, 3)
    assert 0.09 <= slow.ended - slow.started <= taken
    assert (large.size, large.complete) == (3_000_000, True)


def test_only_bytes_that_the_client_reads_count_as_sent(loopback_web):
    web = loopback_web(secure_site("x" * 30_000_000))
    connection = tunnel(web)
    connection.request("GET", "/feed")
    assert web.wait_for(lambda log: len(log) == 2, HANG_SECONDS)
    assert web.log[1].ended == math.inf
    connection.close()
    assert all_ended(web, 2)[1].complete is False


def test_the_environment_names_a_ca_only_where_there_is_one():
    with LoopbackWeb(Site("plain.example")) as web:
        assert "SSL_CERT_FILE" not in web.environment
        web.add(secure_site("late"))
        ca = Path(web.environment["SSL_CERT_FILE"])
        assert ca.read_text().startswith("-----BEGIN CERTIFICATE-----")
        assert fetched(web) == (200, b"late")
    assert not ca.parent.exists()


def test_the_web_closes_with_tunnels_open(loopback_web):
    web = loopback_web(secure_site())
    connection = tunnel(web)
    assert get_inside(connection)[0] == 200
    web.close()
    connection.close()
