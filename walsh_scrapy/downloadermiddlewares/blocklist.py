"""R3: the operator's opt-outs come first, before even robots.txt is asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import Denied, NotModified, reason_of
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist, sound_schema
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.scheduler import scheduler_of
from walsh_scrapy.state.documents import Document

if TYPE_CHECKING:
    from typing import Any, Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

logger = logging.getLogger(__name__)

#: After a failure the list is asked for again this soon, or at its own refresh if that is sooner.
RETRY_SECONDS = 3600.0


class BlocklistMiddleware:
    """Denies every request to a listed host, by a list that is never older than it allows.

    While the list is being fetched, all targets wait; whatever goes wrong, the last good list
    stays in force, however old (order 10, ruling 14).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._url = self._crawl.options.blocklist_url
        self._schema_url = self._crawl.options.blocklist_schema_url
        self._list, self._due_at = self._stored()
        self._candidate: Document | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Deny a listed host, or send for the list first."""
        rank = meta.rank(request)
        if not self._url or rank is Rank.OPERATOR:
            return None
        # A request for robots.txt is made for a target that passed here, with the list at hand.
        if rank is Rank.TARGET and self._crawl.now() >= self._due_at:
            return self._send_for_list(request)
        if entry := self._list.blocks(request.url):
            self._crawler.stats.inc_value("walsh/blocklist/denied")
            raise Denied("blocklist", f"{entry.domain} opted out ({entry.reason or 'no reason'})")
        meta.note(request, "blocklist", "not listed")
        return None

    def _stored(self) -> tuple[Blocklist, float]:
        """Return the list of an earlier run, and until when it need not be asked for again."""
        document = self._crawl.state.documents.find(self._url)
        if document is None or document.body is None:
            return Blocklist.EMPTY, 0.0
        try:
            known = Blocklist.parse(document.body)
        except InvalidBlocklist:
            logger.exception("the stored blocklist cannot be read; asking for it anew")
            return Blocklist.EMPTY, 0.0
        return known, document.checked_at + known.refresh.total_seconds()

    def _send_for_list(self, request: Request) -> Request:
        if scheduler := scheduler_of(self._crawler):
            scheduler.put_back(request)
            scheduler.restrict(Rank.OPERATOR)
        return self._request(self._url, self._list_arrived, self._list_failed)

    def _request(self, url: str, callback: Any, errback: Any) -> Request:  # noqa: ANN401
        known = self._crawl.state.documents.find(url)
        validators = meta.Validators(url, known.etag, known.last_modified) if known else None
        return Request(
            url,
            callback=callback,
            errback=errback,
            dont_filter=True,
            headers={"Accept": "application/json, */*;q=0.5"},
            meta={meta.RANK: Rank.OPERATOR, meta.VALIDATORS: validators},
        )

    def _list_arrived(self, response: Response) -> None:
        self._candidate = self._document(response)
        if self._schema_url:
            self._crawler.engine.crawl(
                self._request(self._schema_url, self._schema_arrived, self._schema_failed)
            )
        else:
            self._adopt(None)

    def _list_failed(self, failure: Failure) -> None:
        if isinstance(failure.value, NotModified):
            self._keep_on(failure.value.response)
        else:
            self._keep_last(f"the blocklist could not be fetched: {reason_of(failure.value)}")

    def _schema_arrived(self, response: Response) -> None:
        self._crawl.state.documents.keep(self._schema_url, self._document(response))
        self._adopt(response.body)

    def _schema_failed(self, failure: Failure) -> None:
        known = self._crawl.state.documents.find(self._schema_url)
        if not isinstance(failure.value, NotModified):
            reason = reason_of(failure.value)
            logger.warning("%s could not be fetched: %s", self._schema_url, reason)
        self._adopt(known.body if known else None)

    def _adopt(self, schema: bytes | None) -> None:
        """Put the fetched list in force if it is valid; else the last one stays."""
        candidate, self._candidate = self._candidate, None
        if candidate is None or candidate.body is None:
            return
        try:
            adopted = Blocklist.parse(candidate.body, sound_schema(schema) if schema else None)
        except InvalidBlocklist as error:
            self._keep_last(str(error))
            return
        self._list = adopted
        self._crawl.state.documents.keep(self._url, candidate)
        logger.info("blocklist of %d domains adopted from %s", len(adopted), self._url)
        self._go_on(adopted.refresh.total_seconds())

    def _keep_on(self, response: Response) -> None:
        """Go on with a list that its server says is still the newest."""
        known = self._crawl.state.documents.find(self._url)
        if known is not None:
            validators = meta.Validators.of(response)
            self._crawl.state.documents.keep(
                self._url,
                Document(
                    known.body,
                    validators.etag or known.etag,
                    validators.last_modified or known.last_modified,
                    self._crawl.now(),
                ),
            )
        self._go_on(self._list.refresh.total_seconds())

    def _keep_last(self, problem: str) -> None:
        """Go on with the last good list, however old, and say so (R3)."""
        has_one = self._list is not Blocklist.EMPTY
        fallback = "the last good one stays in force" if has_one else "there is none yet"
        logger.warning("%s: %s; %s", self._url, problem, fallback)
        self._crawler.stats.inc_value("walsh/blocklist/failed")
        self._go_on(min(RETRY_SECONDS, self._list.refresh.total_seconds()))

    def _go_on(self, seconds: float) -> None:
        self._due_at = self._crawl.now() + seconds
        if scheduler := scheduler_of(self._crawler):
            scheduler.restrict(Rank.TARGET)

    def _document(self, response: Response) -> Document:
        validators = meta.Validators.of(response)
        now = self._crawl.now()
        return Document(response.body, validators.etag, validators.last_modified, now)
