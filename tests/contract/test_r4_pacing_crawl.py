"""R4 on the wire: one request at a time, spacing for each host, and no delay for the others."""

from tests.helpers.sites import feed, judge, paths, site
from walsh_scrapy.testing.web import Fault, Reply, redirect


def test_crawl_delay_is_kept_from_the_file_on_and_holds_for_every_port(direct_web, crawl):
    web = direct_web(
        site("slow.example", "User-agent: *\nCrawl-delay: 2\nCrawl-delay: 1.5\n", other=feed()),
        site("slow.example:8080"),
        site("quick.example", "User-agent: *\nCrawl-delay: 0.2\n", other=feed()),
    )
    result = crawl(
        web,
        sources=[
            "http://slow.example/feed",
            "http://slow.example/other",
            "http://quick.example/feed",
            "http://quick.example/other",
        ],
    )
    assert len(result.log) == 6
    judge(result, crawl_delays={"slow.example": 2.0})


def test_a_host_gets_the_longest_pause_of_its_sources_and_a_redirect_that_of_its_own(
    direct_web, crawl
):
    hasty = "User-agent: *\nCrawl-delay: 0.1\n"
    web = direct_web(
        site("paused.example", hasty),
        site("old.example", feed=redirect("http://new.example/feed")),
        site("new.example"),
    )
    sources = [
        {"url": "http://paused.example/feed", "pause": 1.1},
        {"url": "http://paused.example/", "kind": "llms", "pause": "PT2.5S"},
        {"url": "http://old.example/feed", "pause": 2},
    ]
    result = crawl(web, sources=sources)
    assert len(result.log) == 6
    judge(result, crawl_delays={"paused.example": 2.5, "old.example": 2.0, "new.example": 2.0})


def test_a_server_that_answers_slowly_is_asked_less_often(direct_web, crawl):
    web = direct_web(site("slow.example", feed=feed(delay=2.0), other=feed()))
    result = crawl(web, sources=["http://slow.example/feed", "http://slow.example/other"])
    feeds = [hit for hit in result.log if hit.path != "/robots.txt"]
    assert {hit.path for hit in feeds} == {"/feed", "/other"}
    if feeds[0].path == "/feed":
        assert feeds[1].started - feeds[0].ended >= 2.0
    judge(result)


def test_a_host_that_never_answers_does_not_stop_the_others(direct_web, crawl):
    web = direct_web(site("dead.example", Reply(status=503)), site("blog.example"))
    result = crawl(
        web,
        sources=["http://dead.example/feed", "http://blog.example/feed"],
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
    result = crawl(web, sources=["http://reset.example/feed", "http://close.example/feed"])
    judge(result)
    assert len([hit for hit in result.log if hit.path == "/feed"]) == 6, "two tries more for each"


def test_an_answer_dropped_at_its_headers_still_counts_by_its_status(direct_web, crawl):
    busy = Reply("a,b", 429, content_type="text/csv", headers={"Retry-After": "3"})
    web = direct_web(site("busy.example", feed=[busy, feed()]))
    result = crawl(web, sources=["http://busy.example/feed"])
    assert len(result.items) == 2
    judge(result)
