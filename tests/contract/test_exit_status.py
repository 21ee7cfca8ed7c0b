"""The exit status of a crawl that ran to its end: 1 if sources failed, and none was read."""

from tests.contract.conftest import site
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
