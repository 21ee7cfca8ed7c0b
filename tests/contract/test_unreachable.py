"""A host that cannot be reached costs one attempt a run, and fails one source (decision 28).

Real crawls in simulated time. A page that raises stands for a connection that cannot be made.
"""

import asyncio
from itertools import cycle
from typing import ClassVar

import pytest
from scrapy import Request
from scrapy.exceptions import CannotResolveHostError, DownloadTimeoutError

from tests.helpers.sites import IDENTITY, feed, log_lines, rows_of, site
from walsh_scrapy.exceptions import MachineTrouble, Unreachable
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.testing.simulation import DAY, EPOCH
from walsh_scrapy.testing.site import Reply, Site, redirect
from walsh_scrapy.wire.endpoints import ConnectionRefused

REASON = "no connection to dead.example within 10 s"
PATHS = tuple("abcde")
SILENT = cycle([True, False])


class NoAddress(Unreachable, CannotResolveHostError):
    """Retried by Scrapy's RetryMiddleware, if nothing prevents that."""


class NoConnection(Unreachable, DownloadTimeoutError):
    """Not retried in this project."""


def no_connection(hit):
    raise NoConnection(hit.host, REASON)


def no_address(hit):
    raise NoAddress(hit.host, REASON)


def no_route(hit):
    raise MachineTrouble(EPOCH + hit.started, "the network is unreachable")


class Asks(DeclaringSpider):
    """Asks for all pages at once, past the scheduler, in a declared crawl."""

    name = "asks"
    custom_settings: ClassVar = {"WALSH_SCOPE": "any"}

    async def start(self):
        yield Request("http://alive.example/feed")

    async def parse(self, response):
        asked = (self.crawler.engine.download_async(Request(url)) for url in sources())
        ends = await asyncio.gather(*asked, return_exceptions=True)
        yield {"ends": sorted(type(end).__name__ for end in ends)}


def dead(page, *, robots=""):
    return Site("dead.example", robots, {f"/{path}": page for path in PATHS})


def sources():
    return [f"http://dead.example/{path}" for path in PATHS]


def outcomes(result):
    names = ("fetched", "failed", "deferred", "denied/robots")
    counts = {name: result.stats.get(f"walsh/sources/{name}", 0) for name in names}
    return {name: count for name, count in counts.items() if count}


@pytest.fixture
def rows(tmp_path):
    """Return the rows of a query of the state that the simulated runs share."""

    def read(query):
        return rows_of(tmp_path / "simulation", query)

    return read


def given_up(rows):
    return [host for (host,) in rows("SELECT host FROM hosts WHERE deferred_at > 0")]


@pytest.mark.parametrize("raising", [no_connection, no_address])
@pytest.mark.parametrize("decides", ["allow", "disallow", "phased"])
def test_a_dead_host_costs_one_attempt_and_fails_one_source(simulated, rows, raising, decides):
    (run,) = simulated(
        dead(raising, robots=raising),
        site("alive.example"),
        sources=[*sources(), "http://alive.example/feed"],
        settings={"WALSH_ROBOTS_UNREACHABLE": decides},
    )
    attempts = [hit.path for hit in run.log if hit.host == "dead.example"]
    assert attempts == ["/robots.txt"]
    assert outcomes(run) == {"fetched": 1, "failed": 1, "deferred": 4}
    failed = rows("SELECT outcome, detail, failures FROM sources WHERE url LIKE '%dead%'")
    assert failed == [("failed", REASON, 1)], "the others have no record: they stay due"
    assert rows("SELECT url, status, error FROM requests WHERE host = 'dead.example'") == [
        ("http://dead.example/robots.txt", None, REASON)
    ]
    assert rows("SELECT refusals, unreachable FROM hosts WHERE host = 'dead.example'") == [(0, 1)]
    assert "walsh/backoff/retried" not in run.stats
    kept = rows("SELECT status, failing_since > 0 FROM robots WHERE origin LIKE '%dead%'")
    assert kept == [(None, True)], "it counts as unreachable"
    assert given_up(rows) == ["dead.example"], "other workers do not try it in this run"
    assert len(log_lines(run, "dead.example ", "not tried again", REASON)) == 1
    assert run.stderr.count(REASON) == 2, "and why the one source failed"
    assert " ERROR" not in run.stderr
    assert run.stderr.count(" WARNING: ") == 1, "one line for a dead host"


@pytest.mark.parametrize("raising", [no_connection, no_address])
def test_a_host_that_dies_after_robots_txt_is_tried_once(simulated, raising):
    (run,) = simulated(dead(raising), sources=sources())
    assert [hit.path for hit in run.log] == ["/robots.txt", run.log[1].path]
    assert outcomes(run) == {"failed": 1, "deferred": 4}


