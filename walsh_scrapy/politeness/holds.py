"""Keeps the holds of hosts where the backoff gate works without the pacing gate (R5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.politeness.hostqueue import Wait
from walsh_scrapy.politeness.inflight import exchange_of
from walsh_scrapy.runtime.requestmeta import mark, rank_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.politeness.hostqueue import HostQueues
    from walsh_scrapy.politeness.inflight import InFlight
    from walsh_scrapy.politeness.putoff import PutOffHosts
    from walsh_scrapy.runtime.context import Context


class Holds:
    """Lets one request at a time go to a host, and none while the host is on hold.

    One at a time, because a request that passed here may wait in Scrapy's downloader, where the
    hold is not checked again.
    """

    def __init__(
        self, context: Context, queues: HostQueues, put_off: PutOffHosts, in_flight: InFlight
    ) -> None:
        self._context = context
        self._queues = queues
        self._put_off = put_off
        self._in_flight = in_flight

    async def wait(self, request: Request) -> Request | None:
        """Return None when a request may be sent, or what to send back; see ``HostQueue.wait``."""
        host, name = self._context.host(request.url), self._context.hold_name(request.url)

        def seconds() -> float:
            self._put_off.check(host_of(request.url), rank_of(request))
            left = self._context.state.ledger.find(name).hold
            if not left:
                self._in_flight.begin(request, host)
            return left

        quiet = self._in_flight.quiet_host
        return await self._queues.wait(request, Wait("backoff", host, seconds, lambda: quiet(host)))

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Write the hold that an error asks for, before the next request is sent."""
        if response.status >= 400:
            self.write(request, response)

    def write(self, request: Request, response: Response | None) -> None:
        """Write a hold into the ledger, which every crawl on the state obeys, later ones too."""
        exchange = exchange_of(request, response, self._in_flight.end(request) or 0.0)
        name = self._context.hold_name(request.url)
        snapshot = self._context.state.ledger.answered(name, exchange, self._context.backoff)
        mark(request, hold=snapshot.hold)

    def over(self, request: Request) -> None:
        """Mark a request as ended, with a response or an error, so that the next may be sent."""
        self._in_flight.end(request)
