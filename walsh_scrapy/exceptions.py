"""Why a request ended without a usable response: each is an ``IgnoreRequest`` with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest

if TYPE_CHECKING:
    from scrapy.http import Response


class Denied(IgnoreRequest):
    """A gate denied the request; ``gate`` is its name in stats, ``reason`` a sentence."""

    def __init__(self, gate: str, reason: str) -> None:
        super().__init__(reason)
        self.gate = gate
        self.reason = reason


class RequestDeferred(IgnoreRequest):
    """The host must not be requested within ``WALSH_MAX_WAIT``; a later run continues (decision 7).

    ``until`` is the earliest time of the request, in epoch seconds.
    """

    def __init__(self, until: float, reason: str) -> None:
        super().__init__(reason)
        self.until = until


class HostDeferred(RequestDeferred):
    """The host is not tried again in this run (decisions 15 and 28).

    ``refused`` is 429 or 503 if it refused other requests with that.
    """

    def __init__(self, until: float, reason: str, refused: int | None = None) -> None:
        super().__init__(until, reason)
        self.refused = refused


class StillDue(RequestDeferred):
    """The reason is ours, not the host's: other workers may go on with it."""


class StateUnavailable(StillDue):
    """The state failed, so nothing can be paced or recorded; a later run continues.

    It does not count as a failure of the host or the source. ``until`` is the time of the failure.
    """


class MachineTrouble(StillDue):
    """This machine cannot make a connection: no descriptor, no route, no resolver (decision 29).

    It is not a failure of the host or the source. ``until`` is the time of the problem.
    """


class ProxyTrouble(MachineTrouble):
    """A proxy did not reach the host, and nothing shows that it reaches any host."""


class StoodStill(MachineTrouble):
    """This process stood still while its request was in flight, until its host was free again."""


class Unreachable(Exception):
    """A host cannot be reached: no address, no connection, or no TLS with it (decision 28).

    Raised together with an exception of Scrapy, such as ``DownloadTimeoutError``.
    """

    #: Whether it is about scheme, host and port only, because the host has answered.
    is_of_origin = False
    #: Whether a connection was made before it failed.
    is_connected = False

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(reason)
        self.host = host
        self.reason = reason


class TooSlow(DownloadTimeoutError):
    """A body came so slowly that it was given up (decision 46)."""


class NotDue(IgnoreRequest):
    """A spider requested a source by itself before it is due (R8).

    ``due_at`` is when it is due again, in epoch seconds.
    """

    def __init__(self, due_at: float) -> None:
        super().__init__("it was fetched in the meantime")
        self.due_at = due_at


class AlreadyRead(IgnoreRequest):
    """The document of a source was already fetched, for another source (R8, R9).

    ``requested_at`` is when, ``due_at`` when it is due again, both in epoch seconds; ``problem``
    is a sentence if the document was of no use, else empty.
    """

    def __init__(self, url: str, requested_at: float, due_at: float, problem: str) -> None:
        super().__init__(f"{url} was already fetched")
        self.url = url
        self.requested_at = requested_at
        self.due_at = due_at
        self.problem = problem


class TooLate(IgnoreRequest):
    """A request was not sent, because its host may be another worker's by then (decision 41)."""


class NotYet(IgnoreRequest):
    """A request that one of our coroutines sends must wait for its host once more (R4)."""


class HasCome(IgnoreRequest):
    """A document need not be requested any more: another crawl has brought it (R2, R3)."""


class NotDelivered(IgnoreRequest):
    """A project's own code kept robots.txt, the blocklist or its schema from us (decision 30).

    Its middleware answered the request or raised an exception, or its listener stopped the
    download. ``remedy`` is a sentence that says what to change.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class NotModified(IgnoreRequest):
    """The server answered our validators with 304: there is no new data (R7)."""

    def __init__(self, response: Response) -> None:
        super().__init__("304 Not Modified")
        self.response = response


class BadAnswer(IgnoreRequest):
    """A response that cannot be used; its status and its headers still count."""

    def __init__(self, response: Response, reason: str) -> None:
        super().__init__(reason)
        self.response = response