@pytest.mark.parametrize("decides", ["allow", "disallow", "phased"])
@pytest.mark.parametrize("robots", [no_connection, ""])
def test_requests_that_wait_in_the_gates_share_one_attempt_too(simulated, rows, decides, robots):
    (run,) = simulated(
        dead(no_connection, robots=robots),
        site("alive.example"),
        spider="asks",
        settings={
            "SPIDER_MODULES": ["tests.contract.test_unreachable"],
            **IDENTITY,
            "WALSH_ROBOTS_UNREACHABLE": decides,
        },
    )
    asked = [hit for hit in run.log if hit.host == "dead.example"]
    assert len(asked) == (1 if robots else 2), "one attempt, after a robots.txt that came"
    assert run.items == [{"ends": ["HostDeferred"] * 4 + ["NoConnection"]}]
    assert given_up(rows) == ["dead.example"], "other workers do not try it in this run"


def test_a_dead_host_is_tried_rarer_after_each_silence(simulated, rows):
    runs = simulated(
        dead(no_connection, robots=no_connection),
        sources=sources(),
        starts=[day * (DAY + 60.0) for day in range(8)],
    )
    assert [len(run.log) for run in runs] == [1, 1, 0, 1, 0, 0, 0, 1]
    assert [outcomes(run).get("failed", 0) for run in runs] == [1, 1, 0, 1, 0, 0, 0, 1]
    assert all(outcomes(run)["deferred"] >= 3 for run in runs)
    assert log_lines(runs[2], "dead.example", "not be requested before")
    assert rows("SELECT unreachable, refusals FROM hosts") == [(4, 0)]


def test_every_origin_of_a_dead_host_is_deferred(simulated):
    leads = redirect("http://dead.example/a", 302)
    (run,) = simulated(
        dead(feed(), robots=no_connection),
        Site("dead.example:8080", no_connection, {"/f": no_connection}),
        site("alive.example", feed=leads),
        sources=[
            *sources(),
            "https://dead.example/a",
            "http://dead.example:8080/f",
            "http://alive.example/feed",
        ],
    )
    hosts = [hit.host for hit in run.log]
    assert hosts.count("dead.example") == 1
    assert outcomes(run) == {"failed": 1, "deferred": 7}


def refuses(hit):
    raise ConnectionRefused(hit.host, f"{hit.host} refused the connection")


def test_a_refused_connection_binds_its_origin_alone(simulated, rows):
    """One dead link costs one attempt a run, and no page of another port (decision 28)."""
    runs = simulated(
        dead(feed(host="dead.example")),
        Site("dead.example:1", refuses, {"/x": refuses}),
        sources=[*sources(), "http://dead.example:1/x", "http://dead.example:1/y"],
        starts=[0.0, 4 * DAY, 8 * DAY],
    )
    for run in runs:
        assert [hit.path for hit in run.log if hit.port == 1] == ["/robots.txt"]
        assert outcomes(run) == {"fetched": 5, "failed": 1, "deferred": 1}
        assert len(log_lines(run, "http://dead.example:1 ", "not tried again")) == 1
    assert rows("SELECT unreachable, hold_until FROM hosts") == [(0, 0.0)]


def times_out(hit):
    raise DownloadTimeoutError(f"Getting {hit.path} took longer than 30 seconds.")


def now_and_then(hit):
    return times_out(hit) if next(SILENT) else feed(host="dead.example")


@pytest.mark.parametrize(
    ("robots", "page", "asked", "ends"),
    [
        (times_out, times_out, 3, {"failed": 1, "deferred": 4}),
        ("", times_out, 3, {"failed": 2, "deferred": 3}),
        ([times_out, ""], feed(host="dead.example"), 7, {"fetched": 5}),
        ("", now_and_then, 6, {"failed": 3, "fetched": 2}),
    ],
    ids=["never answers", "answers robots.txt alone", "answers late", "answers now and then"],
)
def test_a_host_is_deferred_after_two_timeouts_in_a_row(simulated, rows, robots, page, asked, ends):
    """A serial crawl waits for each of these; their sources stay due."""
    (run,) = simulated(dead(page, robots=robots), sources=sources())
    assert len(run.log) == asked
    assert outcomes(run) == ends
    assert given_up(rows) == (["dead.example"] if "deferred" in ends else [])


