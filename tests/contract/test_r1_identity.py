"""R1: the exact User-Agent on every request, and no header that connects two visits."""

import asyncio
from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.settings import Settings

from tests.helpers.sites import LIST_URL, blocklist, feed, judge, site
from walsh_scrapy import identity
from walsh_scrapy.downloadermiddlewares.identity import IdentityMiddleware
from walsh_scrapy.testing.web import Reply, Site, redirect

pytestmark = pytest.mark.usefixtures("crawl")


def test_the_identity_is_the_contracts_to_the_letter():
    wanted = "Mozilla/5.0 (compatible; Walsh-Research/1.0; +https://wal.sh/bot/)"
    assert wanted == identity.USER_AGENT
    assert identity.UA_TOKEN == "Walsh-Research"


def test_every_request_has_the_user_agent_whatever_the_command_line_says(direct_web, crawl):
    refresh = {"Set-Cookie": "seen=1; Path=/", "Refresh": "0; url=/feed?refreshed"}
    setting_cookies = feed(headers=refresh)
    web = direct_web(
        Site("operator.example", pages={"/blocklist.json": blocklist("optedout.example")}),
        site("blog.example", feed=setting_cookies, second=setting_cookies),
        site("old.example", feed=redirect("http://new.example/feed")),
        site("new.example"),
        site("busy.example", feed=[Reply(status=503), feed()]),
    )
    result = crawl(
        web,
        sources=[
            "http://blog.example/feed",
            "http://blog.example/second",
            "http://old.example/feed",
            "http://busy.example/feed",
        ],
        settings={
            "WALSH_BLOCKLIST_URL": LIST_URL,
            "WALSH_BACKOFF_BASE": 0.1,
            "USER_AGENT": "x",
            "COOKIES_ENABLED": 1,
            "REFERER_ENABLED": 1,
            "HTTPAUTH_USER": "me",
            "HTTPAUTH_DOMAIN": "blog.example",
            "CONCURRENT_REQUESTS": 16,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "ROBOTSTXT_OBEY": 0,
        },
    )
    assert result.exit_code == 0
    assert len(result.log) == 12
    judge(result, robots_exempt=[LIST_URL])
    assert {hit.header("User-Agent") for hit in result.log} == {identity.USER_AGENT}
    for name in ("USER_AGENT", "CONCURRENT_REQUESTS", "ROBOTSTXT_OBEY", "COOKIES_ENABLED"):
        assert f"{name} = " in result.stderr, "an overridden setting is logged"


def test_the_gate_has_the_last_word_on_headers():
    request = Request(
        "http://blog.example/",
        headers={
            "User-Agent": "spider's own",
            "Cookie": "a=b",
            "Referer": "http://other.example/",
            "Authorization": "Basic eDp5",
            "Accept": "text/xml",
        },
    )
    options = SimpleNamespace(user_agent=identity.USER_AGENT)
    crawl = SimpleNamespace(context=SimpleNamespace(options=options), settings=Settings())
    asyncio.run(IdentityMiddleware(crawl).process_request(request))
    assert request.headers.to_unicode_dict() == {
        "User-Agent": identity.USER_AGENT,
        "Accept": "text/xml",
    }
