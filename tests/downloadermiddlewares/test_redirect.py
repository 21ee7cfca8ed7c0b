"""R6: what a redirect takes along, before any other gate has a say."""

from types import SimpleNamespace

from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings

from walsh_scrapy.crawl.ticket import Hop, note, ticket_of
from walsh_scrapy.downloadermiddlewares.redirect import RedirectMiddleware

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
