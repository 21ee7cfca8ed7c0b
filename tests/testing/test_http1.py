"""What a server can do to a client on the wire, byte by byte."""

import http.client
import time

import pytest

from tests.helpers.relay import Client
from walsh_scrapy.testing import Certificate, Fault, Raw, Reply, Site

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def site(page):
    return Site("a.example", pages={"/": page}, tls=Certificate.GOOD)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n", OK], 200),
        ([b"HTTP/1.0 404 Not Found\r\n\r\nold"], 404),
        ([b"HTTP/1.1 200 OK\r\n\r\nno length"], 200),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 65_536 + b"\r\n\r\n"], 200),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nT: 1\r\n\r\n"],
            200,
        ),
        ([b"\x00nonsense\xff"], 0),
        ([b"HTTP/1.1 103 Early Hints\r\n\r\n"], 0),
        ([], 0),
    ],
)
def test_exact_bytes_are_sent_and_then_the_connection_closes(direct_web, scheme, pieces, status):
    web = direct_web(site(Raw(pieces)))
    assert Client(web).exchange("a.example", scheme) == b"".join(pieces)
    (hit,) = web.log
    assert (hit.status, hit.size, hit.complete) == (status, len(b"".join(pieces)), True)


def test_pauses_lie_between_the_pieces(direct_web):
    web = direct_web(site(Raw([b"HTTP/1.1 200 OK\r\n", 0.05, b"\r\nx", 0.02, 0.03])))
    before = time.monotonic()
    assert Client(web).exchange("a.example") == b"HTTP/1.1 200 OK\r\n\r\nx"
    assert time.monotonic() - before >= 0.1


def test_a_connection_can_be_kept(direct_web):
    web = direct_web(site([Raw([OK], then="keep"), "second"]))
    connection = Client(web).connection("a.example")
    bodies = []
    for _ in range(2):
        connection.request("GET", "/")
        bodies.append(connection.getresponse().read())
    connection.close()
    assert bodies == [b"ok", b"second"]
    assert len(web.connections) == 1


def test_a_connection_can_be_reset_amid_a_response(direct_web):
    web = direct_web(site(Raw([OK[:-1]], then="reset")))
    with pytest.raises(ConnectionResetError):
        Client(web).exchange("a.example")


@pytest.mark.parametrize("fault", [Fault.CLOSE, Fault.RESET])
def test_a_kept_connection_that_closes_as_the_next_request_comes(direct_web, fault):
    web = direct_web(site(["first", Reply(fault=fault), "again"]))
    client = Client(web)
    connection = client.connection("a.example")
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"first"
    connection.request("GET", "/")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.getresponse()
    connection.close()
    assert client.get("a.example") == (200, b"again")
    assert [(hit.status, hit.complete) for hit in web.log] == [(200, True), (0, False), (200, True)]


def test_a_simulation_has_no_wire(simulated):
    (run,) = simulated(site(Raw([OK])), starts=[0], sources=["http://a.example/"])
    assert "no wire" in run.stderr
