"""`scrapy demo` runs both crawls, fails if a rule is broken, and shows what its web serves."""

import json
import re
import sys
from urllib.parse import urlsplit

import jsonschema
import pytest

from tests.helpers import execute
from walsh_scrapy.commands.demo import Command
from walsh_scrapy.testing import politeness
from walsh_scrapy.testing.demoweb import SOURCES, demo_web, timeline

pytestmark = pytest.mark.long
SITES, _ = demo_web()


def test_every_source_has_a_site_and_every_site_says_what_it_asks():
    hosts = {site.host for site in SITES}
    assert len(hosts) == len(SITES) == 16
    assert {urlsplit(source).hostname for source in SOURCES} <= hosts
    assert all(site.asks for site in SITES)


def test_the_blocklist_keeps_its_schema():
    pages = {path: json.loads(reply.body) for path, reply in SITES[0].pages.items()}
    jsonschema.validate(pages["/blocklist.json"], pages["/blocklist.schema.json"])
    assert [entry["domain"] for entry in pages["/blocklist.json"]["blocked"]] == [
        "optedout.example"
    ]


@pytest.fixture(scope="module")
def demo(pytestconfig):
    return execute(sys.executable, "-m", "scrapy", "demo", cwd=pytestconfig.rootpath)


def test_the_demo_breaks_no_rule_and_says_so(demo):
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "No rule was broken." in demo.stdout
    assert "Traceback" not in demo.stderr


def test_the_demo_shows_the_requests_of_every_host(demo):
    for site in SITES:
        assert f" {site.host} " in demo.stdout
    for shown in ("no byte sent", "429", "503", "301", "304", "Crawl-delay: 2", "HTML"):
        assert shown in demo.stdout
    assert "http://blog.example/feed.xml" in demo.stdout
    assert demo.stdout.count(", at most 1 open at once; ") == 2
    for found in ("; 21 new entries, ", "; 1 new entry, "):
        assert found in demo.stdout


@pytest.mark.crawl
def test_a_broken_rule_or_a_lost_source_is_exit_status_1(monkeypatch, capsys):
    monkeypatch.setattr(politeness, "violations", lambda *_args, **_terms: ["R9: invented"])
    monkeypatch.setattr("walsh_scrapy.testing.demoweb.SOURCES", SOURCES[:1])
    command = Command()
    command.run([], None)
    assert command.exitcode == 1
    assert "R9: invented" in capsys.readouterr().out


def test_a_host_without_requests_is_shown_as_such():
    assert timeline([]) == "no byte sent"


def test_the_table_of_the_page_is_that_of_the_demo(demo, pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "demo.md").read_text("utf-8")
    shown, whole = rows_of(page), rows_of(demo.stdout)
    assert len(shown) > 4
    assert shown == {host: cells for host, cells in whole.items() if host in shown}


def rows_of(text):
    """The rows of a framed table by their first cell; pauses differ from run to run."""
    rows, host = {}, ""
    for line in re.findall(r"^│ (.+) │$", text, re.MULTILINE):
        first, *cells = map(str.strip, line.split("│"))
        host = first or host
        rows.setdefault(host, []).append(cells)
    joined = {
        host: [" ".join(cell).strip() for cell in zip(*lines, strict=True)]
        for host, lines in rows.items()
    }
    return {
        host: [re.sub(r"[\d.]+ s\b", "a pause", cell) for cell in cells]
        for host, cells in joined.items()
    }
