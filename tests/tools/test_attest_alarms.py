"""`scrapy attest` accuses nobody because of a clock that was set, a restored backup, or pruning.

Crawls are real, most of them in simulated time.
"""

import contextlib
import json
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from tests.helpers.sites import LIST_URL, blocklist, feed, site, trouble
from walsh_scrapy.policy.audit.record import LoggedRequest
from walsh_scrapy.state import State
from walsh_scrapy.testing.simulation import DAY, EPOCH
from walsh_scrapy.testing.site import Site
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools.attest import attest

HOUR = 3600.0
AHEAD, SET = trouble("ClockIsAhead"), trouble("ClockIsSet")
SITES = (
    Site("operator.example", "", {"/blocklist.json": blocklist("out.example")}),
    Site("busy.example", "", {"/1": [Reply(status=503), feed()], "/2": feed("Two")}),
    Site("slow.example", "User-agent: *\nCrawl-delay: 7\n", {"/1": feed(), "/2": feed("Two")}),
    Site(
        "moved.example",
        "",
        {"/1": Reply(status=302, headers={"Location": "/2"}), "/2": feed("Two")},
    ),
    Site("late.example", "", {"/1": Reply(feed().body, delay=4.0), "/2": feed("Two")}),
)
SOURCES = [f"http://{site.host}/{page}" for site in SITES[1:] for page in (1, 2)]


def attested(url, now):
    with contextlib.closing(State(url)) as state, state.log() as snapshot:
        return attest(snapshot, now)


def findings(attestation):
    return [
        f"{finding['kind']}: {finding['worst']['what']}"
        for row in attestation["checklist"]
        for finding in row["findings"]
    ]


def not_shown(attestation):
    return {row["row"] for row in attestation["checklist"] if row["not_shown"]}


@pytest.fixture
def crawled(simulated, tmp_path):
    """Return a function that crawls, and returns the URL of the state."""

    def run(starts, **settings):
        simulated(
            *SITES,
            sources=SOURCES,
            starts=starts,
            arguments={"force": "1"},
            settings={"WALSH_BLOCKLIST_URL": LIST_URL} | settings,
        )
        (file,) = tmp_path.rglob("walsh.sqlite3")
        return f"sqlite:///{file}"

    return run


@pytest.mark.parametrize(
    ("sets", "unknown"),
    [
        pytest.param([(DAY, -DAY - 30.0)], False, id="a-day-between-two-runs"),
        pytest.param([(DAY, -DAY - HOUR)], True, id="to-before-the-first-run"),
        pytest.param([(-1.0, 365 * DAY), (DAY, -365 * DAY)], True, id="a-year-ahead-once"),
        pytest.param([(12.0, -HOUR)], True, id="an-hour-during-a-run"),
        pytest.param([(5.0, -2.0)], False, id="two-seconds-during-a-run"),
        pytest.param([(12.0, -6.0)], False, id="six-seconds-during-a-run"),
        pytest.param([(15.0, -60.0), (30.0, 60.0)], False, id="back-and-forth"),
        pytest.param([(12.0, 2 * DAY)], False, id="suspended-for-two-days"),
        pytest.param([(14.0, HOUR), (20.0, 5.0)], False, id="suspended-twice"),
    ],
)
def test_a_clock_that_was_set_is_no_breach(crawled, sets, unknown):
    url = crawled([0.0, DAY + 60.0], CLOCK_SETS=json.dumps(sets), **SET)
    attestation = attested(url, EPOCH + 9 * DAY)
    assert findings(attestation) == []
    assert not unknown or not_shown(attestation) >= {"4", "5"}, "how long hosts were left alone"


def test_a_backup_that_was_restored_is_no_breach(crawled, tmp_path):
    url = crawled([0.0])
    file, backup = Path(url.removeprefix("sqlite:///")), tmp_path / "backup"
    with contextlib.closing(sqlite3.connect(file)) as state:
        state.execute("VACUUM INTO ?", [str(backup)])
    crawled([DAY + 60.0])
    for name in (file, *file.parent.glob("walsh.sqlite3-*")):
        name.unlink()
    shutil.copy(backup, file)
    crawled([DAY + HOUR, 3 * DAY])
    attestation = attested(url, EPOCH + 9 * DAY)
    assert findings(attestation) == []
    assert attestation["holds"]


