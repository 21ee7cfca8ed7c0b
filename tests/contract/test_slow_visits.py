"""A visit has 60 s on the wire; a host that takes more than 60 s is deferred (decision 46).

Real crawls, most of them in simulated time.
"""

import json
from dataclasses import replace

import pytest
from scrapy import Request, Spider

from tests.helpers.sites import (
    AGENT,
    IDENTITY,
    feed,
    feeds,
    judge,
    log_lines,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.testing.simulation import DAY, simulate
from walsh_scrapy.testing.site import Reply, Site, redirect

#: An answer takes 0.1 s more: 29 s, which is within the time limit of 30 s.
DELAY = 28.9
OTHERS = [f"other{number}" for number in range(10)]
#: Another bot with declared sources.
OWN = {"WALSH_USER_AGENT": AGENT, "WALSH_UA_TOKEN": "Example-Bot"}
PATHS = [f"f{number}" for number in range(20)]
#: Begins of daily runs in which the sources of the run before are due again.
DAYS = [day * (DAY + 3600.0) for day in range(4)]


def slow_host(name="slow.example", paths=PATHS, *, delay=DELAY, **reply):
    page = feed(host=name.partition(":")[0], delay=delay, **reply)
    return Site(name, "", {f"/{path}": page for path in paths})


def urls_of(host, paths=PATHS):
    return [f"http://{host}/{path}" for path in paths]


def chain(robots):
    """Six hosts of which each one redirects to the next, and the last one has the feed."""
    targets = [f"http://hop{number}.example/feed" for number in range(1, 6)]
    pages = [*(replace(redirect(target, 302), delay=DELAY) for target in targets), feed()]
    return [
        Site(f"hop{number}.example", robots, {"/feed": page}) for number, page in enumerate(pages)
    ]


def seconds_of(log, host=""):
    return sum(hit.ended - hit.started for hit in log if host in hit.host)


def paths_of(run):
    return [hit.path for hit in run.log if hit.path != "/robots.txt"]


def outcomes(run):
    names = ("fetched", "unchanged", "failed", "deferred")
    counts = {name: run.stats.get(f"walsh/sources/{name}", 0) for name in names}
    return {name: count for name, count in counts.items() if count}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A slow host with 20 sources, a slow chain over six hosts, and ten other hosts."""
    return simulate(
        slow_host(),
        *chain(Reply("", delay=DELAY)),
        *(site(f"{name}.example") for name in OTHERS),
        folder=tmp_path_factory.mktemp("slow"),
        sources=[*urls_of("slow.example"), "http://hop0.example/feed", *feeds(*OTHERS)],
        starts=DAYS,
    )


def test_slow_hosts_do_not_hold_up_a_serial_run(runs):
    for run in runs:
        assert seconds_of(run.log) < 152.0, "87 s of the host, 60 s of the chain, 2 s of the others"
        assert run.seconds < 180.0


def test_every_other_host_is_read_in_each_run(runs):
    for run in runs:
        read = {hit.host for hit in run.log if hit.path == "/feed" and hit.status == 200}
        assert read == {f"{name}.example" for name in OTHERS}


def test_a_redirect_chain_ends_after_60_seconds_and_fails(runs):
    first = runs[0]
    chain_hits = [hit for hit in first.log if hit.host.startswith("hop")]
    assert [hit.status for hit in chain_hits] == [200, 302, 0]
    assert seconds_of(chain_hits) == pytest.approx(60.0)
    assert log_lines(first, "http://hop0.example/feed failed", "60 s")


def test_a_visit_that_ended_so_backs_off_as_other_failures(runs):
    asked = [bool(seconds_of(run.log, "hop0.example")) for run in runs]
    assert asked == [True, True, False, True]
    rows = rows_of(
        runs[0].folder.parents[1], "SELECT failures, detail FROM sources WHERE url LIKE '%hop0%'"
    )
    assert [failures for failures, _ in rows] == [3]
    assert "60 s" in rows[0][1]


def test_the_host_of_the_last_request_is_not_blamed(runs):
    blame = "refusals, unreachable, hold_until, deferred_at"
    rows = rows_of(
        runs[0].folder.parents[1], f"SELECT {blame} FROM hosts WHERE host = 'hop1.example'"
    )
    assert rows == [(0, 0, 0.0, 0.0)]
    assert (
        rows_of(runs[0].folder.parents[1], "SELECT * FROM robots WHERE origin LIKE '%hop1%'") == []
    )


def test_a_slow_host_is_deferred_and_its_sources_stay_due(runs):
    for run in runs:
        assert seconds_of(run.log, "slow.example") == pytest.approx(87.1)
        assert run.stats["walsh/sources/deferred"] == 17
        assert len(log_lines(run, "slow.example is not tried again", "1 min 27 s")) == 1
    assert rows_of(runs[0].folder.parents[1], "SELECT * FROM hosts WHERE hold_until > 0") == []


def test_the_sources_that_were_due_longest_come_first(runs):
    asked = [hit.path for run in runs for hit in run.log if hit.host == "slow.example"]
    feeds_asked = [path for path in asked if path != "/robots.txt"]
    assert len(set(feeds_asked)) == len(feeds_asked) == 12, "other sources in each run"


def test_walsh_sources_says_why_a_visit_ended(runs, run_command):
    folder = runs[0].folder.parent
    settings = {
        "WALSH_STATE_URL": f"sqlite:///{folder.parent / 'walsh.sqlite3'}",
        "WALSH_SOURCES": folder / "sources.toml",
    }
    shown = run_command("sources", "--json", settings=settings).stdout.splitlines()
    (failing,) = [row for row in map(json.loads, shown) if row["problem"] == "failing"]
    assert failing["url"] == "http://hop0.example/feed"
    assert "60 s" in failing["outcome"]
    letter = run_command("why", "hop1.example", settings=settings).stdout
    assert "no answer" in letter
    assert "60 s" in letter


@pytest.mark.parametrize(
    ("delay", "fetched"), [(0.3, 300), (2.7, 300), (3.4, 18)], ids=["0.4 s", "2.8 s", "3.5 s"]
)
def test_a_host_with_many_sources_may_be_busy(simulated, delay, fetched):
    paths = [f"f{number}" for number in range(300)]
    host = slow_host(paths=paths, delay=delay)
    (run,) = simulated(host, sources=urls_of("slow.example", paths))
    assert run.stats["walsh/sources/fetched"] == fetched
    assert run.stats.get("walsh/sources/deferred", 0) == 300 - fetched


@pytest.mark.parametrize("pages", [{"etag": '"a"'}, {"drip": 20.0}], ids=["304", "slow body"])
def test_slow_answers_of_other_kinds_count_too(simulated, pages):
    delay = DELAY - pages.get("drip", 0.0)
    host = slow_host(paths=PATHS[:3], delay=delay, **pages)
    runs = simulated(host, sources=urls_of("slow.example", PATHS[:3]), starts=DAYS[:3])
    assert [seconds_of(run.log) for run in runs] == pytest.approx([87.1] * 3)


def test_all_ports_of_a_host_share_its_time(simulated):
    hosts = [f"slow.example:{port}" for port in range(8000, 8008)]
    slow = [replace(slow_host(host, ["feed"]), robots=Reply("", delay=DELAY)) for host in hosts]
    (run,) = simulated(*slow, sources=[f"http://{host}/feed" for host in hosts])
    assert seconds_of(run.log) == pytest.approx(87.0)
    assert outcomes(run) == {"fetched": 1, "deferred": 7}


@pytest.mark.parametrize(("pace_by", "fetched"), [("domain", 3), ("host", 8)])
def test_a_paced_domain_is_deferred_as_a_whole(simulated, pace_by, fetched):
    hosts = [f"h{number}.slow.com" for number in range(8)]
    (run,) = simulated(
        *(slow_host(host, ["feed"]) for host in hosts),
        site("other.example"),
        sources=[*(f"http://{host}/feed" for host in hosts), *feeds("other")],
        settings={"WALSH_PACE_BY": pace_by},
    )
    assert run.stats["walsh/sources/fetched"] == fetched + 1
    assert run.stats.get("walsh/sources/deferred", 0) == 8 - fetched


def test_retries_of_a_refused_request_share_its_time(simulated):
    busy = Site("busy.example", "", {"/feed": Reply(status=503, delay=DELAY), "/other": feed()})
    (run,) = simulated(busy, sources=urls_of("busy.example", ["feed", "other"]))
    tries = [hit.ended - hit.started for hit in run.log if hit.path == "/feed"]
    assert tries == pytest.approx([29.0, 29.0, 2.0], abs=0.2)
    assert outcomes(run) == {"fetched": 1, "failed": 1}


def test_all_documents_of_an_llms_visit_share_its_time(simulated):
    headers = {"Link": '</a.md>; rel="alternate"; type="text/markdown"'}
    page = Reply("<html>", content_type="text/html", headers=headers, delay=DELAY)
    docs = Site("docs.example", "", {"/": page, "/a.md": page, "/llms.txt": page})
    source = {"url": "http://docs.example/", "kind": "llms"}
    (run,) = simulated(docs, spider="llms", sources=[source])
    assert [hit.path for hit in run.log] == ["/robots.txt", "/", "/a.md", "/llms.txt"]
    assert seconds_of(run.log) == pytest.approx(60.0)
    assert outcomes(run) == {"failed": 1}


def test_a_robots_txt_counts_for_the_visit_that_fetches_it(simulated):
    """Both sources wait for it, and both are redirected. The second one has all of its time."""
    lead = {path: redirect(f"http://end.example/{path}", 302) for path in "ab"}
    start = Site(
        "start.example",
        redirect("http://far.example/robots.txt", 302),
        {f"/{path}": replace(reply, delay=19.9) for path, reply in lead.items()},
    )
    end = slow_host("end.example", ["a", "b"], delay=19.9)
    far = Site("far.example", Reply("", delay=DELAY))
    (run,) = simulated(start, end, far, sources=urls_of("start.example", ["a", "b"]))
    last = [hit for hit in run.log if hit.host == "end.example" and hit.path in ("/a", "/b")]
    assert [hit.ended - hit.started for hit in last] == pytest.approx([10.8, 20.0], abs=0.1)
    assert outcomes(run) == {"fetched": 1, "failed": 1}


def test_a_cut_robots_txt_is_fetched_for_the_next_visit(simulated):
    """Its 30 s in a run are counted over all visits."""
    leads = [
        site(name, feed=replace(redirect("http://late.example/feed", 302), delay=DELAY), r="")
        for name in ("a.example", "b.example")
    ]
    late = Site("late.example", [Reply("", delay=DELAY)], {"/feed": feed(host="late.example")})
    (run,) = simulated(*leads, late, sources=[*feeds("a", "b", "late")])
    assert run.stats["walsh/sources/fetched"] == 3


def test_several_hosts_at_once_keep_the_same_limits(simulated):
    (run,) = simulated(
        slow_host(),
        *chain(Reply("", delay=DELAY)),
        sources=[*urls_of("slow.example"), "http://hop0.example/feed"],
        settings={**OWN, "WALSH_SERIAL": False},
    )
    assert outcomes(run) == {"fetched": 3, "failed": 1, "deferred": 17}


class Follows(Spider):
    """Requests pages that are no declared sources."""

    name = "follows"

    async def start(self):
        for url in urls_of("slow.example"):
            yield Request(url)

    def parse(self, response):
        yield {"page": response.url}


def test_a_project_that_follows_links_has_no_such_limits(simulated):
    settings = {**IDENTITY, "SPIDER_MODULES": ["tests.contract.test_slow_visits"]}
    (run,) = simulated(slow_host(), spider="follows", settings=settings)
    assert len(run.items) == len(PATHS)


def test_a_connection_counts_and_the_last_request_is_cut(direct_web, crawl):
    """On sockets: robots.txt and page take 3 s of 4 s, so the next host has 1 s."""
    lead = redirect("http://b.example/feed", 302)
    web = direct_web(site("a.example", feed=lead), site("b.example"), site("c.example"))
    result = crawl(web, sources=feeds("a", "c"), settings=trouble("ShortVisits"))
    assert "b.example" not in {hit.host for hit in result.log}
    assert outcomes(result) == {"fetched": 1, "failed": 1}
    judge(result)


def test_a_server_sees_its_connection_closed_when_time_is_over(direct_web, crawl):
    page = feed(host="a.example", delay=20.0)
    web = direct_web(site("a.example", feed=page), site("c.example"))
    result = crawl(web, sources=feeds("a", "c"), settings=trouble("ShortVisits"))
    (cut,) = [hit for hit in result.log if hit.url.endswith("a.example/feed")]
    assert not cut.complete
    assert outcomes(result) == {"fetched": 1, "failed": 1}
    rows = rows_of(crawl, "SELECT detail FROM sources WHERE url LIKE '%a.example%'")
    assert "visit" in rows[0][0]
    judge(result)
