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
from walsh_scrapy.wire.unreachable import not_connected

HOST = "dead.example"


def several(*numbers):
    """The error of attempts at several addresses: the numbers are in the text only."""
    return OSError(f"Multiple exceptions: {', '.join(f'[Errno {each}] no' for each in numbers)}")


def os_error(number):
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "kind", "blame", "told"),
    [
        (TimeoutError(), DownloadTimeoutError, "host", "dead.example did not answer a connection"),
        (
            os_error(errno.ECONNREFUSED),
            DownloadConnectionRefusedError,
            "host",
            "dead.example refused the connection",
        ),
        (
            several(errno.ECONNREFUSED, errno.ECONNREFUSED),
            DownloadConnectionRefusedError,
            "host",
            "dead.example refused the connection",
        ),
        (
            several(errno.ECONNREFUSED, errno.ENETUNREACH),
            DownloadFailedError,
            "host",
            "no connection to dead.example: Network is unreachable, Connection refused",
        ),
        # As Linux reports ICMP messages (icmp_err_convert, icmpv6_err_convert).
        *(
            (os_error(number), DownloadFailedError, "host", "no connection to dead.example: ")
            for number in (
                errno.EHOSTUNREACH,
                errno.EHOSTDOWN,
                errno.ENONET,
                errno.ENOPROTOOPT,
                errno.EOPNOTSUPP,
                errno.EMSGSIZE,
                errno.EPROTO,
                errno.ECONNRESET,
                errno.ETIMEDOUT,
                errno.ENOTCONN,
            )
        ),
        # The host's or ours: the network, or a firewall.
        *(
            (os_error(number), DownloadFailedError, "either", "no connection to dead.example: ")
            for number in (
                errno.ENETUNREACH,
                errno.ENETDOWN,
                errno.EADDRNOTAVAIL,
                errno.EACCES,
                errno.EPERM,
            )
        ),
        *(
            (os_error(number), DownloadFailedError, "machine", "no connection to dead.example: ")
            for number in (errno.EMFILE, errno.ENOBUFS)
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
