"""A crawl that is stopped goes on where it ended, if it has a folder for that (``JOBDIR``)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.squeues import PickleFifoDiskQueue
from scrapy.utils.job import job_dir
from scrapy.utils.misc import build_from_crawler

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.runtime import meta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Job:
    """The requests that a crawl leaves to its next start, in a queue of Scrapy's own.

    What a gate asks for and what is asked for a declared source are not among them: the next
    start asks for both by itself.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        folder = job_dir(crawler.settings)
        self._path = str(Path(folder, "walsh.queue")) if folder else None

    @property
    def goes_on(self) -> bool:
        """Whether there is a folder for what is left."""
        return self._path is not None

    def left(self) -> Iterator[Request]:
        """Take out what the last crawl of this job left."""
        if self._path is not None:
            queue = build_from_crawler(PickleFifoDiskQueue, self._crawler, self._path)
            while request := queue.pop():
                yield request
            queue.close()

    def leave(self, waiting: Iterable[Request]) -> None:
        """Write what is still to be asked for; what cannot be written is named and left out."""
        if self._path is None:
            return
        queue = build_from_crawler(PickleFifoDiskQueue, self._crawler, self._path)
        for request in waiting:
            if meta.rank(request) is Rank.TARGET and meta.source(request) is None:
                try:
                    queue.push(request)
                except ValueError as error:
                    logger.warning("%s is not kept for the next start: %s", request, error)
        queue.close()
