"""The identity gate is behind what sets the headers that it corrects."""

from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings

from walsh_scrapy.crawl.startup import Gate, start_problems
from walsh_scrapy.crawl.ticket import Hop, note, ticket_of
from walsh_scrapy.downloadermiddlewares.redirect import RedirectMiddleware


@pytest.mark.parametrize(
    ("order", "cookies", "words"),
    [
        (860, True, []),
        (600, True, ["before CookiesMiddleware"]),
        (600, False, []),  # then Scrapy builds no CookiesMiddleware
        (400, False, ["before UserAgentMiddleware"]),
    ],
)
def test_only_what_is_switched_on_has_to_come_before_it(order, cookies, words):
    table = {Gate.IDENTITY.path: order}
    settings = Settings({"DOWNLOADER_MIDDLEWARES": table, "COOKIES_ENABLED": cookies})
    found = [str(each) for each in start_problems(settings)]
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True)), found


# R6: what a redirect takes along, before any other gate has a say.

URL = "http://a.example/"


def test_a_hop_has_no_referer_and_no_slot_of_the_host_before_but_its_marks():
    claims = {"redirect_urls": ["http://z.example/"], "redirect_reasons": [302]}
    request = Request(
        URL,
        headers={"Referer": "http://z.example/"},
        meta={"download_slot": "a.example", "redirect_times": -100} | claims,
    )
    note(request, attempt=1, released=True)
    response = Response(URL, 302, headers={"Location": "http://b.example/x"}, request=request)
    gate = RedirectMiddleware(Settings(), crawl=None)
    gate.crawler = SimpleNamespace(spider=None)
    hop = gate.process_response(request, response)
    assert isinstance(hop, Request)
    assert hop.url == "http://b.example/x"
    assert "Referer" not in hop.headers
    assert "download_slot" not in hop.meta
    assert hop.meta["redirect_urls"] == [URL], "only what was followed here"
    assert hop.meta["redirect_times"] == 1
    assert ticket_of(hop) == ticket_of(request)._replace(hops=(Hop(URL, 302),), released=False)
    assert request.headers["Referer"] == b"http://z.example/", "the request itself stays as it is"