SLOWLY = {
    "drips": (Reply("User-agent: *\n", drip=150.0), [30.0]),
    "refuses": (Reply(status=503, delay=11.9), [12.0, 12.0, 6.0]),
    "leads-on": ([Reply(status=302, headers={"Location": "/r"}, delay=19.9)], [20.0, 10.0]),
    "comes-late": ([Reply(status=503, delay=19.9), Reply("", delay=4.9)], [20.0, 5.0]),
}


def test_all_tries_of_a_robots_txt_share_30_seconds(simulated):
    """Pauses between the tries are not counted: other hosts are asked meanwhile."""
    hosts = {f"{name}.example": page for name, (page, _) in SLOWLY.items()}
    run, later = simulated(
        *(site(host, page, r=Reply(drip=60.0)) for host, page in hosts.items()),
        sources=[f"http://{host}/{name}" for host in hosts for name in ("feed", "other")],
        settings={"DOWNLOAD_TIMEOUT": 60},
        starts=[0.0, DAY + 3600.0],
    )
    for name, (_, tries) in SLOWLY.items():
        hits = [hit for hit in run.log if hit.host == f"{name}.example" and len(hit.path) < 3]
        hits += [hit for hit in run.log if hit.host == f"{name}.example" and "robots" in hit.path]
        took = sorted((hit.ended - hit.started for hit in hits), reverse=True)
        assert took == pytest.approx(tries), name
        # Where it did not come, all else waits for the next run, in which it has 7 s.
        is_late = name != "comes-late"
        for result, status in ((run, [] if is_late else [200]), (later, [200])):
            targets = [hit for hit in result.log if hit.url == f"http://{name}.example/feed"]
            assert [hit.status for hit in targets] == status, name
            lines = log_lines(result, f"{name}.example ", "not tried again", "30 s")
            assert bool(lines) == (is_late and result is run)
        others = [hit for hit in later.log if hit.host == f"{name}.example" and hit.status != 200]
        assert sum(hit.ended - hit.started for hit in others) < 7.2
    assert run.stats["walsh/robots/unreachable"] == 3
    assert log_lines(run, "drips.example:80/robots.txt", "unreachable")


def test_a_dead_host_defers_no_other_host_of_its_domain(simulated, rows):
    runs = simulated(
        *(Site(f"{name}.blog.example", no_connection, {"/a": ""}) for name in ("x", "y")),
        site("z.blog.example"),
        sources=[
            "http://x.blog.example/a",
            "http://x.blog.example/b",
            "http://y.blog.example/a",
            "http://z.blog.example/feed",
        ],
        settings={"WALSH_PACE_BY": "domain"},
        starts=[0.0, 4 * DAY, 8 * DAY],
    )
    assert [outcomes(run) for run in runs] == [{"failed": 2, "deferred": 1, "fetched": 1}] * 3
    # A hold would bind the other hosts of the domain.
    assert rows("SELECT host FROM hosts WHERE hold_until > 0") == []


def test_local_network_trouble_is_no_failure_of_a_host(simulated, rows):
    (run,) = simulated(
        dead(no_route, robots=no_route), site("alive.example"),
        sources=[*sources(), "http://alive.example/feed"],
    )  # fmt: skip
    assert [hit.path for hit in run.log if hit.host == "dead.example"] == ["/robots.txt"]
    assert outcomes(run) == {"fetched": 1, "deferred": 5}
    assert rows("SELECT * FROM requests WHERE host = 'dead.example'") == []
    assert rows("SELECT * FROM robots WHERE origin LIKE '%dead%'") == []
    assert rows("SELECT * FROM sources WHERE url LIKE '%dead%'") == []
    # A row that says nothing is deleted at the end of the run.
    assert rows("SELECT * FROM hosts WHERE host = 'dead.example'") == []


@pytest.mark.parametrize(
    ("operator", "failed", "why"),
    [
        (Site("operator.example", no_connection), 1, REASON),
        # Our own trouble is no failure of it.
        (
            Site("operator.example", "", {"/list.json": no_route}),
            None,
            "the network is unreachable",
        ),
    ],
)
def test_a_blocklist_that_cannot_be_fetched_keeps_no_target(simulated, operator, failed, why):
    (run,) = simulated(
        operator,
        site("alive.example"),
        sources=["http://alive.example/feed"],
        settings={"WALSH_BLOCKLIST_URL": "http://operator.example/list.json"},
    )
    asked = [hit.path for hit in run.log if hit.host == "operator.example"]
    assert asked == ["/robots.txt", *operator.pages]
    assert run.stats.get("walsh/blocklist/failed") == failed
    assert log_lines(run, "could not be fetched", why)
    assert outcomes(run) == {"fetched": 1}
