"""R8 on the wire: freshness lifetimes and update hints delay the next visit."""

import time

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, redirect

#: The operator would come at once: whoever is not asked again is not because of what it said.
EAGER = {"WALSH_MIN_REVISIT": 0, "RETRY_TIMES": 0}
FUTURE = "Fri, 01 Jan 2100 00:00:00 GMT"


def saying(extra):
    """A feed with additional elements in its channel."""
    document = (
        '<rss version="2.0" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"><channel>'
        f"<title>B</title>{extra}<item><title>One</title><link>http://x.example/1</link></item>"
        "</channel></rss>"
    )
    return Reply(document, content_type="application/rss+xml")


def asked(result):
    return {path.partition("/")[0] for path in paths(result.log) if path.endswith("/feed")}


WISHING = {
    "max-age": feed(headers={"Cache-Control": "max-age=3600"}),
    "expires": feed(headers={"Expires": FUTURE}),
    "not-found": Reply(status=404, headers={"Cache-Control": "max-age=3600"}),
    "error": Reply(status=500, headers={"Cache-Control": "max-age=3600"}),
    "unavailable": Reply(status=503, headers={"Retry-After": "3600"}),
    "forbidden": Reply(status=403, headers={"Retry-After": "3600"}),
    "ttl": saying("<ttl>60</ttl>"),
    "period": saying("<sy:updatePeriod>daily</sy:updatePeriod>"),
    "frequency": saying("<sy:updateFrequency>2</sy:updateFrequency>"),
}
SILENT = {
    "silent": feed(),
    "stale": feed(headers={"Cache-Control": "max-age=0", "Expires": FUTURE}),
    "past": feed(headers={"Expires": "0"}),
    "short": saying("<ttl>0</ttl>"),
}


def test_only_sources_that_ask_for_time_are_visited_later(loopback_web, crawl):
    pages = {f"{name}.example": page for name, page in (WISHING | SILENT).items()}
    web = loopback_web(*(site(host, feed=page) for host, page in pages.items()))
    sources = [f"http://{host}/feed" for host in pages]
    first = crawl(web, sources=sources, settings=EAGER)
    assert asked(first) == set(pages)
    kept = "SELECT (asked_until - fetched_at) / 86400 FROM sources WHERE url LIKE '%expires%'"
    assert rows_of(crawl, kept) == [(30.0,)], "no source is delayed for longer"
    second = crawl(web, sources=sources, settings=EAGER)
    assert asked(second) == {f"{name}.example" for name in SILENT}
    assert_polite(web.log)


def test_a_304_may_have_a_lifetime_and_otherwise_the_last_one_is_kept(loopback_web, crawl):
    def unchanged(**headers):
        return Reply(status=304, headers=headers)

    wishing = saying("<ttl>60</ttl>")
    web = loopback_web(
        site(
            "header.example", feed=[feed(etag='"1"'), unchanged(**{"Cache-Control": "max-age=99"})]
        ),
        site("feed.example", feed=[Reply(wishing.body, etag='"1"'), unchanged()]),
        site(
            "silent.example",
            feed=[feed(etag='"1"', headers={"Cache-Control": "max-age=99"}), unchanged()],
        ),
    )
    sources = [f"http://{host}.example/feed" for host in ("header", "feed", "silent")]
    crawl(web, sources=sources, settings=EAGER)
    rows_of(crawl, "UPDATE sources SET asked_until = 0")
    second = crawl(web, sources=sources, settings=EAGER)
    assert asked(second) == {"header.example", "feed.example", "silent.example"}
    assert second.stats["walsh/sources/unchanged"] == 3
    assert asked(crawl(web, sources=sources, settings=EAGER)) == set()


def test_hours_and_days_to_skip_hold_when_a_source_would_be_due(loopback_web, crawl):
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    today = time.gmtime().tm_wday
    # Today and tomorrow, so that midnight makes no difference.
    skipped = "".join(f"<day>{days[(today + ahead) % 7]}</day>" for ahead in range(2))
    web = loopback_web(
        site("blog.example", feed=saying(f"<skipDays>{skipped}</skipDays>")),
        site("other.example"),
    )
    sources = ["http://blog.example/feed", "http://other.example/feed"]
    crawl(web, sources=sources, settings=EAGER)
    ((names,), (none,)) = rows_of(crawl, "SELECT skip_days FROM sources ORDER BY url")
    assert (sorted(names.split(",")), none) == (sorted(days[(today + n) % 7] for n in (0, 1)), "")
    second = crawl(web, sources=sources, settings=EAGER)
    assert asked(second) == {"other.example"}
    assert "not due yet: 1 source" in second.stderr


def test_a_permanent_address_is_asked_for_once_it_lasts(loopback_web, crawl, again):
    ages = {"six": 6, "eight": 8}
    web = loopback_web(
        *(
            site(f"{name}-old.example", feed=redirect(f"http://{name}-new.example/feed", 301))
            for name in ages
        ),
        *(site(f"{name}-new.example", feed=feed(etag='"new"')) for name in ages),
    )
    sources = [f"http://{name}-old.example/feed" for name in ages]
    crawl(web, sources=sources)
    for name, days in ages.items():
        past = f"UPDATE sources SET moved_since = moved_since - {days * 86400}"
        rows_of(crawl, f"{past} WHERE url LIKE '%{name}-old%'")
    again(web, sources=sources)
    third = again(web, sources=sources)
    assert asked(third) == {"eight-new.example", "six-old.example", "six-new.example"}
    assert third.stats["walsh/sources/unchanged"] == 2
    assert third.items == []


def test_failures_of_a_source_are_its_own_and_double_its_time(loopback_web, crawl, again):
    web = loopback_web(
        site("blog.example", bad=[Reply("<html>", content_type="text/html")] * 3 + [feed()])
    )
    sources = ["http://blog.example/feed", "http://blog.example/bad"]
    days = []
    for _ in range(4):
        again(web, sources=sources)
        rows = rows_of(
            crawl,
            "SELECT julianday(due_at) - julianday(fetched_at) FROM readable_sources ORDER BY url",
        )
        days.append(tuple(round(row[0]) for row in rows))
    assert days == [(1, 1), (2, 1), (4, 1), (1, 1)]


def test_a_redirect_has_a_lifetime_unless_the_next_visit_does_not_request_it(loopback_web, crawl):
    kept = {"Cache-Control": "max-age=3600"}

    def hop(status, location="/feed", headers=kept):
        return Reply(status=status, headers={"Location": location, **headers}, content_type=None)

    web = loopback_web(
        site("moved.example", old=hop(302)),
        site("denied.example", "User-agent: *\nDisallow: /feed\n", old=hop(302)),
        site("broken.example", feed=Reply(status=404), old=hop(301)),
        site("silent.example", old=hop(302, headers={})),
        site("settled.example", old=hop(301)),
    )
    names = ("moved", "denied", "broken", "silent", "settled")
    sources = [f"http://{name}.example/old" for name in names]
    crawl(web, sources=sources, settings=EAGER)
    rows_of(crawl, "UPDATE sources SET moved_since = moved_since - 864000, asked_until = 0")
    second = crawl(web, sources=sources, settings=EAGER)
    assert "settled.example/feed" in paths(second.log)
    third = crawl(web, sources=sources, settings=EAGER)
    assert asked(third) == {"silent.example", "settled.example"}
    assert "settled.example/old" not in paths(third.log)
