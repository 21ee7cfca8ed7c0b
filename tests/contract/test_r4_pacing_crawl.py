"""R4 on the wire: one request at a time, spacing for each host, and no delay for the others."""

from tests.helpers.sites import feed, feeds, judge, paths, site
from walsh_scrapy.testing.web import Fault, Reply, redirect

#: The longest pause that robots.txt, a server or the operator asks for, by host.
PAUSES = {
    "slow.example": 2.0,
    "rate.example": 3.0,
    "paused.example": 2.5,
    "old.example": 2.0,
    "new.example": 2.0,
}


def test_the_longest_pause_counts_whoever_asks_for_it(direct_web, crawl):
    rate = "User-agent: *\nRequest-rate: 1/1s\nRequest-rate: 20/1m\n"
    busy = Reply("a,b", 429, content_type="text/csv", headers={"Retry-After": "3"})
    web = direct_web(
        site("slow.example", "User-agent: *\nCrawl-delay: 2\nCrawl-delay: 1.5\n", other=feed()),
        site("slow.example:8080"),
        site("quick.example", "User-agent: *\nCrawl-delay: 0.2\n", other=feed()),
        site("rate.example", rate, other=feed()),
        site("paused.example", "User-agent: *\nCrawl-delay: 0.1\n"),
        site("old.example", feed=redirect("http://new.example/feed")),
        site("new.example"),
        # An answer that is dropped at its headers counts by its status.
        site("busy.example", feed=[busy, feed()]),
        # A server that answers slowly is asked less often.
        site("late.example", feed=feed(delay=2.0), other=feed(delay=2.0)),
    )
    hosts = ("slow", "quick", "rate", "late")
    sources = [
        *feeds(*hosts, "busy"),
        *feeds(*hosts, path="other"),
        {"url": "http://paused.example/feed", "pause": 1.1},
        {"url": "http://paused.example/", "kind": "llms", "pause": "PT2.5S"},
        {"url": "http://old.example/feed", "pause": 2},
    ]
    result = crawl(web, sources=sources)
    judge(result, crawl_delays=PAUSES)
    _, first, second = (hit for hit in result.log if hit.host == "late.example")
    assert second.started - first.ended >= 2.0
    assert result.stats["walsh/sources/fetched"] == 11


def test_a_host_that_never_answers_does_not_stop_the_others(direct_web, crawl):
    web = direct_web(site("dead.example", Reply(status=503)), site("blog.example"))
    result = crawl(
        web,
        sources=feeds("dead", "blog"),
        settings={"WALSH_BACKOFF_BASE": 1.5, "WALSH_MAX_RETRIES": 2},
    )
    asked = paths(result.log)
    assert asked.index("blog.example/feed") < len(asked) - 2
    judge(result)


def test_no_request_is_repeated_behind_the_scheduler(direct_web, crawl):
    """A connection that was kept open and breaks is a failure, not a second request at once."""
    web = direct_web(
        site("reset.example", feed=Reply(fault=Fault.RESET)),
        site("close.example", feed=Reply(fault=Fault.CLOSE)),
    )
    result = crawl(web, sources=feeds("reset", "close"))
    judge(result)
    assert len([hit for hit in result.log if hit.path == "/feed"]) == 6, "two tries more for each"
