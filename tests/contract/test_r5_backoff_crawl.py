"""R5 on the wire: 429 and 503 are backed off, the whole host rests, and the rest survives."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

from tests.contract.conftest import feed, paths, site
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply


def gaps(log, host):
    hits = [hit for hit in log if hit.host == host]
    return [later.started - earlier.ended for earlier, later in pairwise(hits)]


def test_retry_after_is_kept_in_every_form(loopback_web, crawl):
    def in_three_seconds(_hit):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
        return Reply(status=503, headers={"Retry-After": date})

    busy = Reply(status=429, headers={"Retry-After": "3"})
    web = loopback_web(
        site("seconds.example", feed=[busy, feed(host="seconds.example")]),
        site("date.example", feed=[in_three_seconds, feed(host="date.example")]),
        site(
            "zero.example",
            feed=[Reply(status=429, headers={"Retry-After": "0"}), feed(host="z.example")],
        ),
        site("robots.example", [Reply(status=503, headers={"Retry-After": "2"}), ""]),
    )
    hosts = ("seconds", "date", "zero", "robots")
    result = crawl(web, sources=[f"http://{host}.example/feed" for host in hosts])
    assert_polite(result.log)
    assert len(result.items) == 8
    assert gaps(result.log, "seconds.example")[1] >= 3.0
    assert gaps(result.log, "date.example")[1] >= 3.0
    assert gaps(result.log, "zero.example")[1] >= 2.0, "zero does not cancel our own backoff"
    assert gaps(result.log, "robots.example")[0] >= 2.0


def test_without_it_the_delay_doubles_and_the_tries_are_bounded(loopback_web, crawl):
    web = loopback_web(site("down.example", feed=Reply(status=503)), site("blog.example"))
    result = crawl(
        web,
        sources=["http://down.example/feed", "http://blog.example/feed"],
        settings={"WALSH_BACKOFF_BASE": 1.2, "WALSH_MAX_RETRIES": 2},
    )
    assert result.exit_code == 0
    waited = gaps(result.log, "down.example")[1:]
    assert len(waited) == 2, "two retries and no more"
    assert waited[0] >= 1.2
    assert waited[1] >= 2.4
    assert_polite(result.log, backoff=1.2, max_retries=2)
    assert "failed            1" in result.stderr
    assert paths(result.log, "blog.example")[-1] == "blog.example/feed"


def test_the_whole_host_rests_and_a_later_run_respects_it(loopback_web, crawl, again):
    web = loopback_web(
        site("busy.example", a=[Reply(status=429, headers={"Retry-After": "6"}), feed()], b=feed())
    )
    sources = ["http://busy.example/a", "http://busy.example/b"]
    first = crawl(web, sources=sources, settings={"WALSH_MAX_RETRIES": 0, "WALSH_MAX_WAIT": 2})
    second = again(web, sources=sources)
    assert_polite(first.log + second.log)
    refused = next(hit for hit in web.log if hit.status == 429)
    later = [hit for hit in web.log if hit.started > refused.started]
    assert later
    assert min(hit.started for hit in later) - refused.ended >= 6.0


def test_a_retry_after_beyond_the_longest_wait_is_left_to_a_later_run(loopback_web, crawl):
    long = Reply(status=429, headers={"Retry-After": "99999999999999999999"})
    web = loopback_web(site("busy.example", feed=long), site("blog.example"))
    sources = ["http://busy.example/feed", "http://blog.example/feed"]
    result = crawl(web, sources=sources)
    assert result.exit_code == 0
    assert paths(result.log, "busy.example") == ["busy.example/robots.txt", "busy.example/feed"]
    assert "deferred          1" in result.stderr
    assert paths(crawl(web, sources=sources, arguments={"force": "1"}).log) == ["blog.example/feed"]
