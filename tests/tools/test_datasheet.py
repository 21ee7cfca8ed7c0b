"""`scrapy datasheet`: the sheet of two crawls, its example, its digest and its command."""

import hashlib
import json
from contextlib import closing
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator
from scrapy.settings import Settings

from tests.docs.test_pages import blocks
from tests.helpers import ROOT
from tests.helpers.sites import LIST_URL, blocklist, feed
from walsh_scrapy.items import SCHEMA
from walsh_scrapy.options import Options
from walsh_scrapy.state import State
from walsh_scrapy.testing.simulation import DAY, simulate
from walsh_scrapy.testing.site import Site
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools.attest.attestation import attest
from walsh_scrapy.tools.attest.audit import audit
from walsh_scrapy.tools.datasheet.markdown import markdown
from walsh_scrapy.tools.datasheet.sheet import build_sheet

PAGE = ROOT / "docs" / "datasheet.md"
#: When the simulated runs begin: 2026-01-01; and when their record is read.
BEGIN = 1_767_225_600.0
NOW = BEGIN + 2 * DAY
OPTIONS = Options.from_settings(Settings())


def sheet_of(url, now=NOW, since=None, options=OPTIONS):
    """The sheet of a state, which is as its schema says."""
    with closing(State(url)) as state, state.log() as log:
        sheet = build_sheet(state, log, options, now, since)
    schema = json.loads(
        (files("walsh_scrapy.tools.datasheet") / "datasheet.schema.json").read_text("utf-8")
    )
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(sheet)
    return sheet


@pytest.fixture(scope="module")
def crawled(tmp_path_factory, crawl_launcher, pytestconfig):
    """The URL of the state after two crawls, a day apart."""
    folder = tmp_path_factory.mktemp("crawled")
    hosts = ("blog", "busy", "closed", "lost", "out")
    simulate(
        Site("blog.example", "User-agent: *\nCrawl-delay: 5\n", {"/feed": feed(posts=["A", "B"])}),
        Site(
            "busy.example",
            "",
            {"/feed": [Reply(status=503, headers={"Retry-After": "30"}), feed()]},
        ),
        Site("closed.example", "User-agent: *\nDisallow: /\n", {"/feed": feed()}),
        Site("lost.example", "", {"/feed": Reply("", status=404)}),
        Site("operator.example", "", {"/blocklist.json": blocklist("out.example")}),
        sources=[f"http://{host}.example/feed" for host in hosts],
        starts=[0.0, DAY + 60.0],
        folder=folder,
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
        launcher=crawl_launcher,
        project=pytestconfig.rootpath,
    )
    return f"sqlite:///{folder / 'walsh.sqlite3'}"


def test_the_example_of_the_page_is_the_sheet_of_two_crawls(crawled):
    """Versions and the digest, which is of the machine's clock too, are those of that day."""
    shown = next(text for _, text in blocks(PAGE, "text") if text.startswith("# How this data set"))
    sheet = sheet_of(crawled)
    sheet["made_by"] = "walsh-scrapy 0.1.0"
    sheet["versions"][0]["values"] |= {"python": "3.11.7", "walsh-scrapy": "0.1.0"}
    for name in ("scrapy", "twisted", "feedparser", "markdown-it-py"):
        del sheet["versions"][0]["values"][name]
    sheet["attestation"]["record"] = hashlib.sha256(b"").hexdigest()
    assert markdown(sheet) == shown


def test_the_digest_is_that_of_an_attestation_of_the_same_record(crawled):
    with closing(State(crawled)) as state, state.log() as log:
        digests = attest(log, audit(log, NOW))["record"]["digests"]

    def sha256(of):
        text = json.dumps(of, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    assert sheet_of(crawled)["attestation"]["record"] == sha256(digests)
    first = "2026-01-01"
    assert digests["requests"].pop(first)
    assert digests["denials"].pop(first)
    assert sheet_of(crawled, since=BEGIN + DAY)["attestation"]["record"] == sha256(digests)


def test_a_period_has_its_own_runs_requests_and_entries(crawled):
    whole, late = sheet_of(crawled), sheet_of(crawled, since=BEGIN + DAY)
    assert (whole["runs"]["crawls"], late["runs"]["crawls"]) == (2, 1)
    assert late["identities"][0]["first_run"] == 2
    assert late["entries"]["number"] == 0
    assert 0 < late["requests"]["number"] < whole["requests"]["number"]
    assert late["pauses"]["retry_after"]["answers"] == 0
    assert [gate["number"] for gate in whole["kept_back"]] == [2, 2]
    assert [gate["number"] for gate in late["kept_back"]] == [1, 1]
    assert late["pauses"]["first"] == 0, "the pause since the run before is known"
    nothing = sheet_of(crawled, since=NOW)
    assert "No run is recorded, so it is not known who asked." in markdown(nothing)
    assert nothing["requests"]["number"] == nothing["runs"]["crawls"] == 0
    assert {each["outcome"] for each in nothing["sources"]["outcomes"]} == set()


def test_every_text_of_an_entry_is_bounded_and_no_other_field_is_allowed(crawled):
    entries = sheet_of(crawled)["entries"]
    assert [each["name"] for each in entries["fields"]] == list(SCHEMA["properties"])
    assert entries["is_closed"]
    for name, field in SCHEMA["properties"].items():
        texts = field.get("items", field)
        assert texts.get("maxLength", entries["longest_text"] + 1) <= entries["longest_text"] or (
            "enum" in texts
        ), name


def test_the_command_writes_markdown_or_json(crawled, run_scrapy, tmp_path):
    def call(*arguments, state=crawled):
        return run_scrapy("datasheet", *arguments, settings={"WALSH_STATE_URL": state})

    page, data = tmp_path / "collection.md", tmp_path / "collection.json"
    done = call("-o", page)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"the data sheet of 2 runs written to {page}\n"
    assert page.read_text("utf-8").startswith("# How this data set was collected\n")
    assert call("-o", data).returncode == 0
    assert json.loads(data.read_bytes())["runs"]["crawls"] == 2
    assert json.loads(call("-o", "-", "--format", "json").stdout)["runs"]["crawls"] == 2
    again = call("-o", page)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    missing = call("-o", tmp_path / "new.md", state=f"sqlite:///{tmp_path}/none.sqlite3")
    assert missing.returncode == 1
    assert "there is no state" in missing.stderr
    assert not (tmp_path / "new.md").exists()
