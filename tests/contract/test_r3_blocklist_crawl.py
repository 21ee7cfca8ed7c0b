"""R3 in crawls: the operator's blocklist first, before robots.txt, and never forgotten."""

import os
import signal
import time
from dataclasses import replace

import pytest

from tests.helpers.sites import LIST_URL, blocklist, log_lines, paths, rows_of, site
from walsh_scrapy.crawl.documents.publishedlist import MAX_INLINE_BYTES
from walsh_scrapy.state import State
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect

SCHEMA_URL = "http://operator.example/schema.json"
WITH_LIST = {"WALSH_BLOCKLIST_URL": LIST_URL, "RETRY_TIMES": 0}
SOURCES = ["http://optedout.example/feed", "http://blog.example/feed"]


#: A reason that would write a line of its own, clear the screen and turn the rest around.
FORGED = r"by\u0000mail\u001b[2J\u202e\n2026 all is well"


@pytest.fixture
def listing(direct_web):
    """Return a function that serves the blocklist, both sources, and other sites."""

    def web(document, *sites):
        operator = Site("operator.example", pages={"/blocklist.json": document})
        return direct_web(operator, site("blog.example"), site("optedout.example"), *sites)

    return web


@pytest.mark.parametrize("is_signalled", [True, False])
def test_a_signal_ends_the_wait_for_the_host_of_a_killed_crawl(listing, crawl, is_signalled):
    State(f"sqlite:///{crawl.folder / 'walsh.sqlite3'}").close()
    until = time.time() + (60.0 if is_signalled else 2.0)
    owned = "INSERT INTO hosts (host, in_flight_until, owner) VALUES (?, ?, 'killed')"
    rows_of(crawl, owned, ["operator.example", until])
    web = listing(blocklist("optedout.example"))
    running = crawl.start(web, sources=SOURCES, settings=WITH_LIST)
    if is_signalled:
        while "waiting for the blocklist: " not in (running.folder / "stderr").read_text("utf-8"):
            assert running.running
        os.kill(running.pid, signal.SIGTERM)
    result = running.wait()
    assert result.exit_code == 0
    for word in ("Traceback", "never retrieved", "destroyed"):
        assert word not in result.stderr
    targets = [] if is_signalled else ["blog.example/robots.txt", "blog.example/feed"]
    assert [path for path in paths(result.log) if "operator" not in path] == targets
    assert (LIST_URL in {hit.url for hit in result.log}) is not is_signalled
    assert time.time() < until or not is_signalled


# How long a list is kept, and what replaces it: crawls in simulated time.

HOUR = 3600.0
#: Seconds after which these lists ask to be fetched again.
REFRESH = 6 * HOUR


@pytest.fixture
def simulated_listing(simulated):
    """Return a function that crawls both sources of a web with these answers for the list."""

    def run(document, *sites, starts, sources=SOURCES, schema=None, pages=None, **settings):
        served = {"/blocklist.json": document} | (pages or {})
        served |= {"/schema.json": schema} if schema else {}
        return simulated(
            Site("operator.example", pages=served),
            site("blog.example"),
            site("optedout.example"),
            *sites,
            starts=starts,
            sources=sources,
            settings=WITH_LIST | settings,
            arguments={"force": "1"},
        )

    return run


def test_the_list_is_fetched_daily_although_its_host_is_on_hold(simulated_listing):
    """Otherwise one answer could suspend all opt-outs (R3). Other requests wait in full (R5)."""
    busy = Reply(status=429, headers={"Retry-After": "10000000000"})
    pages = {"/list.json": blocklist("optedout.example"), "/feed": busy}
    _, too_soon, late = simulated_listing(
        [blocklist(), redirect("http://mirror.example/list.json")],
        Site("mirror.example", pages=pages),
        pages={"/feed": busy},
        sources=[*SOURCES, "http://operator.example/feed", "http://mirror.example/feed"],
        starts=[0.0, REFRESH + HOUR, DAY + HOUR],
    )
    assert paths(too_soon.log, "operator.example") == []
    assert log_lines(too_soon, "could not be fetched", "operator.example")
    assert paths(late.log)[:4] == [
        "operator.example/robots.txt",
        "operator.example/blocklist.json",
        "mirror.example/robots.txt",
        "mirror.example/list.json",
    ]
    assert {"operator.example/feed", "mirror.example/feed"}.isdisjoint(paths(late.log))
    assert paths(late.log, "optedout.example") == []


