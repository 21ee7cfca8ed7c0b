"""Broken crawlers, as extensions of Scrapy: each breaks one rule, and records what it does.

`EXTENSIONS={PATH: 0}`; a simulation runs in a process of its own, so nothing is patched elsewhere.
"""

from dataclasses import replace

from scrapy import Request

from walsh_scrapy.downloadermiddlewares import robots as robots_gate
from walsh_scrapy.policy.robots.access import RobotsCopy, RobotsFile
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.politeness import robotscache
from walsh_scrapy.politeness.robotscache import RobotsCache
from walsh_scrapy.sources import Source
from walsh_scrapy.spidermiddlewares.scope import ScopeMiddleware
from walsh_scrapy.state import ledger


class Mutant:
    @classmethod
    def from_crawler(cls, crawler):
        cls.break_it(crawler)
        return cls()


class OnePortForAll(Mutant):
    """Uses the robots.txt of plain HTTP's port for every scheme and port of a host."""

    @staticmethod
    def break_it(_crawler):
        robots_gate.origin_of = lambda url: f"http://{host_of(url)}:80"
        robots_gate.robots_url = lambda url: f"http://{host_of(url)}/robots.txt"


class Emptied(Mutant):
    """Takes a 304 on robots.txt for an empty file."""

    @staticmethod
    def break_it(_crawler):
        after = robotscache.copy_after

        def emptied(known, now, status, result, body):
            copy = after(known, now, status, result, body)
            return replace(copy, body=b"") if result == "unchanged" else copy

        robotscache.copy_after = emptied


class Forgetful(Mutant):
    """Takes a failure of robots.txt for an empty file, though it has a good copy."""

    @staticmethod
    def break_it(_crawler):
        after = robotscache.copy_after

        def emptied(_known, now, status, result, body):
            return after(None, now, status, "good" if result == "unreachable" else result, body)

        robotscache.copy_after = emptied


class OneFileForAll(Mutant):
    """Uses the first robots.txt that it read for all hosts, and asks for no other."""

    @staticmethod
    def break_it(_crawler):
        find = RobotsCache.find
        RobotsCache.find = lambda cache, *given: (
            next(iter(cache._files.values()), None) or find(cache, *given)
        )


class Mixed(Mutant):
    """Asks for each robots.txt, and judges by the first one that it read."""

    @staticmethod
    def break_it(_crawler):
        find = RobotsCache.find

        def mixed(cache, origin, url):
            file = find(cache, origin, url)
            first = next(iter(cache._files.values()), None)
            return file and first and replace(first, copy=file.copy)

        RobotsCache.find = mixed


class NeverAsked(Mutant):
    """Asks for no robots.txt, and says that it was empty."""

    @staticmethod
    def break_it(_crawler):
        def empty(cache, _origin, _url):
            now = cache._context.clock.now()
            return RobotsFile.read(RobotsCopy(now, 200, b""), "Walsh-Research", "allow", now)

        RobotsCache.find = empty


class Unlogged(Mutant):
    """Records no request for robots.txt."""

    @staticmethod
    def break_it(_crawler):
        begin, end = ledger.log_lease, ledger.log_end
        ledger.log_lease = lambda connection, record: (
            None if record.purpose == "robots" else begin(connection, record)
        )
        ledger.log_end = lambda connection, record, lease: (
            record.purpose == "robots" or end(connection, record, lease)
        )


class Follower(Mutant):
    """Asks for what the entries of a feed link to."""

    @classmethod
    def break_it(cls, crawler):
        ScopeMiddleware._declared_by = lambda _gate, _request: "declared"
        parse = crawler.spidercls.parse

        def follow(spider, response, source):
            yield from parse(spider, response, source)
            if source.url == response.url:
                url = response.urljoin("/1.png")
                yield cls.request(spider, source, url)

        crawler.spidercls.parse = follow


class OfSource(Follower):
    @staticmethod
    def request(spider, source, url):
        return spider.request(source, url, "*/*", lambda _type: True)


class OfItself(Follower):
    @staticmethod
    def request(spider, _source, url):
        return spider.request(Source(url), url, "*/*", lambda _type: True)


class OfNothing(Follower):
    @staticmethod
    def request(_spider, _source, url):
        return Request(url, callback=lambda _response: None)
