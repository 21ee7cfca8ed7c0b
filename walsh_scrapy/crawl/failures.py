"""Why requests failed, as sentences for the operator, and the record of denied requests.

Each sentence names the host and the problem. A denial is counted in the stats, written into the
state and logged.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.crawl.ticket import evidence_of, rank_of, subject_of
from walsh_scrapy.exceptions import BadFraming, Denied, StateUnavailable, Unreachable
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import host_of, resolve_reference
from walsh_scrapy.policy.wording import Explained, one_line, printable
from walsh_scrapy.state.evidence import DenialRecord, denial_writer
from walsh_scrapy.wire.endpoints import causes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector
    from sqlalchemy import Connection

    from walsh_scrapy.crawl.context import Context

    WriteWith: TypeAlias = Callable[[str, Callable[[Connection], None]], None]

logger = logging.getLogger(__name__)

#: No request reached a server, by whatever handler.
NEVER_REACHED: Final = (Unreachable, CannotResolveHostError, DownloadConnectionRefusedError)
#: The maximum of characters that are quoted of a server or a library.
MAX_QUOTE_CHARACTERS: Final = 200


def reason_of(error: BaseException | None, url: str) -> str:
    """Return why a request for ``url`` failed, as one line.

    The log shows it, and the state keeps it as the ``detail`` of a source.
    """
    host = host_of(url)
    match error:
        case HttpError(response=response):
            return f"{host} answered {response.status}{_explain(response)}"
        case (IgnoreRequest() | Explained() | Unreachable()) as own if reason := one_line(str(own)):
            return printable(reason)
        case DownloadConnectionRefusedError():
            return f"{host} refused the connection"
        case CannotResolveHostError():
            return f"the DNS has no address for {host}"
        case DownloadTimeoutError() as timeout:
            return f"{host} timed out: {_quote(timeout)}"
        case DownloadCancelledError() as cancelled:
            return f"the response from {host} is too large: {_quote(cancelled)}"
        case BadFraming() as given_up:
            return f"the response from {host} was given up: {_quote(given_up)}"
        case ResponseDataLossError():
            return f"the response from {host} ended before it was complete"
        case DownloadFailedError() as failed:
            *_, first = causes(failed)
            return f"no response from {host}: {_quote(first)}"
    quote = _quote(error)
    return f"{type(error).__name__}: {quote}" if quote else type(error).__name__


def words_of(error: Exception) -> str:
    """Return why a file could not be written, in the words of the system if possible."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _explain(response: Response) -> str:
    """Return why a redirect was not followed, or which Accept got a 406; empty for others."""
    if response.status == HTTPStatus.NOT_ACCEPTABLE and response.request is not None:
        accept = response.request.headers.get("Accept") or b""
        return f" to Accept: {_quote_bytes(accept)}"
    if not 300 <= response.status < 400 or response.status == HTTPStatus.NOT_MODIFIED:
        return ""
    location = response.headers.get("Location")
    if location is None:
        return " without a Location"
    if target := resolve_reference(response.url, location):
        shown = printable(target)[:MAX_QUOTE_CHARACTERS]
        return f", which is not followed; its Location is {shown}"
    return f" with a Location that cannot be requested: {_quote_bytes(location)}"


def _quote_bytes(value: bytes) -> str:
    return ascii(value.decode("latin-1"))[:MAX_QUOTE_CHARACTERS]


def _quote(error: BaseException | None) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return printable(one_line(text) or "")[:MAX_QUOTE_CHARACTERS].rstrip(".") if error else ""


class Denials:
    """The denials of one crawl, by our gates and the project's own.

    ``write_with`` calls a function in the next transaction of a host.
    """

    def __init__(self, stats: StatsCollector, context: Context, write_with: WriteWith) -> None:
        self._stats = stats
        self._context = context
        self._write_with = write_with
        self.is_recording = True  #: False where requests are only probes of the gates
        self._added: WeakSet[Denied] = WeakSet()

    def deny(self, request: Request, gate: str, reason: str) -> Denied:
        """Add a denial; return the exception with which a gate denies the request."""
        error = Denied(gate, reason)
        self.add(request, error)
        return error

    def add(self, request: Request, error: Denied) -> None:
        """Count a denial, write it into the state, and log it (DEBUG); each once.

        Requests for declared sources are logged where their outcome is recorded.
        """
        if error in self._added or not self.is_recording:
            return
        self._added.add(error)
        self._stats.inc_value(f"walsh/{error.gate}/denied")
        self.write(request, error)
        if subject_of(request) is None and rank_of(request) is Rank.TARGET:
            logger.debug("%s is denied by %s: %s", request.url, error.gate, error.reason)

    def record_link(self, link: Request, error: Denied) -> None:
        """Write and count the denial of a link that a spider middleware drops.

        If the state fails, it is only logged: raised, it would lose the rest of the output.
        """
        try:
            self.write(link, error)
        except StateUnavailable as failure:
            logger.debug("the denial is not recorded: %s", failure)

    def write(self, request: Request, error: Denied) -> None:
        """Write a denial and its evidence into the state.

        It is written after the pending rows of its host, among which may be the robots.txt that it
        names.
        """
        record = DenialRecord(
            denied_at=self._context.clock.now(),
            host=host_of(request.url),
            url=request.url,
            gate=error.gate,
            reason=error.reason,
            run=self._context.run,
            evidence=evidence_of(request).of_gate(error.gate),
        )
        self._write_with(self._context.host(request.url), denial_writer(record))
