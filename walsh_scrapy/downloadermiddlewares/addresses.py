"""R2: what the gates judge is what is sent, so dot segments are removed first (decision 32)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.runtime.requests import resolved

if TYPE_CHECKING:
    from scrapy import Request


class AddressMiddleware:
    """Sends a request for `/a/../b` back as one for `/b`, whoever made it (order 1)."""

    async def process_request(self, request: Request) -> Request | None:
        """Return the request without dot segments, or None if its URL has none."""
        return resolved(request)
