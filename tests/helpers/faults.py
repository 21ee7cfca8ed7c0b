"""Crawlers with one fault each, as extensions of Scrapy: `EXTENSIONS={PATH: 0}`.

Each replaces one function, in the process of the crawl and in no other.
"""

import asyncio

from tests.helpers.troubles import Extension
from walsh_scrapy.downloadermiddlewares.pacing import PacingMiddleware
from walsh_scrapy.policy import backoff
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.robots import matching
from walsh_scrapy.politeness.blocklist import BlocklistCache
from walsh_scrapy.runtime.requests import rank_of
from walsh_scrapy.state import sources


class ListIsNeverRefreshed(Extension):
    """A list that is there is never asked for again."""

    def __init__(self, crawler):
        is_due = BlocklistCache.is_due.fget
        BlocklistCache.is_due = property(lambda self: self.hash is None and is_due(self))


class StarStopsAtSlashes(Extension):
    """In robots.txt `*` does not cross a "/"."""

    def __init__(self, crawler):
        found = matching._found
        matching._found = lambda tail, path, start: (
            "/" not in path[start:].partition(tail)[0] and found(tail, path, start)
        )


class RetryAfterIsCapped(Extension):
    """No hold is longer than a minute."""

    def __init__(self, crawler):
        hold = Backoff.hold
        Backoff.hold = lambda *given: min(60.0, hold(*given))


class BackoffHasNoChance(Extension):
    """The holds double, and nothing else."""

    def __init__(self, crawler):
        backoff._JITTER = 0.0


class BackoffIsLinear(Extension):
    """Each hold is longer than the one before by the same number of seconds."""

    def __init__(self, crawler):
        backoff.backoff_delay = lambda attempt, base, cap, random: min(
            cap, base * (attempt + 1) * (1.0 + 0.5 * random.random())
        )


class EntriesAreAlwaysNew(Extension):
    """Entries that are known are reported again."""

    def __init__(self, crawler):
        insert = sources.insert_unseen

        def insert_all(connection, found, **given):
            insert(connection, found, **given)
            return frozenset(each.key for each in found)

        sources.insert_unseen = insert_all


class FirstRequestsAreHeldBack(Extension):
    """Each first request to a host waits for three seconds."""

    def __init__(self, crawler):
        lease, asked = PacingMiddleware.process_request, set()

        async def process_request(self, request):
            host = self._context.host(request.url)
            if host not in asked and rank_of(request) is not None:
                asked.add(host)
                await asyncio.sleep(3.0)
            return await lease(self, request)

        PacingMiddleware.process_request = process_request
