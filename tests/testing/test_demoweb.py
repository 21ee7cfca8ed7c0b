"""The demo's web serves what it describes, and its judge finds an impolite crawl."""

import http.client
import io
import json
from urllib.parse import urlsplit

import feedparser
import jsonschema
import pytest

from tests.helpers import LONGEST
from walsh_scrapy.testing import demoweb
from walsh_scrapy.testing.politeness import violations
from walsh_scrapy.testing.site import Site

SITES, SOURCES = demoweb.demo_web()


@pytest.fixture
def get(loopback_web):
    web = loopback_web(*SITES)
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=LONGEST)

    def ask(url, **headers):
        connection.request("GET", url, headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        return response.status, response.headers, response.read()

    ask.web = web
    yield ask
    connection.close()


def test_every_source_has_a_site_and_every_site_says_what_it_asks():
    hosts = {site.host for site in SITES}
    assert len(hosts) == len(SITES) == 16
    assert {urlsplit(source).hostname for source in SOURCES} <= hosts
    assert all(site.asks and isinstance(site, Site) for site in SITES)


def test_the_blocklist_keeps_its_schema(get):
    schema = json.loads(get(demoweb.BLOCKLIST_SCHEMA_URL)[2])
    blocklist = json.loads(get(demoweb.BLOCKLIST_URL)[2])
    jsonschema.validate(blocklist, schema)
    assert [entry["domain"] for entry in blocklist["blocked"]] == ["optedout.example"]


@pytest.mark.parametrize(
    ("url", "answers"),
    [
        ("http://busy.example/feed.xml", [429, 200, 200]),
        ("http://tired.example/feed.xml", [503, 200, 200]),
        ("http://old.example/rss", [301, 301]),
        ("http://moved.example/feed.xml", [302, 302]),
        ("http://atom.example/robots.txt", [404]),
    ],
)
def test_statuses(get, url, answers):
    assert [get(url)[0] for _ in answers] == answers


def test_steady_answers_304_to_its_validators(get):
    url = "http://steady.example/feed.xml"
    _, headers, _ = get(url)
    sent = {"If_None_Match": headers["ETag"], "If_Modified_Since": headers["Last-Modified"]}
    assert get(url, **sent)[0] == 304


def test_the_second_request_to_the_blog_finds_one_more_post(get):
    counts = [
        len(feedparser.parse(io.BytesIO(get("http://blog.example/feed.xml")[2])).entries)
        for _ in range(2)
    ]
    assert counts == [2, 3]


@pytest.mark.parametrize("url", SOURCES)
def test_every_source_but_one_leads_to_a_feed(get, url):
    status, headers, body = get(url)
    while status in {301, 302, 429, 503}:
        if status < 400:
            location = headers["Location"]
            url = location if "://" in location else f"http://{urlsplit(url).hostname}{location}"
        status, headers, body = get(url)
    if url.endswith(".json"):
        assert json.loads(body)["items"]
    else:
        feed = feedparser.parse(io.BytesIO(body))
        assert bool(feed.entries) == ("page.example" not in url)


def test_the_crawl_delay_is_known_to_the_judge(get):
    assert get.web.crawl_delays == {"slow.example": 2.0}


def test_an_impolite_crawl_breaks_the_rules(get):
    for url in SOURCES * 2:
        get(url)
    broken = violations(get.web.log, crawl_delays=get.web.crawl_delays, **demoweb.DEMO_TERMS)
    assert {sentence[:2] for sentence in broken} == {"R1", "R2", "R3", "R4", "R5", "R7"}
