"""Decisions 28 and 29: why a host was not connected to, in a sentence, and whose trouble it is."""

import asyncio
import errno
import os
import ssl

import pytest
from scrapy.exceptions import (
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
)

from tests.wire.test_http1 import Pieces
from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.wire.stream import Tls
from walsh_scrapy.wire.unreachable import (
    BadCertificate,
    Connectivity,
    NoSecureConnection,
    no_handshake,
    not_connected,
)

HOST = "dead.example"
REFUSED = errno.ECONNREFUSED
BLAMED = {
    # As Linux reports ICMP messages (icmp_err_convert, icmpv6_err_convert).
    "host": "EHOSTUNREACH EHOSTDOWN ENONET ENOPROTOOPT EOPNOTSUPP EMSGSIZE EPROTO ECONNRESET "
    "ETIMEDOUT ENOTCONN",
    # The host's or ours: the network, or a firewall.
    "either": "ENETUNREACH ENETDOWN EADDRNOTAVAIL EACCES EPERM",
    "machine": "EMFILE ENOBUFS",
}


def several(*numbers):
    """The error of attempts at several addresses: the numbers are in the text only."""
    return OSError(f"Multiple exceptions: {', '.join(f'[Errno {each}] no' for each in numbers)}")


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


WORKED = None


@pytest.mark.parametrize(
    ("events", "found", "offline"),
    [
        ([], [], False),
        ([WORKED], [], False),
        (["a"], ["unknown"], True),
        (["a", "a", "a", "a"], ["unknown"] * 4, True),  # one host proves nothing
        (["a", "b", "a", "b"], ["unknown"] * 4, True),
        ([*"abcde"], [*["unknown"] * 4, "machine"], True),
        ([*"abcdea"], [*["unknown"] * 4, "machine", "machine"], True),
        ([WORKED, "a", "b", "c"], ["host"] * 3, False),
        (["a", "b", WORKED, "c", "a"], ["unknown", "unknown", "host", "host"], False),
    ],
)
def test_whose_failure_it_is(events, found, offline):
    """A machine that is offline fails no source, and a dead name server no machine."""
    connectivity = Connectivity()
    verdicts = []
    for event in events:
        if event is WORKED:
            connectivity.record_success()
        else:
            verdicts.append(connectivity.fault_of(event))
    assert verdicts == found
    assert connectivity.offline is offline


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
    assert str(caught.value) == f"TLS: no secure connection with x.example: {reason}"
