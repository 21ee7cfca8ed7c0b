"""R1: every request has exactly one User-Agent; a declared crawl identifies no user either."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.messages import NEVER_SENT
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.policy.wording import for_others

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.parts import Crawl


logger = logging.getLogger(__name__)


class IdentityMiddleware(Component):
    """Sets ``WALSH_USER_AGENT``, whatever a spider or a setting says (order 860).

    A middleware nearer to the wire could still change the header. The download handler of this
    add-on therefore sets it once more, if this middleware is enabled.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._user_agent = crawl.context.options.user_agent.encode("ascii")
        self._never_sent = NEVER_SENT[crawl.kind]
        scrapys_own = str(crawl.settings["USER_AGENT"]).encode(errors="replace")
        # The values that no spider chose: WALSH_USER_AGENT, and USER_AGENT by Scrapy's middleware.
        self._expected = {self._user_agent, scrapys_own}
        self._warned: set[str] = set()

    async def process_request(self, request: Request) -> None:
        """Set the User-Agent, and in a declared crawl remove the headers that are never sent."""
        self._warn_of_dropped_headers(request)
        request.headers["User-Agent"] = self._user_agent
        for name in self._never_sent:
            request.headers.pop(name, None)

    def _warn_of_dropped_headers(self, request: Request) -> None:
        """Log each header that is removed or replaced, once per crawl and header.

        Without this line a spider that logs in would only see that the login does not work.
        """
        dropped = {name for name in self._never_sent if name in request.headers}
        if request.cookies and self._never_sent:
            dropped.add("Cookie")
        if request.headers.get("User-Agent", self._user_agent) not in self._expected:
            dropped.add("User-Agent")
        for name in sorted(dropped - self._warned):
            self._warned.add(name)
            is_replaced = name == "User-Agent"
            reason = "WALSH_USER_AGENT is sent" if is_replaced else "this add-on never sends it"
            logger.warning("dropped the %s header of %s: %s", name, for_others(request.url), reason)