@pytest.mark.parametrize(
    ("by_hand", "breaches", "rows"),
    [
        ((), {"too-often"}, set()),
        ((1,), {"too-often"}, {"8"}),
        ((1, 3), set(), {"8"}),
        ((2,), {"too-often"}, {"8"}),
        ((2, 3), set(), {"8"}),
    ],
    ids=["crawls", "added-and-crawled-twice", "added", "looked-at-between", "looked-at"],
)
def test_what_is_asked_by_hand_is_no_second_run(simulated, tmp_path, by_hand, breaches, rows):
    """We advise `sources add` before a crawl, and `discover` where a crawl failed."""
    simulated(
        SITES[0],
        site("blog.example"),
        sources=["http://blog.example/feed"],
        starts=[0.0, HOUR, 2 * HOUR],
        arguments={},
        settings={"WALSH_BLOCKLIST_URL": LIST_URL, "WALSH_MIN_REVISIT": 0},
    )
    (file,) = tmp_path.rglob("walsh.sqlite3")
    with contextlib.closing(sqlite3.connect(file)) as state, state:
        state.executemany("UPDATE runs SET command = 'x' WHERE id = ?", [(run,) for run in by_hand])
    attestation = attested(f"sqlite:///{file}", EPOCH + 9 * DAY)
    assert {each.partition(":")[0] for each in findings(attestation)} == breaches
    assert not_shown(attestation) & {"8"} == rows


def test_what_pruning_left_is_no_breach(crawled):
    """Rows are deleted in the order of their times, in several transactions."""
    url = crawled([0.0, DAY + 60.0])
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as state:
        (first,) = state.execute("SELECT min(id) FROM requests").fetchone()
        (last,) = state.execute("SELECT max(id) FROM requests").fetchone()
        for number in range(first, last):
            with state:
                (at,) = state.execute("SELECT min(sent_at) FROM requests").fetchone()
                state.execute("DELETE FROM requests WHERE sent_at <= ?", [at])
                state.execute("DELETE FROM denials WHERE at <= ?", [at])
            assert findings(attested(url, EPOCH + 9 * DAY)) == [], f"without {number} requests"


def test_two_machines_whose_clocks_differ_share_a_state(direct_web, crawl, postgresql_url):
    """Each second request to a host comes from the other machine."""
    hosts = [f"{name}.example" for name in "abc"]
    web = direct_web(
        *(
            Site(host, "", {f"/{page}": feed(str(page), host=host) for page in range(6)})
            for host in hosts
        )
    )
    running = [
        crawl.start(
            web,
            sources=[f"http://{host}/{page}" for host in hosts for page in pages],
            settings={"WALSH_STATE_URL": postgresql_url, **settings},
        )
        for pages, settings in (
            ((0, 2, 4), AHEAD | {"CLOCK_AHEAD": 40.0}),
            ((1, 3, 5), AHEAD | {"CLOCK_AHEAD": -40.0}),
        )
    ]
    results = [each.wait() for each in running]
    assert [each.exit_code for each in results] == [0, 0]
    attestation = attested(postgresql_url, time.time())
    assert findings(attestation) == []
    shown = {row["row"]: row["shown"] for row in attestation["checklist"]}
    assert shown["4"] == len(web.log)
    with contextlib.closing(State(postgresql_url)) as state, state.log() as log:
        rows = log.rows(LoggedRequest, log.bounds(time.time()))
        rows = sorted(rows, key=lambda row: row.sent_at + row.waited)
    for host in hosts:  # requests to two hosts may come at the same moment
        sent = [row.url for row in rows if row.host == host]
        assert sent == [hit.url for hit in web.log if hit.host == host]
