"""Broken crawlers that `benchmarks.mutants` does not have, as extensions: `EXTENSIONS={PATH: 0}`.

A simulation runs in a process of its own, so nothing is patched elsewhere.
"""

from dataclasses import replace

from tests.helpers.problems import Extension
from walsh_scrapy.crawl.robots import RobotsCache
from walsh_scrapy.policy.robots.copy import RobotsCopy, RobotsFile
from walsh_scrapy.sources.source import Source
from walsh_scrapy.spidermiddlewares.scope import ScopeMiddleware


class OneFileForAll(Extension):
    """Uses the first robots.txt that it read for all hosts, and asks for no other."""

    def __init__(self, _crawler):
        find = RobotsCache.find
        RobotsCache.find = lambda cache, *given: (
            next(iter(cache._files.values()), None) or find(cache, *given)
        )


class Mixed(Extension):
    """Asks for each robots.txt, and judges by the first one that it read."""

    def __init__(self, _crawler):
        find = RobotsCache.find

        def mixed(cache, origin, url):
            file = find(cache, origin, url)
            first = next(iter(cache._files.values()), None)
            return file and first and replace(first, copy=file.copy)

        RobotsCache.find = mixed


class NeverAsked(Extension):
    """Asks for no robots.txt, and says that it was empty."""

    def __init__(self, _crawler):
        def empty(cache, _origin, _url):
            now = cache._context.clock.now()
            return RobotsFile.read(RobotsCopy(now, 200, b""), "Walsh-Research", "allow", now)

        RobotsCache.find = empty


class OfItself(Extension):
    """Asks for an image, as a source of its own that nobody declared."""

    def __init__(self, crawler):
        ScopeMiddleware._declared_by = lambda _gate, _request: "declared"
        parse = crawler.spidercls.parse

        def follow(spider, response, source):
            yield from parse(spider, response, source)
            if source.url == response.url:
                url = response.urljoin("/1.png")
                yield spider.request(Source(url), url, "*/*", lambda _type: True)

        crawler.spidercls.parse = follow
