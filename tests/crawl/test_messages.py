"""Where a URL leads to, and the warning about a large body."""

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadFailedError, UnsupportedURLSchemeError

from walsh_scrapy.crawl.network import server_of
from walsh_scrapy.downloadhandler import SizeWarning


@pytest.mark.parametrize("url", ["ftp://a.example/x", "gopher://a.example/", "x:y"])
def test_another_scheme_is_not_supported(url):
    with pytest.raises(UnsupportedURLSchemeError, match=url.partition(":")[0]):
        server_of(url)


@pytest.mark.parametrize("url", ["http://a.example:99999/", "http:///x"])
def test_a_url_that_leads_nowhere_has_failed(url):
    with pytest.raises(DownloadFailedError):
        server_of(url)


@pytest.mark.parametrize(
    ("meta", "least", "sizes", "count"),
    [
        ({}, 0, [10**9], 0),
        ({}, 1000, [1000], 0),
        ({}, 1000, [900, 1001, 2000], 1),
        ({"download_warnsize": 10}, 1000, [11], 1),
        ({"download_warnsize": 0}, 1000, [2000], 0),
    ],
)
def test_a_large_body_is_warned_of_once(caplog, meta, least, sizes, count):
    warning = SizeWarning(Request("http://a.example/", meta=meta), least)
    for size in sizes:
        warning.see(size, "Received")
    assert len(caplog.records) == count
