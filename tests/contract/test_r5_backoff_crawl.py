"""R5 on the wire: after 429 and 503 the whole host is on hold, also in a later run."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

from tests.helpers.sites import feed, judge, site
from walsh_scrapy.testing.web import Reply


def gaps(log, host):
    hits = [hit for hit in log if hit.host == host]
    return [later.started - earlier.ended for earlier, later in pairwise(hits)]


def test_retry_after_is_kept_in_every_form(direct_web, crawl):
    def in_three_seconds(_hit):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
        return Reply(status=503, headers={"Retry-After": date})

    def busy(status, *lines):
        return Reply(status=status, headers=[("Retry-After", line) for line in lines])

    web = direct_web(
        site("seconds.example", feed=[busy(429, "3", "1"), feed(host="seconds.example")]),
        site("date.example", feed=[in_three_seconds, feed(host="date.example")]),
        site(
            "zero.example",
            feed=[Reply(status=429, headers={"Retry-After": "0"}), feed(host="z.example")],
        ),
        site("robots.example", [busy(503, "2", "0"), ""]),
    )
    hosts = ("seconds", "date", "zero", "robots")
    result = crawl(web, sources=[f"http://{host}.example/feed" for host in hosts])
    judge(result)
    assert len(result.items) == 8
    # Of two lines the longer counts.
    assert gaps(result.log, "seconds.example")[1] >= 3.0
    assert gaps(result.log, "date.example")[1] >= 3.0
    assert gaps(result.log, "zero.example")[1] >= 2.0, "zero does not cancel our own backoff"
    assert gaps(result.log, "robots.example")[0] >= 2.0
    said = "http://seconds.example/feed answered 429; seconds.example is on hold for 3 s"
    assert said in result.stderr
