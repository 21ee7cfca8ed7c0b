"""R1: every request has exactly one User-Agent, and no header that identifies a person."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.messages import NEVER_SENT
from walsh_scrapy.policy.wording import for_others

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.crawl import Crawl


logger = logging.getLogger(__name__)


class IdentityMiddleware(Component):
    """Sets the User-Agent over that of a spider, a setting or the command line (order 860).

    Middlewares behind this one may still change it. Where it is in force, our download handler does
    the same once more to the requests that it sends (decision 30).
    """

    def __init__(self, crawl: Crawl) -> None:
        self._user_agent = crawl.context.options.user_agent.encode("ascii")
        scrapys_own = str(crawl.settings["USER_AGENT"]).encode(errors="replace")
        #: User-Agents that no spider chose: ours, and that of Scrapy's middleware.
        self._expected = {self._user_agent, scrapys_own}
        self._told = set[str]()

    async def process_request(self, request: Request) -> None:
        """Set the User-Agent, and remove the headers that are never sent."""
        self._tell(request)
        request.headers["User-Agent"] = self._user_agent
        for name in NEVER_SENT:
            request.headers.pop(name, None)

    def _tell(self, request: Request) -> None:
        """Log each header that a spider or a middleware set in vain, once per crawl.

        Otherwise a spider that logs in would only see that its site does not know it.
        """
        brought = {name for name in NEVER_SENT if name in request.headers}
        if request.cookies:
            brought.add("Cookie")
        if request.headers.get("User-Agent", self._user_agent) not in self._expected:
            brought.add("User-Agent")
        for name in sorted(brought - self._told):
            self._told.add(name)
            reason = "this add-on never sends it"
            if name == "User-Agent":
                reason = "WALSH_USER_AGENT is sent instead"
            logger.warning("dropped the %s header of %s: %s", name, for_others(request.url), reason)
