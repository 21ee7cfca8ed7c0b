"""R4 over days: a host that lets us in once a day serves all its sources in turn (decisions 3, 7).

Real crawls under a clock that leaps from one thing to wait for to the next.
"""

from itertools import pairwise

import pytest

from tests.timelapse import DAY, Plan, runs_of

MINUTE = 60.0
#: What a float of epoch seconds can tell apart.
MICROSECOND = 1e-6
DAYS = 9
ROBOTS = {"slow.example": "User-agent: *\nCrawl-delay: 86400\n", "quick.example": ""}


@pytest.fixture
def week(tmp_path, pytestconfig):
    """Run every so often, over nine days, and hold what is true of all of them."""

    def run(every, pages):
        plan = Plan(
            sources=[f"http://slow.example/{page}" for page in pages]
            + ["http://quick.example/feed"],
            starts=[number * every for number in range(int(DAYS * DAY // every) + 1)],
            robots=ROBOTS,
        )
        runs = runs_of(plan, folder=tmp_path, project=pytestconfig.rootpath)
        for each in runs:
            of_sources = [each.stats.get(f"sources/{end}", 0) for end in ("fetched", "deferred")]
            assert sum(of_sources) == each.stats["sources/due"], "none ended in another way"
        requests = [request for each in runs for request in each.requests]
        assert_nothing_is_lost(runs, requests)
        return requests

    return run


def assert_nothing_is_lost(runs, requests):
    """Every post was seen that was there when its feed was last asked for, however long ago."""
    last = {(each.host, each.page): each.ended for each in requests if each.page != "robots.txt"}
    posts = sum(int(ended // DAY) + 1 for ended in last.values())
    assert sum(each.stats.get("entries/new", 0) for each in runs) == posts


def by_day(requests, host):
    """What a host was asked for on each of the first days: R for robots.txt, a dot for nothing."""
    days = [""] * DAYS
    for each in requests:
        if each.host == host and (day := int(each.started // DAY)) < DAYS:
            days[day] += "R" if each.page == "robots.txt" else each.page[0]
    return "".join(pages or "." for pages in days)


# The slow host. Day 0: robots.txt, which nobody can know to come too soon, asks for a day; the
# host's sources are left to a later run. Then, a day after each request, whoever waited longest, by
# the copy of robots.txt that makes the others wait. On day 7 that copy is a week old, and it is
# robots.txt's turn. The quick host: both documents, as soon as the last visit is a day ago (R8).
@pytest.mark.parametrize(
    ("every", "pages", "slow", "quick"),
    [
        pytest.param(DAY + MINUTE, "abc", "RabcabcRa", "Rf" * DAYS, id="a-day-and-a-minute"),
        # The visit began a moment after its run: at the same second of the next day it is too soon.
        pytest.param(DAY, "abc", "RabcabcRa", "Rf.Rf.Rf.Rf.Rf", id="a-day-to-the-second"),
        # Up to WALSH_MAX_WAIT a run waits until the slow host's day is over ...
        pytest.param(DAY - 5.0, "abc", "RabcabcRa", "RfRf.Rf.Rf.Rf.", id="less-5-seconds"),
        # ... beyond that every second run comes to nothing, and none comes too soon.
        pytest.param(DAY - 1200.0, "abc", "Ra.b.c.R.", "RfRf.Rf.Rf.Rf.", id="less-20-minutes"),
        pytest.param(3600.0, "abc", "RabcabcRa", "Rf" * DAYS, id="an-hour"),
        pytest.param(DAY + MINUTE, "ab", "RabababRa", "Rf" * DAYS, id="two-sources"),
        # Nobody is left to wait when the one source was asked for: its copy has done its service,
        # and the next day is for a new one.
        pytest.param(DAY + MINUTE, "a", "RaRaRaRaR", "Rf" * DAYS, id="one-source"),
    ],
)
def test_a_crawl_delay_of_a_day_is_kept_and_every_source_has_its_turn(
    week, every, pages, slow, quick
):
    requests = week(every, pages)
    assert by_day(requests, "slow.example") == slow
    assert by_day(requests, "quick.example") == quick
    for earlier, later in pairwise(each for each in requests if each.host == "slow.example"):
        assert later.started - earlier.ended >= DAY - MICROSECOND
