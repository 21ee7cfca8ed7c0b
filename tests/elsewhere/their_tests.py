"""The tests of another project, which get the fixtures from the entry point of the wheel."""

import json
import sys

import walsh_scrapy
from walsh_scrapy.testing import Reply, Site, assert_polite, redirect
from walsh_scrapy.testing.politeness import most_in_flight

USER_AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +http://bot.example/)"
LIST = "http://bot.example/blocklist.json"
ROBOTS = "User-agent: example-bot\nDisallow: /private/\n\nUser-agent: *\nDisallow: /\n"


def page(*links):
    text = "<title>A page</title>" + "".join(f'<a href="{link}">x</a>' for link in links)
    return Reply(text, content_type="text/html")


def slowly(robots):
    return Reply(robots, delay=0.5)


def blocklist(domain):
    return json.dumps(
        {
            "contract": "walsh-research-blocklist/v1",
            "updated": "2026-05-23T00:00:00Z",
            "operator": "Nobody",
            "contact": "nobody@bot.example",
            "policy": "http://bot.example/",
            "refresh": "PT6H",
            "blocked": [{"domain": domain, "added": "2026-05-23", "reason": "mail"}],
        }
    )


def test_a_crawl_that_follows_links_over_many_hosts_at_once(loopback_web, crawl):
    assert walsh_scrapy.__file__.startswith(sys.prefix), "the wheel's own copy"
    others = [f"http://{name}.example/" for name in ("b", "busy", "moved", "once")]
    never = ["http://www.listed.example/", "http://elsewhere.test/", "http://away.example/"]
    web = loopback_web(
        Site(
            "a.example",
            ROBOTS,
            {
                "/": page("/1", "/private/x", "/missing", *others, *never),
                "/1": page("/1"),
            },
        ),
        Site(
            "b.example",
            slowly("User-agent: *\nCrawl-delay: 2\n"),
            {
                "/": page(),
                "/2": page(),
            },
        ),
        Site(
            "busy.example",
            slowly(""),
            {
                "/": [Reply("later", 429, headers={"Retry-After": "2"}), page()],
            },
        ),
        Site("once.example", "User-agent: *\nCrawl-delay: 5000\n", {"/": page()}),
        Site("moved.example", slowly(""), {"/": redirect("http://b.example/2")}),
        Site("away.example", slowly(""), {"/": redirect("http://elsewhere.test/")}),
        Site("elsewhere.test", "", {"/": page()}),
        Site("www.listed.example", "", {"/": page()}),
        Site("bot.example", "", {"/blocklist.json": blocklist("listed.example")}),
    )
    result = crawl(web, "pages", settings={"WALSH_BLOCKLIST_URL": LIST})
    assert result.exit_code == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert_polite(
        result.log,
        serial=False,
        user_agent=USER_AGENT,
        crawl_delays={"b.example": 2.0},
        denied=["http://a.example/private/"],
        blocked=["listed.example"],
        robots_exempt=[LIST],
    )
    assert most_in_flight(result.log) > 1
    assert "elsewhere.test" not in {hit.host for hit in result.log}
    found = {item["url"]: item.get("trouble") for item in result.items}
    assert found == {
        "http://a.example/1": None,
        "http://b.example/": None,
        "http://b.example/2": None,
        "http://busy.example/": None,
        "http://a.example/missing": "HttpError",
        "http://a.example/private/x": "Denied",
        "http://once.example/": "RequestDeferred",
        "http://www.listed.example/": "Denied",
    }
    assert {item["stamp"] for item in result.items} == {"theirs"}
    for line in (
        "http://a.example/private/x is denied by robots: line 2 of robots.txt",
        "http://once.example/ is deferred: once.example may not be asked before",
        "DOWNLOAD_HANDLERS: https is scrapy.core.downloader.handlers.http11",
        "denied            2   1 by blocklist, 1 by robots",
        "deferred          1",
        "retried           1",
    ):
        assert line in result.stderr


def test_a_clock_of_ones_own(fake_clock):
    assert fake_clock.advance(5) == fake_clock.now()
