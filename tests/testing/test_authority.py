"""The loopback web serves https sites through tunnels, and logs every request."""

import http.client
import math
import socket
import ssl
import time
from pathlib import Path

import pytest

from tests.helpers import LONGEST
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.web import Certificate, Fault, LoopbackWeb, Reply, Site

BAD = [kind for kind in Certificate if kind not in (Certificate.GOOD, Certificate.NAMELESS)]


def site(page="x", kind=Certificate.GOOD, name="blog.example"):
    return Site(name, pages={"/feed": page}, tls=kind)


def tunnel(web, host="blog.example", port=443):
    """A connection to a host through the web, from a client that trusts only the web's CA."""
    context = ssl.create_default_context(cafile=web.environment.get("SSL_CERT_FILE"))
    connection = http.client.HTTPSConnection(
        "127.0.0.1", web.port, timeout=LONGEST, context=context
    )
    connection.set_tunnel(host, port)
    return connection


def get(connection, path="/feed"):
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read()


def fetched(web, **where):
    connection = tunnel(web, **where)
    try:
        return get(connection)
    finally:
        connection.close()


def ended(web, count):
    """Return the log once it holds that many exchanges, all of them ended."""
    assert web.wait_for(
        lambda log: len(log) == count and all(h.ended < math.inf for h in log), LONGEST
    )
    return web.log


def test_requests_in_a_tunnel_are_hits_like_any_other(loopback_web):
    web = loopback_web(site("page"))
    connection = tunnel(web)
    assert [get(connection), get(connection, "/none")[0]] == [(200, b"page"), 404]
    connection.close()
    way, page, none = ended(web, 3)
    assert (way.method, way.url, way.status) == ("CONNECT", "https://blog.example", 200)
    assert (page.url, none.url) == ("https://blog.example/feed", "https://blog.example/none")
    assert (page.scheme, page.port, page.header("Host")) == ("https", 443, "blog.example")
    assert (page.status, page.size, page.complete, page.number) == (200, 4, True, 1)
    assert len({hit.client for hit in web.log}) == 1
    assert way.started <= way.ended <= page.started <= page.ended <= none.started


def test_a_port_is_part_of_the_name(loopback_web):
    web = loopback_web(site("443"), site("8443", name="blog.example:8443"))
    assert fetched(web, port=8443) == (200, b"8443")
    assert fetched(web) == (200, b"443")
    assert [hit.url for hit in ended(web, 4)][1] == "https://blog.example:8443/feed"


@pytest.mark.parametrize("host", ["127.0.0.1", "xn--bcher-kva.example"])
def test_a_certificate_is_for_the_requested_host(loopback_web, host):
    web = loopback_web(site(name=host))
    assert fetched(web, host=host)[0] == 200


@pytest.mark.parametrize("kind", BAD)
def test_a_client_that_rejects_a_certificate_is_logged(loopback_web, kind):
    web = loopback_web(site(kind=kind))
    for _ in range(2):
        with pytest.raises(ssl.SSLCertVerificationError):
            fetched(web)
    log = ended(web, 2)
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
    log = ended(web, 4)
    assert violations(log, user_agent="me", interval=0, revisit=3600) == []


def test_a_client_that_leaves_before_tls(loopback_web):
    web = loopback_web(site())
    with socket.create_connection(("127.0.0.1", web.port), timeout=LONGEST) as client:
        client.sendall(b"CONNECT blog.example:443 HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        left = time.monotonic()
    (hit,) = ended(web, 1)
    assert (hit.status, hit.complete) == (0, False)
    assert hit.ended <= left


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(fault=Fault.RESET), ConnectionResetError),
        (Reply(fault=Fault.CLOSE), (http.client.RemoteDisconnected, OSError)),
        (Reply("12345678", fault=Fault.TRUNCATE), http.client.IncompleteRead),
    ],
)
def test_faults_in_a_tunnel(loopback_web, reply, error):
    web = loopback_web(site(reply))
    with pytest.raises(error):
        fetched(web)
    assert ended(web, 2)[1].complete is False


def test_slow_and_large_bodies(loopback_web):
    web = loopback_web(site([Reply("12345678", drip=0.1), "x" * 3_000_000]))
    connection = tunnel(web)
    before = time.monotonic()
    assert get(connection) == (200, b"12345678")
    taken = time.monotonic() - before
    assert len(get(connection)[1]) == 3_000_000
    connection.close()
    _, slow, large = ended(web, 3)
    assert 0.09 <= slow.ended - slow.started <= taken
    assert (large.size, large.complete) == (3_000_000, True)


def test_only_bytes_that_the_client_reads_count_as_sent(loopback_web):
    web = loopback_web(site("x" * 30_000_000))
    connection = tunnel(web)
    connection.request("GET", "/feed")
    assert web.wait_for(lambda log: len(log) == 2, LONGEST)
    assert web.log[1].ended == math.inf
    connection.close()
    assert ended(web, 2)[1].complete is False


def test_the_environment_names_a_ca_only_where_there_is_one():
    with LoopbackWeb(Site("plain.example")) as web:
        assert "SSL_CERT_FILE" not in web.environment
        web.add(site("late"))
        ca = Path(web.environment["SSL_CERT_FILE"])
        assert ca.read_text().startswith("-----BEGIN CERTIFICATE-----")
        assert fetched(web) == (200, b"late")
    assert not ca.parent.exists()


def test_the_web_closes_with_tunnels_open(loopback_web):
    web = loopback_web(site())
    connection = tunnel(web)
    assert get(connection)[0] == 200
    web.close()
    connection.close()
