"""Names are looked up once, in the system's way, and never hold anything up (decision 27)."""

import asyncio
import errno
import os
import socket
import ssl
import threading

import pytest
from scrapy.exceptions import (
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
)

from tests.helpers.responses import Pieces
from walsh_scrapy.crawl import network as module
from walsh_scrapy.crawl.network import MAX_LOOKUPS_AHEAD, Names
from walsh_scrapy.exceptions import Denied, Unreachable
from walsh_scrapy.wire.connections import Connections
from walsh_scrapy.wire.endpoints import (
    BadCertificate,
    Endpoint,
    NoAddress,
    NoSecureConnection,
    NotConnected,
    no_handshake,
    not_connected,
)
from walsh_scrapy.wire.http1 import TcpStream, Tls


def info(address, port=80):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    place = (address, port, 0, 0) if ":" in address else (address, port)
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)


@pytest.fixture
def system(monkeypatch):
    """The answers of the system by name; a lookup of `asked` is recorded."""
    answers, asked = {}, []

    def getaddrinfo(host, port, **_):
        asked.append(host)
        found = answers[host]
        if isinstance(found, Exception):
            raise found
        if isinstance(found, threading.Event):
            found.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return [info(address, port) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return answers, asked


def test_a_name_is_looked_up_once_while_it_is_young(system, monkeypatch, walsh_fake_clock):
    answers, asked = system
    answers["a.example"] = ["192.0.2.1", "2001:db8::1"]
    monkeypatch.setattr(module.time, "monotonic", walsh_fake_clock.now)

    async def run():
        names = Names()
        both = await asyncio.gather(names.find("a.example", 80), names.find("a.example", 80))
        assert both[0].hosts == both[1].hosts == ("192.0.2.1", "2001:db8::1")
        walsh_fake_clock.advance(module.ADDRESS_TTL_SECONDS - 1)
        await names.find("a.example", 80)
        assert asked == ["a.example"]
        walsh_fake_clock.advance(2)
        await names.find("a.example", 80)
        assert asked == ["a.example"] * 2

    asyncio.run(run())


def test_a_lookup_that_was_given_up_serves_whoever_asks_next(system):
    answers, asked = system
    answers["slow.example"] = release = threading.Event()

    async def run():
        names = Names()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await names.find("slow.example", 80)
        waiting = asyncio.ensure_future(names.find("slow.example", 80))
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(socket.gaierror):
            await waiting

    asyncio.run(run())
    assert asked == ["slow.example"]


def test_lookups_ahead_are_bounded_and_their_failures_ignored(system):
    answers, asked = system
    release = threading.Event()
    answers |= {f"{number}.example": release for number in range(50)}

    async def run():
        names = Names()
        names.look_ahead((host, 80) for host in answers)
        names.look_ahead((host, 80) for host in answers)
        release.set()
        with pytest.raises(socket.gaierror):
            await names.find("0.example", 80)

    asyncio.run(run())
    assert set(asked) == {f"{number}.example" for number in range(MAX_LOOKUPS_AHEAD)}


@pytest.mark.parametrize(
    ("failure", "blame"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "host"),
        (socket.gaierror(socket.EAI_NODATA, "no address"), "host"),
        (socket.gaierror(socket.EAI_AGAIN, "no resolver"), "either"),
        (socket.gaierror(socket.EAI_FAIL, "refused"), "either"),
        (UnicodeError("label too long"), "host"),
    ],
)
def test_why_a_name_has_no_address(system, failure, blame):
    answers, _ = system
    answers["lost.example"] = failure
    with pytest.raises(NotConnected) as caught:
        asyncio.run(Names().find_soon("lost.example", 80))
    assert isinstance(caught.value.failure, NoAddress)
    assert caught.value.failure.host == "lost.example"
    assert caught.value.blame == blame


@pytest.mark.parametrize(
    ("answer", "is_answer"),
    [
        (["127.0.0.1"], True),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), True),
        (socket.gaierror(socket.EAI_NODATA, "no address"), True),
        (socket.gaierror(socket.EAI_AGAIN, "no resolver"), False),
        (OSError(24, "too many open files"), False),
    ],
)
def test_any_answer_of_a_name_server_is_reported(system, answer, is_answer):
    answers, _ = system
    answers["blog.example"] = answer
    answered = []

    async def run():
        names = Names(answered.append)
        names.look_ahead([("blog.example", 80)])
        await names.settle(5.0)

    asyncio.run(run())
    assert answered == ["blog.example"] * is_answer


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "10.0.0.1"],
        ["2606:2800:220:1::1", "::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["2001:0:7f00:1::1"],
        ["fd00::1"],
        ["169.254.169.254"],
        ["0.0.0.0"],
    ],
    ids=" ".join,
)
def test_a_public_host_is_connected_only_at_public_addresses(system, monkeypatch, addresses):
    """One address that is not public is enough; no socket is opened."""
    answers, _ = system
    answers["hop.example"] = addresses
    monkeypatch.setattr(TcpStream, "open", None)
    connections = Connections(Names().find, Tls(), 5.0)
    with pytest.raises(Denied, match="not public"):
        asyncio.run(connections.open(Endpoint("http", "hop.example", 80), public_only=True))