@pytest.mark.parametrize(
    "answer",
    [
        Reply(status=500),
        Reply(fault=Fault.CLOSE),
        Reply("{" + " " * MAX_INLINE_BYTES, content_type="application/json"),
        redirect("http://optedout.example/list.json"),
    ],
    ids=["500", "no answer", "long, and no JSON", "a listed host"],
)
def test_whatever_goes_wrong_the_last_list_is_still_used(simulated_listing, answer):
    first, second = simulated_listing([blocklist("optedout.example"), answer], starts=[0.0, DAY])
    assert "operator.example/blocklist.json" in paths(second.log)
    assert_polite(first.log + second.log, blocked=["optedout.example"], robots_exempt=[LIST_URL])
    assert "blog.example/feed" in paths(second.log)
    assert "last good" in second.stderr


def test_the_list_redirects_to_no_host_that_was_listed_lately(simulated_listing):
    """Its robots.txt is known, so no request for that is denied before."""
    first, _, last = simulated_listing(
        [blocklist(), blocklist("optedout.example"), redirect("http://optedout.example/list.json")],
        starts=[0.0, REFRESH + HOUR, 2 * (REFRESH + HOUR)],
    )
    assert "optedout.example/robots.txt" in paths(first.log)
    assert "operator.example/blocklist.json" in paths(last.log)
    assert paths(last.log, "optedout.example") == []


TAGGED = replace(blocklist("optedout.example"), etag='W/"list,1"')


def test_the_list_is_revalidated_with_its_etag_after_its_refresh(simulated_listing):
    starts = [0.0, HOUR, REFRESH + HOUR, REFRESH + 2 * HOUR]
    runs = simulated_listing(TAGGED, starts=starts)
    requested = [hit for run in runs for hit in run.log if hit.url == LIST_URL]
    assert [hit.status for hit in requested] == [200, 304]
    assert requested[1].header("If-None-Match") == 'W/"list,1"'
    assert [paths(runs[number].log) for number in (1, 3)] == [["blog.example/feed"]] * 2
    log = [hit for run in runs for hit in run.log]
    assert_polite(log, blocked=["optedout.example"], robots_exempt=[LIST_URL])


def test_a_list_that_was_adopted_is_not_judged_again(simulated_listing, tmp_path):
    """An earlier release, which was less strict, may have adopted it."""
    simulated_listing(TAGGED, starts=[0.0])
    folder = tmp_path / "simulation"
    assert rows_of(folder, "SELECT adopted FROM blocklist") == [
        ('[21600.0, ""]\noptedout.example\t2026-05-23\temail',)
    ]
    rows_of(folder, "UPDATE copies SET body = ? WHERE kind = 'blocklist'", [b"v0"])
    fresh, unchanged = simulated_listing(TAGGED, starts=[HOUR, REFRESH + HOUR])
    assert paths(fresh.log) == ["blog.example/feed"]
    assert "blog.example/feed" in paths(unchanged.log)
    assert paths(unchanged.log, "optedout.example") == []


def test_a_list_of_a_clock_that_was_ahead_is_requested(simulated_listing, tmp_path):
    simulated_listing(TAGGED, starts=[0.0])
    ahead = "UPDATE blocklist SET requested_at = requested_at + ?"
    rows_of(tmp_path / "simulation", ahead, [365 * DAY])
    (second,) = simulated_listing(TAGGED, starts=[HOUR])
    assert "operator.example/blocklist.json" in paths(second.log)


