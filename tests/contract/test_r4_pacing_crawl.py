"""R4 on the wire: serial, a second and more for each host, and no second wasted on the others."""

import sqlite3

from tests.contract.conftest import feed, paths, site
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect


def test_twenty_hosts_take_seconds_and_not_the_sum_of_their_waits(loopback_web, crawl):
    hosts = [f"h{number}.example" for number in range(20)]
    web = loopback_web(*(site(host, other=feed(host=host)) for host in hosts))
    sources = [f"http://{host}/{name}" for host in hosts for name in ("feed", "other")]
    result = crawl(web, sources=sources)
    assert len(result.log) == 60
    assert_polite(result.log)
    served = result.log[-1].ended - result.log[0].started
    waits = 40 * 1.0
    assert served < waits / 4


def test_crawl_delay_is_kept_from_the_file_on_and_holds_for_every_port(loopback_web, crawl):
    web = loopback_web(
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
    assert_polite(result.log, crawl_delays={"slow.example": 2.0})


def test_a_server_that_answers_slowly_is_asked_less_often(loopback_web, crawl):
    web = loopback_web(site("slow.example", feed=feed(delay=2.0), other=feed()))
    result = crawl(web, sources=["http://slow.example/feed", "http://slow.example/other"])
    feeds = [hit for hit in result.log if hit.path != "/robots.txt"]
    assert {hit.path for hit in feeds} == {"/feed", "/other"}
    if feeds[0].path == "/feed":
        assert feeds[1].started - feeds[0].ended >= 2.0
    assert_polite(result.log)


def test_the_next_run_keeps_the_spacing_of_the_last(loopback_web, crawl, again):
    web = loopback_web(site("slow.example", "User-agent: *\nCrawl-delay: 4\n"))
    crawl(web, sources=["http://slow.example/feed"])
    again(web, sources=["http://slow.example/feed"])
    assert len(web.log) == 3
    assert_polite(web.log, crawl_delays={"slow.example": 4.0})


def test_a_wait_too_long_is_left_to_a_later_run_which_goes_on(loopback_web, crawl):
    web = loopback_web(
        site("slow.example", "User-agent: *\nCrawl-delay: 3600\n"), site("blog.example")
    )
    sources = ["http://slow.example/feed", "http://blog.example/feed"]
    first = crawl(web, sources=sources)
    assert paths(first.log, "slow.example") == ["slow.example/robots.txt"]
    assert "deferred          1   first one possible at" in first.stderr
    assert first.seconds < 30
    assert paths(crawl(web, sources=sources).log) == [], "nor does the next run come too soon"
    with sqlite3.connect(crawl.folder / "walsh.sqlite3") as state:
        state.execute("UPDATE hosts SET ended = ended - 3600")
        state.execute("UPDATE robots SET fetched_at = fetched_at - 90000")
    state.close()
    third = crawl(web, sources=sources)
    assert paths(third.log) == ["slow.example/feed"], "not robots.txt again, which would be a day"


def test_one_host_that_never_answers_keeps_no_other_from_being_asked(loopback_web, crawl):
    web = loopback_web(site("dead.example", Reply(status=503)), site("blog.example"))
    result = crawl(
        web,
        sources=["http://dead.example/feed", "http://blog.example/feed"],
        settings={"WALSH_BACKOFF_BASE": 1.5, "WALSH_MAX_RETRIES": 2},
    )
    asked = paths(result.log)
    assert asked.index("blog.example/feed") < len(asked) - 2
    assert_polite(result.log)


def test_no_request_is_repeated_behind_the_scheduler(loopback_web, crawl):
    """A connection that was kept open and breaks is a failure, not a second request at once."""
    web = loopback_web(
        site("reset.example", feed=Reply(fault=Fault.RESET)),
        site("close.example", feed=Reply(fault=Fault.CLOSE)),
    )
    result = crawl(web, sources=["http://reset.example/feed", "http://close.example/feed"])
    assert_polite(result.log)
    assert len([hit for hit in result.log if hit.path == "/feed"]) == 6, "two tries more for each"


def test_a_crawl_delay_beyond_the_calendar_is_left_to_a_later_run(loopback_web, crawl):
    web = loopback_web(
        site("never.example", "User-agent: *\nCrawl-delay: 1000000000000\n"),
        site("rate.example", "User-agent: *\nRequest-rate: 1/999999999999999d\n"),
    )
    result = crawl(web, sources=["http://never.example/feed", "http://rate.example/feed"])
    assert result.stats["walsh/sources/deferred"] == 2
    assert "a time after the year 9999" in result.stderr


def test_a_download_delay_is_kept_as_spacing(loopback_web, crawl):
    web = loopback_web(site("blog.example"))
    result = crawl(web, sources=["http://blog.example/feed"], settings={"DOWNLOAD_DELAY": 2.5})
    assert len(result.log) == 2
    assert_polite(result.log, interval=2.5)


def test_a_crawl_delay_holds_for_robots_txt_itself_once_it_is_known(loopback_web, crawl):
    to_shared = redirect("http://shared.example/robots.txt")
    web = loopback_web(
        site("shared.example", "User-agent: *\nCrawl-delay: 3\n"),
        Site("one.example", to_shared, {"/feed": feed()}),
        Site("two.example", to_shared, {"/feed": feed()}),
    )
    hosts = ("shared", "one", "two")
    result = crawl(web, sources=[f"http://{host}.example/feed" for host in hosts])
    asked = [hit.path for hit in result.log if hit.host == "shared.example"]
    assert sorted(asked) == ["/feed", "/robots.txt", "/robots.txt", "/robots.txt"]
    assert_polite(result.log, crawl_delays={"shared.example": 3.0})


def test_an_answer_dropped_at_its_headers_still_counts_by_its_status(loopback_web, crawl):
    busy = Reply("a,b", 429, content_type="text/csv", headers={"Retry-After": "3"})
    web = loopback_web(site("busy.example", feed=[busy, feed()]))
    result = crawl(web, sources=["http://busy.example/feed"])
    assert len(result.items) == 2
    assert_polite(result.log)