def test_a_machine_that_can_start_no_thread_has_a_problem(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.threading.Thread, "start", start)
    with pytest.raises(NotConnected) as caught:
        asyncio.run(Names().find_soon("blog.example", 80))
    assert caught.value.blame == "machine"
    assert "can't start new thread" in str(caught.value)


# Decisions 28 and 29: why a host was not connected to, in a sentence, and whose trouble it is.

HOST = "dead.example"
REFUSED = errno.ECONNREFUSED
BLAMED = {
    # As Linux reports ICMP messages (icmp_err_convert, icmpv6_err_convert).
    "host": "EHOSTDOWN ENONET ENOPROTOOPT EOPNOTSUPP EMSGSIZE EPROTO ECONNRESET ETIMEDOUT ENOTCONN",
    # The host's or ours: the network, no route, or a firewall.
    "either": "ENETUNREACH ENETDOWN EHOSTUNREACH EADDRNOTAVAIL EACCES EPERM",
    "machine": "EMFILE ENOBUFS",
}


def several(*numbers):
    """The error of attempts at several addresses: the numbers are in the text only."""
    return OSError(
        f"Multiple exceptions: {', '.join(f'[Errno {number}] no' for number in numbers)}"
    )


def os_error(number):
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "kind", "blame", "told"),
    [
        (TimeoutError(), DownloadTimeoutError, "host", "dead.example did not answer a connection"),
        (os_error(REFUSED), DownloadConnectionRefusedError, "host", "dead.example refused the"),
        (several(REFUSED, REFUSED), DownloadConnectionRefusedError, "host", "dead.example refused"),
        (
            several(REFUSED, errno.ENETUNREACH),
            DownloadFailedError,
            "host",
            "no connection to dead.example: Network is unreachable, Connection refused",
        ),
        *(
            (os_error(getattr(errno, name)), DownloadFailedError, blame, "no connection to dead.ex")
            for blame, names in BLAMED.items()
            for name in names.split()
        ),
    ],
    ids=str,
)
def test_no_connection_is_no_answer_however_it_was_refused(error, kind, blame, told):
    """One attempt a run: RetryMiddleware and the backoff gate leave Unreachable alone."""
    found = not_connected(HOST, error, 10.0)
    assert isinstance(found.failure, Unreachable)
    assert isinstance(found.failure, kind)
    assert found.blame == blame
    assert str(found.failure).startswith(told)


# --- TLS


def refused(code, message=""):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (refused(10), BadCertificate, "the certificate of x.example has expired"),
        (refused(62), BadCertificate, "the certificate of x.example is for another host"),
        (
            refused(26, "unsuitable certificate purpose."),
            *(BadCertificate, "the certificate of x.example is not valid (unsuitable certificate"),
        ),
        (
            ssl.SSLError(1, "The session is odd"),
            NoSecureConnection,
            "no secure connection with x.example: the session is odd",
        ),
    ],
)
def test_what_an_error_of_openssl_means(error, kind, sentence):
    found = no_handshake(error, "x.example")
    assert type(found) is kind
    assert isinstance(found, Unreachable)
    assert isinstance(found, DownloadFailedError)
    assert str(found).startswith(f"TLS: {sentence}")


ALERT = b"\x15\x03\x01\x00\x02\x02"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\nplain HTTP on port 443", "wrong version number"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "wrong version number"),
        (ALERT + b"\x46", "tlsv1 alert protocol version"),
        (ALERT + b"\x70", "tlsv1 unrecognized name"),
        (b"", "the server closed the connection"),
    ],
)
def test_a_handshake_that_cannot_succeed_is_not_tried_again(answer, reason):
    """The pacing gate puts off the host of what is Unreachable (decision 28)."""
    with pytest.raises(NoSecureConnection) as caught:
        asyncio.run(Tls().secure(Pieces([answer]), "x.example", 443))
    assert isinstance(caught.value, Unreachable)
    assert str(caught.value).endswith(f"x.example: {reason}")
