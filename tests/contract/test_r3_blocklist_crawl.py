"""R3 on the wire: the operator's blocklist first, before robots.txt, and never forgotten."""

import os
import signal
import time

import pytest

from tests.helpers.sites import LIST_URL, blocklist, judge, log_lines, paths, rows_of, site
from walsh_scrapy.crawl.blocklist import MAX_INLINE_BYTES
from walsh_scrapy.state import State
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect

SCHEMA_URL = "http://operator.example/schema.json"
WITH_LIST = {"WALSH_BLOCKLIST_URL": LIST_URL, "RETRY_TIMES": 0}
SOURCES = ["http://optedout.example/feed", "http://blog.example/feed"]


#: A reason that would write a line of its own, clear the screen and turn the rest around.
FORGED = r"by\u0000mail\u001b[2J\u202e\n2026 all is well"


@pytest.fixture
def listing(direct_web):
    """Return a function from the answers for the list to a web that also has both sources."""

    def web(document, *sites, schema=None):
        pages = {"/blocklist.json": document} | ({"/schema.json": schema} if schema else {})
        operator = Site("operator.example", pages=pages)
        return direct_web(operator, site("blog.example"), site("optedout.example"), *sites)

    return web


def make_stale(crawl, seconds=86_400):
    rows_of(crawl, "UPDATE blocklist SET requested_at = requested_at - ?", [seconds])


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


def test_the_list_is_fetched_daily_although_its_host_is_on_hold(listing, crawl, again):
    """Otherwise one answer could suspend all opt-outs (R3). Other requests wait in full (R5)."""
    busy = Reply(status=429, headers={"Retry-After": "10000000000"})
    lists = [blocklist(), redirect("http://mirror.example/list.json")]
    pages = {"/list.json": blocklist("optedout.example"), "/feed": busy}
    web = listing(lists, Site("mirror.example", pages=pages))
    web.add(Site("operator.example", pages={"/blocklist.json": lists, "/feed": busy}))
    sources = [*SOURCES, "http://operator.example/feed", "http://mirror.example/feed"]
    crawl(web, sources=sources, settings=WITH_LIST)
    make_stale(crawl)
    too_soon = again(web, sources=sources, settings=WITH_LIST)
    assert paths(too_soon.log, "operator.example") == []
    assert log_lines(too_soon, "blocklist could not be fetched", "operator.example")
    rows_of(
        crawl,
        "UPDATE hosts SET hold_since = hold_since - 86400,"
        " request_ended_at = request_ended_at - 86400",
    )
    rows_of(crawl, "UPDATE robots SET requested_at = requested_at - 86400")
    late = again(web, sources=sources, settings=WITH_LIST)
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
def test_whatever_goes_wrong_the_last_list_stays_in_force(listing, crawl, again, answer):
    web = listing([blocklist("optedout.example"), answer])
    crawl(web, sources=SOURCES, settings=WITH_LIST)
    make_stale(crawl)
    second = again(web, sources=SOURCES, settings=WITH_LIST)
    assert "operator.example/blocklist.json" in paths(second.log)
    judge(web, blocked=["optedout.example"], robots_exempt=[LIST_URL])
    assert "blog.example/feed" in paths(second.log)
    assert "last good" in second.stderr


def test_the_list_is_revalidated_with_its_etag_after_its_refresh(listing, crawl, again):
    document = blocklist("optedout.example")
    web = listing(Reply(document.body, content_type="application/json", etag='W/"list,1"'))
    crawl(web, sources=SOURCES, settings=WITH_LIST)
    ((adopted,),) = rows_of(crawl, "SELECT adopted FROM blocklist")
    assert adopted == '[21600.0, ""]\noptedout.example\t2026-05-23\temail'
    # What an earlier release adopted, which was less strict, is not judged again.
    rows_of(crawl, "UPDATE copies SET body = ? WHERE kind = 'blocklist'", [b"v0"])
    fresh = again(web, sources=SOURCES, settings=WITH_LIST)
    assert paths(fresh.log) == ["blog.example/feed"]
    make_stale(crawl)
    stale = again(web, sources=SOURCES, settings=WITH_LIST)
    asked = next(hit for hit in stale.log if hit.host == "operator.example")
    assert (asked.header("If-None-Match"), asked.status) == ('W/"list,1"', 304)
    judge(web, blocked=["optedout.example"], robots_exempt=[LIST_URL])
    assert paths(again(web, sources=SOURCES, settings=WITH_LIST).log) == ["blog.example/feed"]
    make_stale(crawl, seconds=-365 * 86_400)  # by a clock that was a year ahead of us
    ahead = again(web, sources=SOURCES, settings=WITH_LIST)
    assert "operator.example/blocklist.json" in paths(ahead.log)


def test_a_wrong_refresh_is_replaced_and_an_etag_keeps_its_url(listing, crawl, again):
    slip = blocklist("optedout.example", refresh="P1M").body.replace("email", FORGED)
    moved = Reply("\ufeff" + slip, content_type="application/json", etag='"moved"')
    web = listing(
        redirect("http://elsewhere.example/list.json", 302),
        Site("elsewhere.example", "", {"/list.json": moved}),
    )
    first = crawl(web, sources=SOURCES, settings=WITH_LIST)
    assert log_lines(first, "'P1M'", "PT6H")
    assert "by\ufffdmail\\x1b[2J\\u202e\\n2026" in first.stderr
    make_stale(crawl)
    second = again(web, sources=SOURCES, settings=WITH_LIST)
    asked = [hit for hit in second.log if hit.path.endswith("list.json")]
    assert [hit.header("If-None-Match") for hit in asked] == [None, None]
    judge(web, blocked=["optedout.example"], robots_exempt=[LIST_URL])


def test_the_published_schema_is_used_unless_it_is_broken(listing, crawl):
    strict = '{"$schema": "https://json-schema.org/draft/2020-12/schema", "required": ["signed"]}'
    schemas = [Reply(strict), Reply('{"type": 7}' + " " * 300_000)]
    web = listing(blocklist("optedout.example"), schema=schemas)
    with_schema = WITH_LIST | {"WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA_URL}
    refused = crawl(web, sources=SOURCES, settings=with_schema)
    assert "operator.example/schema.json" in paths(refused.log)
    assert "optedout.example/feed" in paths(refused.log), "what fails validation is not adopted"
    adopted = crawl(web, sources=SOURCES, settings=with_schema, arguments={"force": "1"})
    assert "optedout.example/feed" not in paths(adopted.log)
    assert log_lines(adopted, SCHEMA_URL, "300011")


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
