"""R6 and R9 on the wire: only declared targets, no private hosts, no other bodies."""

import asyncio
import gzip
import json
import socket
from contextlib import nullcontext

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from tests.helpers.sites import feed, feeds, judge, paths, rows_of, site
from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.ticket import ticket_of
from walsh_scrapy.downloadermiddlewares.privatehosts import PrivateHostsMiddleware
from walsh_scrapy.exceptions import Denied, StateUnavailable
from walsh_scrapy.spidermiddlewares.scope import ScopeMiddleware
from walsh_scrapy.testing.feeds import Post
from walsh_scrapy.testing.web import Reply, Site, redirect

LINKS = [Post("One", "http://blog.example/one"), Post("Two", "http://blog.example/two.png")]


def test_only_declared_urls_are_requested(direct_web, crawl):
    page = (
        '<link rel="alternate" href="/feed"><img src="/a.png">'
        '<meta http-equiv="refresh" content="0;url=/b">'
    )
    web = direct_web(
        Site(
            "blog.example",
            pages={
                "/feed": feed("Blog", LINKS),
                "/page": Reply(f"<!doctype html><html>{page}</html>", content_type="text/html"),
            },
        ),
        site("same.example", feed=redirect("http://blog.example/feed")),
    )
    declared = [f"http://{url}" for url in ("blog.example/feed", "blog.example/page")]
    declared += ["http://same.example/feed"]
    result = crawl(web, sources=declared)
    judge(result, declared=declared)
    assert sorted(paths(result.log)) == [
        *["blog.example/feed"] * 2,  # no source vanishes as a duplicate
        "blog.example/page",
        "blog.example/robots.txt",
        "same.example/feed",
        "same.example/robots.txt",
    ]
    assert {item["url"] for item in result.items} == {post.link for post in LINKS}
    assert "an HTML page" in result.stderr


@pytest.mark.parametrize(
    ("hops", "url", "denied"),
    [
        ([], "http://10.0.0.1/", False),  # declared: an operator may crawl his intranet
        (["http://intranet/"], "http://10.0.0.1/", False),
        (["http://blog.example/"], "http://10.0.0.1/", True),
        (["http://blog.example/", "http://blog.example/2"], "http://[::1]/", True),
        (["http://blog.example/"], "http://2130706433/", True),
        (["http://blog.example/"], "http://printer.local/", True),
        (["http://blog.example/"], "http://inside.example/", True),
        (["http://blog.example/"], "http://other.example/", False),
        (["http://blog.example/"], "http://blog.example/3", False),
    ],
)
def test_a_public_host_may_not_redirect_to_a_private_one(monkeypatch, tmp_path, hops, url, denied):
    def getaddrinfo(host, port, **_):
        address = "10.0.0.1" if host == "inside.example" else "93.184.216.34"
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    crawler = get_crawler(
        settings_dict={
            "WALSH_STATE_URL": f"sqlite:///{tmp_path / 'state.sqlite3'}",
            "HTTPPROXY_ENABLED": False,
        }
    )
    gate = PrivateHostsMiddleware.from_crawler(crawler)
    request = Request(url, meta={"redirect_urls": hops} if hops else {})
    with pytest.raises(Denied) if denied else nullcontext():
        asyncio.run(gate.process_request(request))
    from_public = bool(hops) and "intranet" not in hops[0]
    assert ticket_of(request).public_only is from_public, "the connection is judged too"


def test_a_link_is_dropped_alone_if_the_state_fails(monkeypatch, tmp_path):
    """What the spider yields after it would be lost, and its page answers 304 the next time."""
    crawler = get_crawler(
        settings_dict={"WALSH_STATE_URL": f"sqlite:///{tmp_path / 'state.sqlite3'}"}
    )
    crawler.spider = crawler._create_spider("any")
    gate = ScopeMiddleware.from_crawler(crawler)

    def fail(_record):
        raise StateUnavailable(0.0, "the server went away")

    monkeypatch.setattr(Crawl.of(crawler).context.state, "write", fail)
    request = Request("http://blog.example/feed")

    async def given():
        for output in ("before", Request("http://blog.example/undeclared"), "after"):
            yield output

    async def passed():
        response = Response(request.url, request=request)
        return [output async for output in gate.process_spider_output(response, given())]

    assert asyncio.run(passed()) == ["before", "after"]


# Decision 34: a hostile document costs neither the state nor another source anything.

AUTHORS = [{"name": f"{number:0290}"} for number in range(100)]


def packed(host, document, content_type):
    coded = {"Content-Encoding": "gzip"}
    page = Reply(gzip.compress(document.encode()), content_type=content_type, headers=coded)
    return Site(host, "", {"/feed": page})


def test_hostile_feeds_beside_an_honest_one(direct_web, crawl):
    items = [{"id": number} for number in range(3000)]
    inherited = {"version": "https://jsonfeed.org/version/1.1", "authors": AUTHORS, "items": items}
    attributes = " ".join(f"a{number}=''" for number in range(50_000))
    web = direct_web(
        packed("inherited.example", json.dumps(inherited), "application/feed+json"),
        packed("attributes.example", f"<rss><channel {attributes}/></rss>", "text/xml"),
        site("honest.example"),
    )
    result = crawl(web, sources=feeds("inherited", "attributes", "honest"))
    judge(result)
    rows = rows_of(crawl, "SELECT url, outcome, detail FROM sources")
    ((size,),) = rows_of(crawl, "SELECT sum(length(item)) FROM entries")
    found = {url.split("/")[2]: (outcome, detail) for url, outcome, detail in rows}
    left_out = result.stats["walsh/entries/left_out"]
    assert found["honest.example"] == ("fetched", "")
    assert found["inherited.example"][0] == "fetched"
    assert f"skipped the oldest {left_out}" in found["inherited.example"][1]
    assert found["attributes.example"][0] == "failed"
    assert "longer than 5 s" in found["attributes.example"][1]
    assert len(result.items) == 3000 - left_out + 2
    assert 4_000_000 < size < 8 * 1024 * 1024
