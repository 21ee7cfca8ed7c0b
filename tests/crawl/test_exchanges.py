"""Exchanges with hosts, from their begin to their end (R4)."""

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl import exchanges
from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.exchanges import _Begun
from walsh_scrapy.crawl.ticket import note
from walsh_scrapy.testing.simulation import FakeClock


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        ({}, 8.0),  # all of it but the 12 s in which the process stood still
        ({"sent": 110.0, "stalled": 9.0}, 7.0),  # 3 of these came after it was sent
    ],
)
def test_of_the_time_that_the_process_stood_still_counts_what_came_after_the_sending(
    tmp_path, monkeypatch, sent, seconds
):
    """Else a host that answers slowly, on a busy machine, would get as many requests as others."""
    crawler = get_crawler(settings_dict={"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"})
    crawl, request = Crawl(crawler, FakeClock(120.0)), Request("http://a.example/")
    monkeypatch.setattr(exchanges, "stalled", lambda: 12.0)
    traffic = exchanges._Traffic()
    monkeypatch.setattr(type(crawl.exchanges), "_traffic", traffic)
    traffic.begun[request] = _Begun(100.0, 0.0, 200.0)
    note(request, **sent)
    assert crawl.exchanges._over(request) == seconds
