"""What is left of a crawl that ran to its end: its exit status, and its row in the state.

The status is 1 if sources failed, and none was read.
"""

import json

from tests.helpers.sites import rows_of, site
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.testing.web import Reply


def test_a_crawl_whose_every_source_failed_does_not_exit_with_0(direct_web, crawl):
    web = direct_web(
        site("ill.example", feed=Reply(status=404)),
        site("closed.example", "User-agent: *\nDisallow: /\n"),
        site("busy.example", feed=Reply(status=503, headers={"Retry-After": "7200"})),
    )
    hosts = ("ill", "closed", "busy")
    sources = [f"http://{host}.example/feed" for host in hosts]
    first = crawl(web, sources=sources)
    ended = {name: first.stats[f"walsh/sources/{name}"] for name in ("failed", "deferred")}
    assert ended == {"failed": 1, "deferred": 1}
    assert (first.exit_code, first.stats["finish_reason"]) == (1, "finished")
    assert "no source was read, and 1 failed" in first.stderr
    second = crawl(web, sources=sources)
    assert second.stats["walsh/sources/deferred"] == 1
    assert second.exit_code == 0, "what is deferred, denied or not due has not failed"


def test_each_run_has_a_row_that_its_requests_and_entries_name(direct_web, crawl):
    web = direct_web(site("a.example"))
    crawl(web, sources=["http://a.example/feed"])
    result = crawl(web, sources=["http://a.example/feed"])
    assert "\x1b" not in result.stderr
    kept = rows_of(result, "SELECT id, spider, how, ended > begun, summary, versions FROM runs")
    assert [row[:4] for row in kept] == [(1, "feeds", "finished", 1), (2, "feeds", "finished", 1)]
    counts = [json.loads(row[4]) for row in kept]
    assert [(count["fetched"], count["not_due"]) for count in counts] == [(1, 0), (0, 1)]
    assert json.loads(kept[0][5])["contract"] == SPEC_VERSION
    assert rows_of(result, "SELECT DISTINCT run FROM requests") == [(1,)]
    assert rows_of(result, "SELECT DISTINCT run FROM entries") == [(1,)]
