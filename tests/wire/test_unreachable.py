"""Decisions 28 and 29: what it means that no connection was made, and whose trouble that is."""

import errno
import os

import pytest
from scrapy.exceptions import (
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
)

from walsh_scrapy.exceptions import Unreachable
from walsh_scrapy.wire.unreachable import Connectivity, not_connected

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
