"""The tests of another project, which get the fixtures from the entry point of the wheel."""

import json
import sys

import walsh_scrapy
from walsh_scrapy.testing import Reply, Site, assert_polite
from walsh_scrapy.testing.hit import most_at_once

USER_AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +http://bot.example/)"
LIST = "http://bot.example/blocklist.json"
ROBOTS = "User-agent: example-bot\nDisallow: /private/\n\nUser-agent: *\nDisallow: /\n"


def page(*links):
    text = "<title>A page</title>" + "".join(f'<a href="{link}">x</a>' for link in links)
    return Reply(text, content_type="text/html")


def blocklist(domain):
    blocked = [{"domain": domain, "added": "2026-05-23", "reason": "mail"}]
    return json.dumps({"contract": "walsh-research-blocklist/v1", "blocked": blocked})


def test_a_crawl_that_follows_links_over_many_hosts_at_once(walsh_loopback_web, walsh_crawl):
    assert walsh_scrapy.__file__.startswith(sys.prefix), "the wheel's own copy"
    others = [f"http://{host}.example/" for host in ("b", "c", "www.listed")]
    links = ("/1", "/private/x", "/missing", *others)
    web = walsh_loopback_web(
        Site("a.example", ROBOTS, {"/": page(*links), "/1": page()}),
        Site("b.example", Reply("User-agent: *\nCrawl-delay: 2\n", delay=0.5), {"/": page()}),
        Site("c.example", Reply("", delay=0.5), {"/": page()}),
        Site("www.listed.example", "", {"/": page()}),
        Site("bot.example", "", {"/blocklist.json": blocklist("listed.example")}),
    )
    result = walsh_crawl(web, "pages", settings={"WALSH_BLOCKLIST_URL": LIST})
    assert result.exit_code == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert_polite(
        result.log,
        serial=False,
        anonymous=False,
        user_agent=USER_AGENT,
        crawl_delays={"b.example": 2.0},
        denied=["http://a.example/private/"],
        blocked=["listed.example"],
        robots_exempt=[LIST],
    )
    assert most_at_once((hit.started, hit.ended) for hit in result.log) > 1
    assert {item["url"]: item.get("trouble") for item in result.items} == {
        "http://a.example/1": None,
        "http://b.example/": None,
        "http://c.example/": None,
        "http://a.example/missing": "HttpError",
        "http://a.example/private/x": "Denied",
        "http://www.listed.example/": "Denied",
    }
    assert {item["stamp"] for item in result.items} == {"theirs"}
    for line in (
        "http://a.example/private/x is denied by robots: line 2 of robots.txt",
        "denied            2   1 by blocklist, 1 by robots",
    ):
        assert line in result.stderr


def test_a_clock_of_ones_own(walsh_fake_clock):
    assert walsh_fake_clock.advance(5) == walsh_fake_clock.now()
