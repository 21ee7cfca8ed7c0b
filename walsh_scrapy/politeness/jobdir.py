"""``JOBDIR``: the requests that a stopped crawl keeps for its next start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.squeues import PickleFifoDiskQueue
from scrapy.utils.job import job_dir
from scrapy.utils.misc import build_from_crawler

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.runtime.requestmeta import rank_of, visit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Job:
    """The requests that a crawl keeps for its next start, in one of Scrapy's disk queues.

    Requests of gates and requests for declared sources are not kept, because the next start makes
    them itself.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        folder = job_dir(crawler.settings)
        self._path = str(Path(folder, "walsh.queue")) if folder else None

    @property
    def has_job_dir(self) -> bool:
        """Whether the crawl has a ``JOBDIR``."""
        return self._path is not None

    def take_requests(self) -> Iterator[Request]:
        """Yield the requests that the last start of this job kept, and remove them."""
        if self._path is not None:
            queue = build_from_crawler(PickleFifoDiskQueue, self._crawler, self._path)
            while request := queue.pop():
                yield request
            queue.close()

    def keep_requests(self, waiting: Iterable[Request]) -> None:
        """Keep the requests that wait; log those that cannot be written, and leave them out."""
        if self._path is None:
            return
        queue = build_from_crawler(PickleFifoDiskQueue, self._crawler, self._path)
        for request in waiting:
            if rank_of(request) is Rank.TARGET and visit_of(request) is None:
                try:
                    queue.push(request)
                except ValueError as error:
                    logger.warning("%s is not kept for the next start: %s", request, error)
        queue.close()
