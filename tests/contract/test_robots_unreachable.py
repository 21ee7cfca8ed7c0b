"""R2, RFC 9309 2.3.1.4: what a bot with its own identity does without a robots.txt (decision 12).

Real crawls in simulated time. Each run requests a failing robots.txt once.
"""

from dataclasses import replace
from functools import partial

import pytest
from scrapy import Request, Spider
from scrapy.settings import Settings

from tests.helpers.sites import AGENT, IDENTITY, feed, log_lines
from walsh_scrapy import identity
from walsh_scrapy.options import Options
from walsh_scrapy.testing.simulation import DAY, EPOCH, simulate
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect
from walsh_scrapy.wire.endpoints import BadCertificate, NoAnswer, NoSecureConnection

HOUR = 3600.0
#: "phased" is the default under another identity.
OWN = {"WALSH_USER_AGENT": AGENT, "WALSH_UA_TOKEN": "Example-Bot", "WALSH_MAX_RETRIES": 0}
RULES = "User-agent: *\nDisallow: /private\n"
#: By host: its answers for robots.txt, the last one again and again.
ROBOTS = {
    "error": Reply(status=500),
    "busy": Reply(status=503),
    "refusing": Reply(status=429),
    "reset": Reply(fault=Fault.RESET),
    "closing": Reply(fault=Fault.CLOSE),
    "failing": [Reply(RULES), Reply(status=502)],
    "silent": [Reply(RULES), Reply(fault=Fault.CLOSE)],
}
#: Seconds after the begin. The copies of the first run are a day old in the fourth, in which the
#: last two hosts fail for the first time.
STARTS = (0.0, 0.9 * HOUR, 1.1 * HOUR, 26 * HOUR, 37 * HOUR, 39 * HOUR, 31 * DAY, 33 * DAY)
#: By host: what each run requests, robots.txt (R), /feed (f), /private (p).
EXPECTED = {
    "error": "R - R R R R Rfp Rfp",
    "busy": "R - R R R R Rfp Rfp",
    "refusing": "R - R R R R Rfp Rfp",
    "reset": "R - R R R R R R",
    "closing": "R - R R R R R R",
    "failing": "Rf f f R R Rf Rf Rfp",
    "silent": "Rf f f R R Rf Rf R",
}
SHORT = {"/robots.txt": "R", "/feed": "f", "/private": "p"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The runs of a bot that visits two pages of each host in each run."""
    sites = [
        Site(f"{name}.example", robots, {"/feed": feed(), "/private": feed()})
        for name, robots in ROBOTS.items()
    ]
    return simulate(
        *sites,
        starts=STARTS,
        folder=tmp_path_factory.mktemp("phases"),
        sources=[
            f"http://{name}.example{path}" for name in ROBOTS for path in ("/feed", "/private")
        ],
        settings=OWN | {"WALSH_MIN_REVISIT": 0, "WALSH_BACKOFF_BASE": 0.01},
    )


WALSH = {"WALSH_USER_AGENT": identity.USER_AGENT}


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        (WALSH, "allow"),
        (OWN, "phased"),
        (OWN | {"WALSH_ROBOTS_UNREACHABLE": "allow"}, "allow"),
        (WALSH | {"WALSH_ROBOTS_UNREACHABLE": "phased"}, "phased"),
    ],
)
def test_the_identity_decides_about_the_default(settings, policy):
    options = Options.from_settings(Settings({"WALSH_STATE_URL": "sqlite://"} | settings))
    assert options.robots_unreachable == policy


def asked(run, host):
    paths = [SHORT[hit.path] for hit in run.log if hit.host == f"{host}.example"]
    return "".join(sorted(paths)) or "-"


@pytest.mark.parametrize("host", ROBOTS)
def test_what_is_sent_in_each_phase(runs, host):
    assert " ".join(asked(run, host) for run in runs) == EXPECTED[host]


def warnings_of(run, host):
    lines = [line for line in run.stderr.splitlines() if f"{host}.example" in line]
    return [line for line in lines if " WARNING: " in line or " ERROR: " in line]


@pytest.mark.parametrize("host", ROBOTS)
def test_one_warning_a_host_says_why_and_what_to_set(runs, host):
    for run, requested in zip(runs, EXPECTED[host].split(), strict=True):
        if requested in ("-", "R"):
            (line,) = warnings_of(run, host)
            assert 'WALSH_ROBOTS_UNREACHABLE = "phased"' in line
            assert 'WALSH_ROBOTS_UNREACHABLE = "allow"' in line


def test_sources_of_an_unreachable_robots_txt_are_not_denied(runs):
    denied = [run.stats.get("walsh/sources/denied/robots", 0) for run in runs]
    assert denied == [2, 2, 2, 0, 0, 2, 2, 0], "by the copies of two hosts"
    assert [run.stats["walsh/sources/deferred"] for run in runs] == [10, 10, 10, 14, 14, 10, 4, 6]
    assert all(run.stats["walsh/sources/due"] == 14 for run in runs), "they stay due"
    assert not any("walsh/sources/failed" in run.stats for run in runs)


def test_a_source_is_deferred_for_an_hour_not_for_the_phase(runs):
    for run, started in zip(runs[2:], STARTS[2:], strict=True):
        seconds = run.stats["walsh/sources/deferred_until"] - EPOCH - started
        assert seconds == pytest.approx(HOUR, abs=10.0)


class Follows(Spider):
    """Requests two pages that are no declared sources, and says how each request ended."""

    name = "follows"

    async def start(self):
        for path in ("a", "b"):
            yield Request(f"http://error.example/{path}", errback=self.failed)

    def parse(self, response):
        yield {"page": response.url}

    def failed(self, failure):
        kinds = [kind.__name__ for kind in type(failure.value).mro()]
        yield {"is_deferred": "RequestDeferred" in kinds, "is_denied": "Denied" in kinds}


def test_errbacks_get_a_deferral_and_a_job_keeps_the_requests(simulated, tmp_path):
    """robots.txt can be read again in the third run, an hour after the last try."""
    site = Site("error.example", [Reply(status=500), Reply(RULES)], {"/a": "a", "/b": "b"})
    settings = IDENTITY | {
        "SPIDER_MODULES": ["tests.contract.test_robots_unreachable"],
        "JOBDIR": tmp_path / "job",
        "WALSH_MAX_RETRIES": 0,
    }
    first, early, late = simulated(
        site, spider="follows", settings=settings, starts=[0.0, HOUR / 2, 1.1 * HOUR]
    )
    assert [hit.path for hit in first.log] == ["/robots.txt"]
    assert first.items == [{"is_deferred": True, "is_denied": False}] * 2
    assert early.log == []
    assert early.items == first.items
    assert sorted(item["page"] for item in late.items) == [
        f"http://error.example/{p}" for p in "ab"
    ]
    for run in (first, early):
        assert run.stats["walsh/requests/deferred"] == 2
        assert len(warnings_of(run, "error")) == 1


def test_each_database_keeps_the_last_try(simulated, url):
    site = Site("error.example", [Reply(status=500), Reply(RULES)], {"/feed": feed()})
    runs = simulated(
        site,
        sources=["http://error.example/feed"],
        settings=OWN | {"WALSH_STATE_URL": url},
        starts=[0.0, HOUR / 2, 1.1 * HOUR],
    )
    assert [asked(run, "error") for run in runs] == ["R", "-", "Rf"]


@pytest.mark.parametrize("policy", ["allow", "disallow", "phased"])
def test_the_choice_of_another_bot_or_of_walsh_research_counts(simulated, policy):
    site = Site("error.example", Reply(status=500), {"/feed": feed()})
    (run,) = simulated(
        site,
        sources=["http://error.example/feed"],
        settings={"WALSH_ROBOTS_UNREACHABLE": policy, "WALSH_MAX_RETRIES": 1},
    )
    ends = {"allow": "fetched", "disallow": "denied/robots", "phased": "deferred"}
    assert run.stats[f"walsh/sources/{ends[policy]}"] == 1


def no_tls(hit):
    raise NoSecureConnection(hit.host, "handshake failure")


def bad_certificate(hit):
    raise BadCertificate(hit.host, "has expired")


def dead(hit):
    raise NoAnswer(hit.host, "no connection within 10 s")


def https_only(failure, hit):
    """A robots.txt that is redirected to https, which does not work."""
    return failure(hit) if hit.scheme == "https" else redirect(f"https://{hit.host}/robots.txt")


@pytest.mark.parametrize("policy", ["allow", "disallow", "phased"])
@pytest.mark.parametrize(
    "sites",
    [
        [Site("a.example", partial(https_only, no_tls))],
        [Site("a.example", partial(https_only, bad_certificate))],
        [Site("a.example", redirect("https://b.example/robots.txt")), Site("b.example", no_tls)],
        [Site("a.example", redirect("http://b.example/robots.txt")), Site("b.example", dead)],
    ],
    ids=["no TLS", "bad certificate", "other host without TLS", "dead host"],
)
def test_a_redirect_to_an_unreachable_place_is_one_warning(simulated, sites, policy):
    """The host that redirects can be reached, so no page of it fails with a warning of its own."""
    redirecting, *targets = sites
    pages = {"/feed": feed(), "/other": feed()}
    (run,) = simulated(
        replace(redirecting, pages=pages),
        *targets,
        sources=[f"http://a.example{path}" for path in pages],
        settings={"WALSH_ROBOTS_UNREACHABLE": policy},
    )
    (line,) = warnings_of(run, "a")
    assert "robots.txt is unreachable" in line
    assert " WARNING: " in line
    assert "walsh/sources/failed" not in run.stats


@pytest.mark.parametrize("host", ["a.example", "nowhere.example"])
def test_a_redirect_into_a_dead_tunnel_is_one_warning(loopback_web, crawl, host):
    """On sockets: the proxy opens no tunnel to a host without TLS (501), or to none (502)."""
    lead = redirect(f"https://{host}/robots.txt")
    web = loopback_web(Site("a.example", lead, {"/feed": feed()}))
    result = crawl(web, sources=["http://a.example/feed"])
    (line,) = log_lines(result, " WARNING ")
    assert "a.example:80/robots.txt is unreachable" in line
    assert result.stats["walsh/sources/fetched"] == 1


def test_a_dead_host_fails_one_source_with_one_warning(simulated):
    pages = {"/feed": dead, "/other": dead}
    sources = [f"http://a.example{path}" for path in pages]
    (run,) = simulated(Site("a.example", dead, pages), sources=sources)
    (line,) = warnings_of(run, "a")
    assert "failed" in line


def test_two_origins_of_a_host_share_a_warning(simulated):
    sites = [
        Site(f"a.example{port}", Reply(status=500), {"/feed": feed()}) for port in ("", ":8080")
    ]
    (run,) = simulated(
        *sites, sources=["http://a.example/feed", "http://a.example:8080/feed"], settings=OWN
    )
    assert run.stats["walsh/sources/deferred"] == 2
    assert len([line for line in run.stderr.splitlines() if " WARNING: " in line]) == 1
