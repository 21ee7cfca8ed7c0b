"""R4 over days: a host that allows one request a day serves all its sources in turn (decision 7).

Real crawls in simulated time.
"""

from itertools import pairwise

import pytest

from tests.helpers.sites import feed
from walsh_scrapy.testing.feeds import Post
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Site

MINUTE = 60.0
#: What a float of epoch seconds can tell apart.
MICROSECOND = 1e-6
DAYS = 9


def growing(hit):
    """A feed with one post more for each day."""
    today = int(hit.started // DAY)
    posts = [Post(f"Day {day}", f"{hit.url}?{day}") for day in range(today + 1)]
    return feed("Feed", posts)


SLOW = Site(
    "slow.example",
    "User-agent: *\nCrawl-delay: 86400\n",
    dict.fromkeys(("/a", "/b", "/c"), growing),
)
QUICK = Site("quick.example", "", {"/feed": growing})


@pytest.fixture
def week(simulated):
    """Run at an interval over nine days, and check what is true of every run."""

    def run(every, pages):
        runs = simulated(
            SLOW,
            QUICK,
            sources=[
                *(f"http://slow.example/{page}" for page in pages),
                "http://quick.example/feed",
            ],
            starts=[number * every for number in range(int(DAYS * DAY // every) + 1)],
        )
        for each in runs:
            ends = [each.stats.get(f"walsh/sources/{end}", 0) for end in ("fetched", "deferred")]
            assert sum(ends) == each.stats["walsh/sources/due"], "none ended in another way"
        log = [hit for each in runs for hit in each.log]
        assert_nothing_is_lost(runs, log)
        assert_polite(log)
        return log

    return run


def assert_nothing_is_lost(runs, log):
    """Every post was seen that the feed had at its last request."""
    last = {hit.url: hit.started for hit in log if hit.path != "/robots.txt"}
    posts = sum(int(started // DAY) + 1 for started in last.values())
    assert sum(each.stats.get("walsh/entries/new", 0) for each in runs) == posts


def by_day(log, host):
    """What a host was asked for on each of the first days: R for robots.txt, a dot for nothing.

    Pages are named in the order in which they were first asked for.
    """
    days, names = [""] * DAYS, {"/feed": "f", "/robots.txt": "R"}
    for hit in log:
        if hit.host == host and (day := int(hit.started // DAY)) < DAYS:
            days[day] += names.setdefault(hit.path, "abc"[len(names) - 2 :][:1])
    return "".join(pages or "." for pages in days)


# The slow host. Day 0: its robots.txt asks for a Crawl-delay of a day, so its sources are deferred.
# A day later the source that waited longest is requested, by the copy of robots.txt that made it
# wait. Then that copy is more than a day old, and its host was asked since: another day later
# robots.txt is fetched again. The quick host: both documents, as soon as the last visit is a day
# ago (R8).
@pytest.mark.long
@pytest.mark.parametrize(
    ("every", "pages", "slow", "quick"),
    [
        pytest.param(DAY + MINUTE, "abc", "RaRbRcRaR", "Rf" * DAYS, id="a-day-and-a-minute"),
        # The visit began a moment after its run: at the same second of the next day it is too soon.
        pytest.param(DAY, "abc", "RaRbRcRaR", "Rf.Rf.Rf.Rf.Rf", id="a-day-to-the-second"),
        # Up to WALSH_MAX_WAIT a run waits until the slow host's day is over ...
        pytest.param(DAY - 5.0, "abc", "RaRbRcRaR", "RfRf.Rf.Rf.Rf.", id="less-5-seconds"),
        # ... with a longer wait every second run is too early, and sends nothing.
        pytest.param(DAY - 1200.0, "abc", "Ra.R.b.R.", "RfRf.Rf.Rf.Rf.", id="less-20-minutes"),
        # Each visit is in the first run after the day.
        pytest.param(4 * 3600.0, "abc", "RaRbRcRaR", "RfRfRfRfRfRf.RfRf", id="four-hours"),
        pytest.param(DAY + MINUTE, "ab", "RaRbRaRbR", "Rf" * DAYS, id="two-sources"),
        pytest.param(DAY + MINUTE, "a", "RaRaRaRaR", "Rf" * DAYS, id="one-source"),
    ],
)
def test_a_crawl_delay_of_a_day_is_kept_and_every_source_is_visited(
    week, every, pages, slow, quick
):
    log = week(every, pages)
    assert by_day(log, "slow.example") == slow
    assert by_day(log, "quick.example") == quick
    for earlier, later in pairwise(hit for hit in log if hit.host == "slow.example"):
        assert later.started - earlier.ended >= DAY - MICROSECOND
