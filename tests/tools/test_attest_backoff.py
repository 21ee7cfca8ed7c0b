"""`scrapy attest` finds nothing in records of polite crawls, made in simulated time."""

import contextlib
from email.utils import formatdate

import pytest

from tests.helpers.sites import LIST_URL, blocklist, feed, site
from walsh_scrapy.state import State
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Site
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools.attest import attest

BEGIN = 1_767_225_600.0
#: Two and a half hours after the first run begins.
DATE = formatdate(BEGIN + 9000.0, usegmt=True)
HOSTS = [f"{name}.example" for name in "abcde"]


def refusal(**headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=503, headers=given)


@pytest.fixture
def judged(simulated, tmp_path):
    """Return a function that crawls some sites, a run a day, and judges the record."""

    def run(*sites, runs=1, **settings):
        operator = Site("operator.example", "", {"/blocklist.json": blocklist("out.example")})
        simulated(
            operator,
            *sites,
            sources=[f"http://{site.host}{path}" for site in sites for path in site.pages],
            starts=[day * (DAY + 60.0) for day in range(runs)],
            settings={"WALSH_BLOCKLIST_URL": LIST_URL} | settings,
        )
        (file,) = tmp_path.rglob("walsh.sqlite3")
        with contextlib.closing(State(f"sqlite:///{file}")) as state, state.log() as snapshot:
            attestation = attest(snapshot, BEGIN + (runs + 1) * DAY)
        found = [finding for row in attestation["checklist"] for finding in row["findings"]]
        return {finding["kind"]: finding["worst"]["what"] for finding in found}

    return run


def test_a_polite_crawl_of_the_same_sites_breaks_nothing(judged):
    sites = [
        *map(site, ["quick.example", *HOSTS]),
        Site("slow.example", "", {"/feed": Reply(feed().body, delay=4.0)}),
        Site("star.example", "User-agent: *\nDisallow: /*feed\n", {"/1/2/feed": feed()}),
        Site("long.example", "", {"/feed": [refusal(Retry_After="600"), feed()]}),
        Site("zero.example", "", {"/feed": [refusal(Retry_After="0"), feed()]}),
        Site("odd.example", "", {"/feed": [refusal(Retry_After="soon"), refusal(), feed()]}),
        Site("down.example", "", {"/feed": refusal()}),
        Site("robots.example", refusal(), {"/feed": feed()}),
        Site("date.example", "", {"/feed": [refusal(Retry_After=DATE), feed()]}),
    ]  # fmt: skip
    assert judged(*sites, runs=3) == {}


def test_a_list_whose_server_is_down_in_later_runs_is_no_breach(simulated, tmp_path):
    operator = Site(
        "operator.example", "", {"/blocklist.json": [blocklist("out.example"), refusal()]}
    )
    simulated(
        operator,
        site("a.example"),
        sources=["http://a.example/feed"],
        starts=[0.0, DAY + 60.0, 2 * DAY + 120.0, 2.5 * DAY],
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
        arguments={"force": "1"},
    )
    (file,) = tmp_path.rglob("walsh.sqlite3")
    with contextlib.closing(State(f"sqlite:///{file}")) as state, state.log() as snapshot:
        attestation = attest(snapshot, BEGIN + 4 * DAY)
    found = [each["kind"] for row in attestation["checklist"] for each in row["findings"]]
    assert found == []
