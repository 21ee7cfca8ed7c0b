"""R6 and R9 on the wire: only declared targets, no private hosts, no other bodies."""

import asyncio
import gzip
import json
import re
import socket
from dataclasses import replace
from ipaddress import ip_address

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from tests.helpers.sites import feed, feeds, judge, paths, rows_of, site, trouble
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.ticket import Hop, carry_ticket, note, ticket_of
from walsh_scrapy.downloadermiddlewares.privatehosts import PrivateHostsMiddleware
from walsh_scrapy.exceptions import Denied, StateUnavailable
from walsh_scrapy.feeds.scope import ScopeMiddleware
from walsh_scrapy.testing.feeds import Post
from walsh_scrapy.testing.site import RIGHT, Answer, Certificate
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
    assert re.search(
        r"an HTML page \(served as text/html; .* discover http://\S+` looks for its feed\)",
        result.stderr,
    )


PUBLIC = "93.184.216.34"
PRIVATE = "10.0.0.1"
NAMES = {"inside.example": PRIVATE, "inside6.example": "fd00::1"}


@pytest.fixture
def gate_with(monkeypatch, tmp_path):
    """Return the gate of a new crawl, for which names are public but for those of NAMES."""

    def getaddrinfo(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (NAMES.get(host, PUBLIC), port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    def build(**settings):
        own = {
            "WALSH_STATE_URL": f"sqlite:///{tmp_path / 'state.sqlite3'}",
            "HTTPPROXY_ENABLED": False,
        }
        return PrivateHostsMiddleware.from_crawler(get_crawler(settings_dict=own | settings))

    return build


def answer(gate, request, address):
    """Let a request be answered from an address."""
    ip = address and ip_address(address)
    gate.response_downloaded(Response(request.url, ip_address=ip, request=request), request)


def is_denied(gate, request):
    try:
        asyncio.run(gate.process_request(request))
    except Denied:
        return True
    return False


@pytest.mark.parametrize(
    ("hop", "address", "url", "denied"),
    [
        (None, None, "http://10.0.0.1/", False),  # declared: an operator may crawl his intranet
        (None, None, "http://inside.example/", False),
        ("http://intranet/", PRIVATE, "http://10.0.0.1/", False),
        ("http://intranet/", PUBLIC, "http://10.0.0.1/", False),  # its name is private
        ("http://inside.example/", PRIVATE, "http://intranet/", False),
        ("http://inside.example/", "::1", "https://[::1]:8443/", False),
        ("http://blog.example/", PUBLIC, "http://10.0.0.1/", True),
        ("http://blog.example/", "2606:2800:220:1::1", "http://10.0.0.1/", True),
        ("http://93.184.216.34/", PUBLIC, "http://inside.example/", True),
        ("http://blog.example/", None, "http://10.0.0.1/", True),  # a handler that names none
        ("https://blog.example:8443/", PUBLIC, "http://[::1]/", True),
        ("http://blog.example/", PUBLIC, "http://[::ffff:10.0.0.1]/", True),
        ("http://blog.example/", PUBLIC, "http://2130706433/", True),
        ("http://blog.example/", PUBLIC, "http://printer.local/", True),
        ("http://blog.example/", PUBLIC, "http://inside.example:8080/", True),
        ("http://blog.example/", PUBLIC, "https://inside6.example/", True),
        ("http://blog.example/", PUBLIC, "http://other.example/", False),
        ("http://blog.example/", PUBLIC, "http://blog.example/3", False),
    ],
)
@pytest.mark.parametrize("is_scrapys", [True, False])
def test_a_public_host_may_not_lead_to_a_private_one(
    gate_with, hop, address, url, denied, is_scrapys
):
    gate = gate_with()
    request = Request(url)
    if hop:
        first = Request(hop)
        answer(gate, first, address)
        if is_scrapys:
            request.meta["redirect_urls"] = [hop]
        else:
            carry_ticket(first, request)
            note(request, hops=(Hop(hop, 301),))
    assert is_denied(gate, request) is denied
    is_public = bool(hop) and "in" not in hop[:10]
    assert denied or ticket_of(request).public_only is is_public, "the connection is judged too"


def test_a_private_answer_excuses_no_later_one(gate_with):
    """A host that answered from a private address once redirects from a public one later."""
    gate = gate_with()
    for address, denied in ((PRIVATE, False), (PUBLIC, True)):
        first = Request("http://blog.example/feed")
        answer(gate, first, address)
        target = Request("http://10.0.0.1/admin")
        carry_ticket(first, target)
        note(target, hops=(Hop(first.url, 302),))
        assert is_denied(gate, target) is denied


def test_a_chain_stays_public_behind_a_private_hop(gate_with):
    gate = gate_with()
    first, second, third = (Request(f"http://{name}.example/") for name in ("a", "b", "c"))
    answer(gate, first, PUBLIC)
    carry_ticket(first, second)
    answer(gate, second, PRIVATE)  # an address that our handler would not have connected to
    carry_ticket(second, third)
    assert not is_denied(gate, third)
    assert ticket_of(third).public_only


def test_a_name_that_was_public_stays_public_in_the_run(gate_with):
    gate = gate_with()
    answer(gate, Request("http://blog.example/robots.txt"), PUBLIC)
    for url in ("https://blog.example/feed", "http://blog.example:8080/other"):
        later = Request(url)
        assert not is_denied(gate, later)
        assert ticket_of(later).public_only
    other = Request("http://other.example/")
    assert not is_denied(gate, other)
    assert not ticket_of(other).public_only


@pytest.mark.parametrize(("name", "is_public"), [("blog.example", True), ("intranet", False)])
def test_through_a_proxy_only_names_count(gate_with, monkeypatch, name, is_public):
    monkeypatch.setenv("http_proxy", "http://10.0.0.9:3128")
    gate = gate_with(HTTPPROXY_ENABLED=True)
    first = Request(f"http://{name}/", meta={"proxy": "http://10.0.0.9:3128"})
    answer(gate, first, "10.0.0.9")
    assert ticket_of(first).public_only is is_public
    for url, denied in (("http://inside.example/", False), ("http://10.0.0.1/", is_public)):
        target = Request(url)
        carry_ticket(first, target)
        assert is_denied(gate, target) is denied


# On the wire: the sites of these webs have public addresses, and 127.0.0.7 is a private one.

INSIDE = Answer(("127.0.0.7",))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_page_comes_from_a_name_that_turned_private(direct_web, crawl, scheme):
    tls = Certificate.GOOD if scheme == "https" else None
    rebound = Site(
        "blog.example",
        pages={"/one": feed(), "/two": feed("Two", ["Three"])},
        dns=[RIGHT, RIGHT, INSIDE],  # robots.txt, one feed, and then the other
        tls=tls,
    )
    web = direct_web(rebound)
    sources = [f"{scheme}://blog.example/{name}" for name in ("one", "two")]
    result = crawl(web, sources=sources, settings=trouble("PublicWeb"))
    assert len(result.log) == 2
    outcomes = rows_of(crawl, "SELECT outcome FROM sources ORDER BY outcome")
    assert outcomes == [("denied by privatehosts",), ("fetched",)]
    assert "privatehosts" in result.stderr


@pytest.mark.parametrize(
    "location",
    [
        "http://inside.example/admin",
        "https://inside.example/admin",
        "http://127.0.0.7/admin",
        "http://127.0.0.7:80/admin",
        "http://[::1]/admin",
        "/next",  # which leads to a private host
    ],
)
@pytest.mark.parametrize("place", ["feed", "robots"])
def test_no_redirect_of_a_public_host_reaches_a_private_one(direct_web, crawl, location, place):
    """Although the operator declares a source on the private host, which is requested."""
    pages = {"/feed": feed()} | {f"/{place}": redirect(location)} if place == "feed" else {}
    robots = redirect(location) if place == "robots" else ""
    further = {"/next": redirect("http://inside.example/admin")}
    web = direct_web(
        Site("blog.example", robots, {"/feed": feed()} | pages | further),
        replace(site("inside.example", admin=feed()), dns=INSIDE),
    )
    sources = feeds("inside", "blog")
    result = crawl(web, sources=sources, settings=trouble("PublicWeb"))
    assert not [hit for hit in result.log if hit.path == "/admin"]
    assert "inside.example/feed" in paths(result.log)


def test_a_private_host_may_redirect_to_another(direct_web, crawl):
    web = direct_web(
        replace(site("wiki.example", feed=redirect("http://sso.example/feed")), dns=INSIDE),
        replace(site("sso.example"), dns=Answer(("127.0.0.8",))),
    )
    result = crawl(web, sources=feeds("wiki"), settings=trouble("PublicWeb"))
    assert paths(result.log)[-1] == "sso.example/feed"
    assert len(result.items) == 2


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
