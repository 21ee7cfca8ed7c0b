"""R5 on the wire: after 429 and 503 the whole host is on hold, also in a later run."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.helpers.sites import (
    LIST_URL,
    blocklist,
    feed,
    feeds,
    in_turn,
    log_lines,
    paths,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.state import State
from walsh_scrapy.testing.feeds import Post, rss
from walsh_scrapy.testing.hit import redirect_target
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.simulation import DAY, simulate
from walsh_scrapy.testing.web import Reply, Site, redirect


def gaps(log, host):
    hits = [hit for hit in log if hit.host == host]
    return [later.started - earlier.ended for earlier, later in pairwise(hits)]


# R2, R4 and R5 over long waits: crawls in simulated time, judged as those on sockets are.

HOUR = 3600.0
AGAIN = {"force": "1"}


def opens_in_a_minute(hit):
    soon = datetime.fromtimestamp(hit.wall, UTC) + timedelta(minutes=1)
    return f"User-agent: *\nVisit-time: {soon:%H%M}-{soon + timedelta(hours=1):%H%M}\n"


@pytest.mark.parametrize("second", [0.0, 29.0, 59.5])
def test_a_host_that_opens_soon_is_waited_for(simulated, second):
    soon = site("soon.example", opens_in_a_minute)
    (result,) = simulated(soon, starts=[second], sources=["http://soon.example/feed"])
    robots, page = result.log
    opening = datetime.fromtimestamp(robots.wall, UTC).replace(second=0, microsecond=0)
    assert page.wall >= (opening + timedelta(minutes=1)).timestamp()
    assert len(result.items) == 2


def test_a_wait_above_the_maximum_is_deferred_to_a_later_run(simulated):
    hosts = ("slow", "blog", "never", "rate")
    first, second, third = simulated(
        site("slow.example", "User-agent: *\nCrawl-delay: 3600\n"),
        site("blog.example"),
        # Beyond the calendar.
        site("never.example", "User-agent: *\nCrawl-delay: 1000000000000\n"),
        site("rate.example", "User-agent: *\nRequest-rate: 1/999999999999999d\n"),
        starts=[0.0, 60.0, HOUR + 60.0],
        sources=feeds(*hosts),
    )
    assert paths(first.log, "slow.example") == ["slow.example/robots.txt"]
    assert first.stats["walsh/sources/deferred"] == 3
    assert "after the year 9999" in first.stderr
    assert first.seconds < 60.0
    assert paths(second.log) == [], "nor does the next run come too soon"
    assert paths(third.log) == ["slow.example/feed"]
    log = first.log + third.log
    assert_polite(log, crawl_delays={"slow.example": HOUR})


def test_a_download_delay_is_kept_as_spacing(simulated):
    blog = site("blog.example")
    settings = {"DOWNLOAD_DELAY": 25}
    (result,) = simulated(blog, sources=["http://blog.example/feed"], settings=settings)
    assert len(result.log) == 2
    assert_polite(result.log, interval=25.0)


def test_a_cached_crawl_delay_applies_to_robots_txt_itself(simulated):
    to_shared = redirect("http://common.example/robots.txt")
    hosts = ("common", "one", "two")
    (result,) = simulated(
        site("common.example", "User-agent: *\nCrawl-delay: 30\n"),
        Site("one.example", to_shared, {"/feed": feed()}),
        Site("two.example", to_shared, {"/feed": feed()}),
        sources=[f"http://{host}.example/feed" for host in hosts],
    )
    asked = [hit.path for hit in result.log if hit.host == "common.example"]
    assert sorted(asked) == ["/feed", "/robots.txt", "/robots.txt", "/robots.txt"]
    assert_polite(result.log, crawl_delays={"common.example": 30.0})


def test_crawl_delay_is_not_that_of_the_host_that_redirected(simulated, tmp_path):
    (result,) = simulated(
        site("old.example", "User-agent: *\nCrawl-delay: 7\n", feed=redirect("//new.example/feed")),
        site("new.example", "User-agent: *\nCrawl-delay: 3\n"),
        sources=["http://old.example/feed"],
    )
    assert gaps(result.log, "new.example") == pytest.approx([3.0])
    delays = rows_of(tmp_path / "simulation", "SELECT host, delay FROM hosts ORDER BY host")
    assert delays == [("new.example", 3.0), ("old.example", 7.0)]


def test_progress_is_logged_only_if_it_has_changed(simulated):
    (result,) = simulated(
        site("slow.example", "User-agent: *\nCrawl-delay: 200\n"),
        sources=["http://slow.example/feed"],
        settings={"WALSH_PROGRESS": "auto"} | trouble("BusyMachine"),
    )
    assert result.seconds > 200.0
    assert result.stderr.count("so far: ") == 1
    said = (
        "so far: 0 of 1 source done, 0 new entries, 0 failed; at least 2 min 20 s left; "
        "waiting for slow.example: next request in 2 min 20 s (its delay is 3 min 20 s)"
    )
    assert said in result.stderr, "a minute after the start"


def test_requests_deferred_by_a_refusing_host_have_not_failed(simulated):
    """A host has one share of tries: each of its sources was asked once at most (decision 15)."""
    no = Reply(status=503)
    *refused, left = in_turn("busy.example", "abcd")
    half, other = in_turn("half.example", ("feed", "other"))
    urls = {
        "busy.example": ("a", "b", "c", "d"),
        "down.example": ("feed", "other"),  # its robots.txt uses up the share
        "half.example": ("feed", "other"),  # one URL alone uses up its own tries
    }
    first, second = simulated(
        site("busy.example", **{name: [no, feed()] for name in refused}, **{left: feed()}),
        site("down.example", no, feed=no, other=no),
        site("half.example", **{half: no, other: feed()}),
        starts=[0.0, HOUR],
        sources=[f"http://{host}/{name}" for host, names in urls.items() for name in names],
        settings={"WALSH_BACKOFF_BASE": 12, "WALSH_MAX_RETRIES": 2},
    )
    assert_polite(first.log, backoff=12.0, max_retries=2)
    asked = [path for path in paths(first.log) if not path.endswith("robots.txt")]
    assert sorted(asked)[:3] == sorted(f"busy.example/{name}" for name in refused)
    (tried,) = [path for path in asked if path.startswith("down.example")]
    assert asked.count(f"half.example/{half}") == 3
    counts = {name: first.stats[f"walsh/sources/{name}"] for name in ("failed", "deferred")}
    assert counts == {"failed": 2, "deferred": 5}
    assert log_lines(first, "busy.example", "3 requests")
    assert first.seconds < 200.0, "what is deferred is not waited for"
    again = {path for path in paths(second.log) if not path.endswith("robots.txt")}
    due = {"down.example/feed", "down.example/other"} - {tried}
    assert again == due | {f"busy.example/{name}" for name in "abcd"}


def test_three_403s_defer_a_host_and_the_deferred_come_first(simulated):
    """A ban is no answer to each URL; the next run begins with those that were deferred."""
    no = Reply(status=403)
    banned = in_turn("ban.example", "abcd")
    first, second = simulated(
        site("ban.example", **dict(zip(banned, [no, no, no, feed()], strict=True))),
        starts=[0.0, 600.0],
        sources=[f"http://ban.example/{name}" for name in banned],
        arguments=AGAIN,
    )
    asked = [f"ban.example/{name}" for name in banned]
    assert paths(first.log, "ban.example") == ["ban.example/robots.txt", *asked[:3]]
    assert paths(second.log, "ban.example") == [asked[3], *asked[:3]]
    assert log_lines(first, "ban.example", "403", "3 URLs")
    assert (first.stats["walsh/sources/deferred"], first.stats["walsh/sources/failed"]) == (1, 3)
    assert_polite(first.log + second.log)


def test_server_errors_double_the_delay_across_runs(simulated, tmp_path):
    """Nothing is deferred for it (`policy.pacing`)."""
    ill = [Reply(status=status) for status in (500, 502, 504, 500, 500, 502)]
    first, second, third = simulated(
        site("ill.example", a=[*ill, feed()], b=feed()),
        starts=[0.0, 600.0, 2 * DAY],
        sources=["http://ill.example/a"],
        settings={"RETRY_TIMES": 2, "WALSH_BACKOFF_MAX": 30},
        arguments=AGAIN,
    )
    assert [round(gap, 6) for gap in gaps(first.log, "ill.example")] == [1.0, 2.0, 4.0]
    assert [round(gap, 6) for gap in gaps(second.log, "ill.example")] == [16.0, 30.0]
    assert gaps(third.log, "ill.example") == pytest.approx([1.0])
    asked = [run.stats.get("walsh/sources/deferred") for run in (first, second, third)]
    assert asked == [None] * 3
    assert rows_of(tmp_path / "simulation", "SELECT server_errors, delay FROM hosts") == [(0, 1.0)]
    delays = rows_of(tmp_path / "simulation", "SELECT delay FROM requests ORDER BY id")
    # What was asked for, as the record has it; a good robots.txt ended the row in the last run.
    assert delays == [(delay,) for delay in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 1.0)]
    assert_polite(first.log + second.log + third.log, robots_first=False)


def test_days_of_refusals_and_unchanged_feeds_are_reported(simulated, tmp_path):
    """Runs of six days: refused sources say since when, and stay due unless they were tried."""
    no = Reply(status=429)
    two_lines = [("Retry-After", f"{2 * DAY:.0f}"), ("Retry-After", "0")]  # the longer counts
    later = Reply(status=503, headers=two_lines)
    post = rss("Feed", [Post("One")])
    same = {"content_type": "application/rss+xml"}
    runs = simulated(
        site("busy.example", **{"1": no, "2": no, "3": no}),
        site("later.example", **{"1": later, "2": later}),
        site("robots.example", later, feed=feed()),
        site("over.example", feed=[no, no, no, feed()]),
        site("weak.example", feed=Reply(post, headers={"ETag": 'W/"1"'}, **same)),
        site("strong.example", feed=[Reply(post, headers={"ETag": '"1"'}, **same)] * 3 + [
            Reply(post, etag='"1"', **same),
        ]),
        starts=[day * (DAY + HOUR) for day in range(6)],
        sources=[
            *(f"http://busy.example/{number}" for number in range(1, 4)),
            *(f"http://later.example/{number}" for number in (1, 2)),
            *(f"http://{name}.example/feed" for name in ("robots", "over", "weak", "strong")),
        ],
        settings={"WALSH_MAX_RETRIES": 2},
    )  # fmt: skip
    assert_polite(runs[0].log, max_retries=2)
    with closing(State(f"sqlite:///{tmp_path / 'simulation' / 'walsh.sqlite3'}")) as state:
        known = {
            record.url.removeprefix("http://"): record for record in Stores(state).sources.all()
        }
        held = state.hosts.find("later.example").times
    begun = min(hit.wall for hit in runs[0].log)
    for name in ("busy.example/1", "busy.example/2", "busy.example/3", "later.example/1",
                 "later.example/2", "robots.example/feed"):  # fmt: skip
        record = known[name]
        status = 429 if name.startswith("busy") else 503
        assert (record.outcome, record.status) == ("refused", status), name
        assert begun <= record.refused_since < begun + HOUR, name
    deferred = [record for record in known.values() if record.is_refused and not record.failures]
    assert len(deferred) >= 5
    assert all(record.not_before == 0.0 and record.visited_at is None for record in deferred)
    assert (held.hold_by, held.hold_status) == ("retry-after", 503)
    over = known["over.example/feed"]
    assert (over.outcome, over.refused_since, over.failures) == ("fetched", None, 0)
    assert (known["weak.example/feed"].resent, known["strong.example/feed"].resent) == (5, 0)
    assert sum(len(log_lines(run, "weak.example/feed", "as a whole")) for run in runs) == 1
    assert known["strong.example/feed"].outcome == "unchanged"


# A redirect with Retry-After.


def later(target, *values, status=302):
    """A redirect that asks for a wait."""
    headers = [("Location", target), *(("Retry-After", value) for value in values)]
    return Reply(status=status, headers=headers, content_type=None)


REDIRECTS = (302, 307, 308)
WAITS = {
    "same.example": 30.0,
    "from.example": 100.0,
    "port.example": 50.0,
    "robots.example": 40.0,
    "operator.example": 20.0,
}


@pytest.fixture(scope="module")
def redirected(tmp_path_factory, pytestconfig):
    """Three runs; each source but one is redirected in the first one."""
    folder = tmp_path_factory.mktemp("redirected")
    to_rules = later("http://rules.example/robots.txt", "40", status=307)
    sites = [
        site("same.example", feed=later("/new", "30"), new=feed()),
        site("from.example", feed=later("http://to.example/new", "1.2", "60, 99.5", status=308)),
        site("to.example", new=feed(), other=feed()),
        site("port.example", feed=later("http://port.example:8080/feed", '"50 s"')),
        site("port.example:8080"),
        site("robots.example", to_rules, feed=feed()),
        site("rules.example", "User-agent: *\nDisallow: /private\n"),
        Site("operator.example", "", {"/blocklist.json": later("http://mirror.example/", "20")}),
        Site("mirror.example", "", {"/": blocklist()}),
        site("long.example", feed=[later("http://far.example/feed", "2 h"), feed()]),
        site("far.example"),
    ]  # fmt: skip
    return simulate(
        *sites,
        folder=folder,
        project=pytestconfig.rootpath,
        starts=[0.0, HOUR, 3 * HOUR],
        sources=[
            *feeds("same", "from", "to", "port", "robots", "long"),
            "http://to.example/other",
        ],
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
    )


@pytest.mark.parametrize("host", WAITS)
def test_a_redirected_request_waits(redirected, host):
    log = redirected[0].log
    place = next(at for at, hit in enumerate(log) if hit.host == host and hit.status in REDIRECTS)
    target = redirect_target(log[place])
    hop = next(hit for hit in log[place:] if hit.url == target)
    waited = hop.started - log[place].ended
    assert WAITS[host] <= waited < WAITS[host] + 15.0


def test_a_redirect_with_retry_after_holds_its_host(redirected):
    held = redirected[0].log + redirected[1].log
    assert min(gaps(held, "same.example")[1:]) >= 30.0


def test_the_host_of_the_target_goes_on(redirected):
    log = redirected[0].log
    answer = next(hit for hit in log if hit.url == "http://from.example/feed")
    hop = next(hit for hit in log if hit.url == "http://to.example/new")
    between = [hit.path for hit in log if answer.ended < hit.started < hop.started]
    assert {"/feed", "/other"} & set(between)


def test_a_redirect_with_a_long_wait_is_deferred(redirected):
    first, second, third = redirected
    assert paths(first.log, "far.example") == []
    assert first.stats["walsh/sources/deferred"] == 1
    assert paths(second.log, "long.example") == []
    assert paths(third.log, "long.example") == ["long.example/feed"]


def test_no_redirected_source_fails(redirected):
    first = redirected[0].stats
    assert first["walsh/sources/due"] == 7
    assert "walsh/sources/failed" not in first