def test_a_wrong_refresh_is_replaced_and_an_etag_keeps_its_url(simulated_listing):
    slip = blocklist("optedout.example", refresh="P1M").body.replace("email", FORGED)
    moved = Reply("\ufeff" + slip, content_type="application/json", etag='"moved"')
    first, second = simulated_listing(
        redirect("http://elsewhere.example/list.json", 302),
        Site("elsewhere.example", "", {"/list.json": moved}),
        starts=[0.0, REFRESH + HOUR],
    )
    assert log_lines(first, "'P1M'", "PT6H")
    assert "by\ufffdmail\\x1b[2J\\u202e\\n2026" in first.stderr
    asked = [hit for hit in second.log if hit.path.endswith("list.json")]
    assert [hit.header("If-None-Match") for hit in asked] == [None, None]
    assert_polite(first.log + second.log, blocked=["optedout.example"], robots_exempt=[LIST_URL])


def test_the_published_schema_is_used_unless_it_is_broken(simulated_listing):
    strict = '{"$schema": "https://json-schema.org/draft/2020-12/schema", "required": ["signed"]}'
    refused, adopted = simulated_listing(
        blocklist("optedout.example"),
        schema=[Reply(strict), Reply('{"type": 7}' + " " * 300_000)],
        starts=[0.0, HOUR],
        WALSH_BLOCKLIST_SCHEMA_URL=SCHEMA_URL,
    )
    assert "operator.example/schema.json" in paths(refused.log)
    assert "optedout.example/feed" in paths(refused.log), "what fails validation is not adopted"
    assert "optedout.example/feed" not in paths(adopted.log)
    assert log_lines(adopted, SCHEMA_URL, "300011")


# The operator's own list, on sockets: no name of a listed host is looked up.


@pytest.mark.parametrize("identity", ["ours", "another bot without a published list"])
def test_a_local_list_only_adds_to_the_published_one(listing, crawl, on_state, identity, tmp_path):
    is_ours = identity == "ours"
    own = tmp_path / "own.txt"
    own.write_text("# ours\nshop.example  # mail of 3 May\noperator.example\n")
    web = listing(
        blocklist("optedout.example"),
        *map(site, ("www.shop.example", "shop.example")),
        site("old.example", feed=redirect("http://shop.example/feed")),
        site("shy.example", redirect("http://shop.example/robots.txt")),
    )
    hosts = ("blog", "optedout", "www.shop", "old", "shy")
    others = {"WALSH_USER_AGENT": "Other/1.0", "WALSH_UA_TOKEN": "Other"}
    settings = {"WALSH_BLOCKLIST_FILE": own} | (WITH_LIST if is_ours else others)
    sources = [f"http://{host}.example/feed" for host in hosts]
    result = crawl(web, sources=[*sources, "http://operator.example/feed"], settings=settings)
    asked = paths(result.log)
    assert {hit.host for hit in result.log if "shop" in hit.host} == set()
    assert ("optedout.example/feed" in asked) is not is_ours
    assert {"blog.example/feed", "shy.example/feed"} <= set(asked)
    assert not [lookup for lookup in web.lookups if "shop.example" in lookup.name]
    assert (f" WARNING WALSH_BLOCKLIST_URL = {LIST_URL}: " in result.stderr) is is_ours
    listed = ["operator.example/robots.txt", "operator.example/blocklist.json"]
    assert paths(result.log, "operator.example") == (listed if is_ours else [])
    assert log_lines(result, str(own), "2 domains")
    reason = f"line 2 of {own}: mail of 3 May"
    for host in ("www.shop", "old"):
        assert len(log_lines(result, f"http://{host}.example/feed is denied", reason)) == 1
    answer = on_state("mayfetch", "--offline", "http://shop.example/", settings=settings)
    assert answer.returncode == 1
    assert reason in answer.stdout
