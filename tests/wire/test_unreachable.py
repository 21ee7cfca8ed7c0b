"""Decisions 28 and 29: why a host was not connected to, in a sentence, and whose trouble it is."""

import asyncio
import errno
import os

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from OpenSSL.SSL import X509VerificationCodes as Codes
from scrapy.exceptions import (
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
)
from service_identity import CertificateError, VerificationError
from service_identity.exceptions import DNSMismatch
from service_identity.hazmat import DNS_ID
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from twisted.web._newclient import ResponseNeverReceived

from tests.wire.test_http1 import Pieces
from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.testing.authority import CertificateAuthority
from walsh_scrapy.testing.site import EXPIRED_ON, Certificate
from walsh_scrapy.wire.stream import Tls
from walsh_scrapy.wire.unreachable import (
    BadCertificate,
    Connectivity,
    NoSecureConnection,
    certificate_flaw,
    not_connected,
    tls_error,
    wrong_host,
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

NOT_VALID = SSL.Error([("SSL routines", "", "certificate verify failed")])
OLD_SERVER = SSL.Error([("a", "", "first"), ("SSL routines", "", "unsupported protocol")])
MISMATCH = VerificationError([DNSMismatch(DNS_ID("blog.example"))])
CLOSED = SSL.SysCallError(-1, "Unexpected EOF\nand more")
OF_X, WITH_X = "the certificate of x.example", "no secure connection with x.example"
BAD = BadCertificate("blog.example", "expired on 2025-01-01")


def downloaded(*reasons):
    """An error as Scrapy's handler raises it, with what Twisted found on the way."""
    cause = ResponseNeverReceived([Failure(reason) for reason in reasons])
    error = DownloadFailedError(str(cause))
    error.__cause__ = cause
    return error


@pytest.fixture(scope="module")
def show():
    authority = CertificateAuthority()

    def certificate(kind):
        return x509.load_pem_x509_certificate(authority.key_and_certificate("blog.example", kind))

    yield certificate
    authority.close()


@pytest.mark.parametrize("wrap", [lambda error: error, downloaded])
@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (BAD, BadCertificate, "the certificate of blog.example expired on 2025-01-01"),
        (NOT_VALID, BadCertificate, f"{OF_X} is not valid"),
        (MISMATCH, BadCertificate, f"{OF_X} is for another host"),
        (CertificateError("x"), BadCertificate, f"{OF_X} has names that cannot be read"),
        (OLD_SERVER, NoSecureConnection, f"{WITH_X}: unsupported protocol"),
        (CLOSED, NoSecureConnection, f"{WITH_X}: -1 Unexpected EOF and more"),
        (SSL.Error(), NoSecureConnection, f"{WITH_X}: Error"),
        (SSL.Error([]), NoSecureConnection, f"{WITH_X}: []"),
    ],
)
def test_the_tls_error_of_a_failed_download(wrap, error, kind, sentence):
    found = tls_error(wrap(error), "x.example")
    assert type(found) is kind
    assert str(found) == f"TLS: {sentence}"


def test_a_tls_error_is_found_among_several_causes():
    assert tls_error(downloaded(ConnectionLost(), BAD)) is BAD


@pytest.mark.parametrize("error", [None, ConnectionLost(), downloaded(ConnectionLost()), OSError()])
def test_other_errors_give_none(error):
    assert tls_error(error) is None


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
    assert isinstance(BAD, Unreachable)


EXPIRED, BY_BLOG = "expired on 2025-01-01", "is signed by blog.example"
NO = ", which this machine does not trust"


@pytest.mark.parametrize(
    ("kind", "code", "is_leaf", "flaw"),
    [
        ("EXPIRED", "CERT_HAS_EXPIRED", True, EXPIRED),
        ("EXPIRED", "CERT_HAS_EXPIRED", False, f"{BY_BLOG}, whose own certificate {EXPIRED}"),
        ("GOOD", "CERT_NOT_YET_VALID", True, "is valid only from 2020-01-01 on"),
        ("UNKNOWN_CA", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", True, f"is signed by Nobody's CA{NO}"),
        ("SELF_SIGNED", "DEPTH_ZERO_SELF_SIGNED_CERT", True, f"is self-signed{NO}"),
        ("SELF_SIGNED", "SELF_SIGNED_CERT_IN_CHAIN", False, f"{BY_BLOG}{NO}"),
        ("GOOD", "INVALID_PURPOSE", True, "is not valid (invalid purpose)"),
    ],
)
def test_flaws(show, kind, code, is_leaf, flaw):
    code = getattr(Codes, f"ERR_{code}")
    assert certificate_flaw(code, show(Certificate[kind]), is_leaf=is_leaf) == flaw


def test_a_flaw_that_openssl_does_not_name_has_its_number(show):
    flaw = certificate_flaw(9999, show(Certificate.GOOD), is_leaf=True)
    assert flaw == "is not valid (error 9999)"


@pytest.mark.parametrize(
    ("kind", "whom"),
    [
        (Certificate.WRONG_NAME, "is for other.example"),
        (Certificate.NAMELESS, "is for no host"),
        (Certificate.SELF_SIGNED, "is for no host"),  # the extension is not there at all
    ],
)
def test_the_hosts_of_a_certificate(show, kind, whom):
    assert wrong_host(show(kind)) == whom


def test_a_servers_names_are_kept_short_and_on_one_line():
    names = ["a\n\x1b[31m.example", "b" * 500, "\x00", "d.example", "e.example"]
    owner = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x\r\n\x1b[2J" + "y" * 50)])
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(owner)
        .issuer_name(owner)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(EXPIRED_ON)
        .not_valid_after(EXPIRED_ON)
        .add_extension(x509.SubjectAlternativeName(map(x509.DNSName, names)), critical=False)
        .sign(key, SHA256())
    )
    assert wrong_host(certificate) == f"is for a [31m.example, {'b' * 100}, ? and 2 more"
    flaw = certificate_flaw(Codes.ERR_SELF_SIGNED_CERT_IN_CHAIN, certificate, is_leaf=False)
    assert flaw == f"is signed by x [2J{'y' * 50}, which this machine does not trust"
