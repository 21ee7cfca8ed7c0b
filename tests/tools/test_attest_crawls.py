"""`scrapy attest` after whole crawls: a polite one holds, and broken ones are found (issue 26)."""

import contextlib

import pytest

from tests.helpers.sites import LIST_URL, blocklist, feed, site
from walsh_scrapy.state import State
from walsh_scrapy.testing.authority import Certificate
from walsh_scrapy.testing.demoweb import BLOCKLIST_SCHEMA_URL, BLOCKLIST_URL, demo_web
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Reply, Site
from walsh_scrapy.tools.attest import attest

#: 2026-01-01, when simulated crawls begin, and some days.
LATER = 1_767_225_600.0 + 9 * DAY


@pytest.fixture
def attested(simulated, tmp_path):
    """Crawl two days in a row, or longer, and return the rows of the checklist by their numbers."""

    def run(*sites, starts=(0.0, DAY + 60.0), mutant="", **options):
        extensions = {f"tests.helpers.mutants.{mutant}": 0} if mutant else {}
        settings = {"EXTENSIONS": extensions} | options.pop("settings", {})
        simulated(*sites, starts=starts, settings=settings, **options)
        file = tmp_path / "simulation" / "walsh.sqlite3"
        with contextlib.closing(State(f"sqlite:///{file}")) as state, state.log() as log:
            attestation = attest(log, LATER)
        return {row["row"]: row for row in attestation["checklist"]}

    return run


def test_each_row_of_a_crawl_of_the_demo_holds(attested):
    sites, sources = demo_web()
    settings = {
        "WALSH_BLOCKLIST_URL": BLOCKLIST_URL,
        "WALSH_BLOCKLIST_SCHEMA_URL": BLOCKLIST_SCHEMA_URL,
    }
    rows = attested(*sites, sources=sources, settings=settings)
    verdicts = {number: row["verdict"] for number, row in rows.items()}
    assert verdicts == dict.fromkeys(rows, "holds"), rows
    assert all(row["shown"] for row in rows.values())


RULES = Reply("User-agent: *\nDisallow: /private\n", etag='"rules"')


SOURCES = ["http://a.example/feed", "http://b.example/feed"]
SETTINGS = {"WALSH_BLOCKLIST_URL": LIST_URL}


@pytest.mark.parametrize(
    ("mutant", "sources", "found"),
    [
        ("", [*SOURCES, "http://a.example:8080/feed", "http://fails.example/feed"], {}),
        ("OneFileForAll", SOURCES, {"2": ["unasked-robots"]}),
        ("Mixed", SOURCES, {"2": ["other-copy"]}),
        ("NeverAsked", SOURCES, {"2": ["unasked-robots"]}),
        ("OfItself", SOURCES, {"6": ["undeclared"]}),
    ],
)
def test_a_broken_crawler_is_found_by_its_own_record(attested, mutant, sources, found):
    pages = {"/feed": feed(host="a.example")}
    fails = [RULES, *[Reply(status=503)] * 9]
    hosts = [
        site("operator.example", **{"blocklist.json": blocklist("out.example")}),
        Site("a.example", RULES, {**pages, "/1.png": Reply("PNG")}, tls=Certificate.GOOD),
        Site("a.example:8080", RULES, pages),
        site("b.example", "User-agent: *\nDisallow: /x\n"),
        site("fails.example", fails),
    ]
    rows = attested(*hosts, sources=sources, settings=SETTINGS, mutant=mutant)
    kinds = {
        number: [finding["kind"] for finding in row["findings"]]
        for number, row in rows.items()
        if row["findings"]
    }
    assert kinds == found, rows
    if mutant == "NeverAsked":
        assert rows["4"]["verdict"] == "not shown", "what was not logged was sent at some time"
