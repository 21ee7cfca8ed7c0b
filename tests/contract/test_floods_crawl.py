"""A site that sends without end costs its own visit, and no other: judged by the servers' log."""

import os
import signal

import pytest

from tests.helpers.sites import feeds, paths, rows_of, site
from walsh_scrapy.testing.site import Raw

#: A megabyte more than the data, twice what the kernel may buffer, and the longest head.
MAX_SENT_BYTES = 12 * 1024 * 1024
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECES = {
    "chunks": [CHUNKED, *[b"1\r\nx\r\n" * 10_000] * 400],
    "extensions": [CHUNKED, *[b"1;" + b"x" * 60_000 + b"\r\nx\r\n"] * 400],
    "interim": [b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000] * 400,
}


@pytest.mark.parametrize(
    ("name", "place"), [("chunks", "feed"), ("extensions", "robots"), ("interim", "robots")]
)
def test_a_flood_costs_its_own_visit_only(direct_web, crawl, name, place):
    flood = Raw(PIECES[name])
    hostile = site("flood.example", **({"feed": flood} if place == "feed" else {"robots": flood}))
    web = direct_web(hostile, site("blog.example"))
    settings = {"RETRY_TIMES": 0, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.1}
    result = crawl(web, sources=feeds("flood", "blog"), settings=settings)
    assert "blog.example/feed" in paths(result.log)
    flooded = [hit for hit in result.log if hit.host == "flood.example" and not hit.complete]
    assert flooded
    for hit in flooded:
        assert hit.size < MAX_SENT_BYTES
    ((outcome,),) = rows_of(crawl, "SELECT outcome FROM sources WHERE url LIKE '%blog%'")
    assert outcome == "fetched"


def test_a_signal_ends_a_run_although_a_site_drips(direct_web, crawl):
    """The request that is in flight has two seconds, and its source stays due."""
    drip = Raw([b"HTTP/1.1 200 OK\r\n\r\n", *[0.1, b"x" * 1000] * 900])
    web = direct_web(site("drip.example", feed=drip), site("blog.example"))
    running = crawl.start(web, sources=feeds("drip"), settings={"DOWNLOAD_TIMEOUT": 60})
    assert web.wait_for(lambda log: any(hit.path == "/feed" for hit in log))
    os.kill(running.pid, signal.SIGTERM)
    result = running.wait()
    assert result.stats["finish_reason"] == "shutdown"
    assert "Traceback" not in result.stderr
    (hit,) = [hit for hit in result.log if hit.path == "/feed"]
    assert hit.size < 60_000
    assert rows_of(crawl, "SELECT outcome FROM sources WHERE outcome = 'failed'") == []
    ((error,),) = rows_of(crawl, "SELECT error FROM requests WHERE url LIKE '%/feed'")
    assert "told to end" in error
