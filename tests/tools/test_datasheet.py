"""`scrapy datasheet`: each number is that of the record, and what is not known is said."""

import hashlib
import json
from contextlib import closing
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator
from markdown_it import MarkdownIt
from scrapy.settings import Settings
from sqlalchemy import insert

from tests.docs.test_pages import blocks
from tests.helpers import ROOT
from tests.helpers.records import entry_of
from tests.helpers.sites import LIST_URL, blocklist, feed
from walsh_scrapy import identity
from walsh_scrapy.items import SCHEMA, EntryItem
from walsh_scrapy.options import Options
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.sources import Source, declaration
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import keep_copy
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.state.tables import acts, copies, denials, requests
from walsh_scrapy.state.texts import numbered
from walsh_scrapy.testing.simulation import DAY, simulate
from walsh_scrapy.testing.site import Site
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools.attest.attestation import attest
from walsh_scrapy.tools.attest.audit import audit
from walsh_scrapy.tools.datasheet.markdown import MOST_ROWS, markdown
from walsh_scrapy.tools.datasheet.sheet import build_sheet
from walsh_scrapy.tools.exits import CommandError

PAGE = ROOT / "docs" / "datasheet.md"
#: When the simulated runs begin: 2026-01-01; and when their record is read.
BEGIN = 1_767_225_600.0
NOW = BEGIN + 2 * DAY
OPTIONS = Options.from_settings(Settings())
AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +https://bot.example/; me@bot.example)"
OTHER = Options.from_settings(
    Settings(
        {
            "WALSH_USER_AGENT": AGENT,
            "WALSH_UA_TOKEN": "Example-Bot",
            "WALSH_BLOCKLIST_URL": "",
        }
    )
)
HOSTILE = "http://a.example/feed?`|*x*|<img src=//evil.example>[x](javascript:1)\u202e&token=abc"


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


def request(at, host="a.example", **columns):
    row = {"sent_at": at, "host": host, "url": f"http://{host}/feed", "gates": "", "status": 200}
    return (
        row
        | {"seconds": 0.5, "error": "", "run": 1, "purpose": "target"}
        | ({"pause": 1.0, "hold": 0.0, "retry_after": None, "robots": None} | columns)
    )


def denial(at, host, gate="robots", reason="line 2 of robots.txt says 'Disallow: /'"):
    url = f"http://{host}/feed"
    return {"at": at, "host": host, "url": url, "gate": gate, "reason": reason, "run": 1}


class Record:
    """A state that is written row by row."""

    def __init__(self, url):
        self.url = url

    def run(self, begun, *sources, options=OPTIONS, log_days=30, **columns):
        settings = {
            "user_agent": options.user_agent,
            "ua_token": options.ua_token,
            "blocklist_url": options.blocklist_url,
            "log_days": log_days,
        }
        given = {"spider": "feeds", "begun": begun, "versions": {"contract": "v|1"}} | columns
        with closing(State(self.url)) as state:
            run = state.runs.begin(
                RunRecord(settings=settings, **given), declaration(map(Source, sources))
            )
            state.runs.end(run, begun + 60.0, "finished", {})
        return run

    def source(self, url, *found, **columns):
        given = {"kind": "feed", "fetched_at": NOW - 60.0, "outcome": "fetched"} | columns
        with closing(State(self.url)) as state:
            state.sources.commit(SourceRecord(url=url, **given), found)

    def rows(self, table, *rows):
        with closing(State(self.url)) as state, state._database.write() as connection:
            if table is acts:
                written = list(rows)
            else:
                at = "sent_at" if table is requests else "at"
                written = [numbered(connection, row, row[at]) for row in rows]
            connection.run_each(insert(table), written)

    def copy(self, body):
        with closing(State(self.url)) as state, state._database.write() as connection:
            return keep_copy(connection, "robots", body, now=NOW, last=None)

    def without_copies(self):
        with closing(State(self.url)) as state, state._database.write() as connection:
            connection.run(copies.delete())


@pytest.fixture
def record(url):
    return Record(url)


def test_an_empty_state_is_no_collection(record):
    State(record.url).close()
    with pytest.raises(CommandError, match="the record is empty"):
        sheet_of(record.url)


def test_texts_of_strangers_are_shown_as_they_are_and_have_no_credentials(record):
    record.run(NOW - 3600.0, HOSTILE)
    record.source(HOSTILE, outcome="failed", status=500, detail="<b>me@a.example</b>\n# x | y")
    record.rows(denials, denial(NOW - 60.0, "a.example", reason="'Disallow: /*|**b**<i>' `"))
    sheet = sheet_of(record.url)
    text = markdown(sheet)
    assert "token=abc" not in text + json.dumps(sheet)
    assert "me@a.example" not in text + json.dumps(sheet)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    assert {each.type for each in tokens}.isdisjoint({"html_block", "blockquote_open", "fence"})
    cells = [each for each in tokens if each.type == "inline"]
    kinds = {child.type for each in cells for child in each.children}
    assert kinds == {"text", "code_inline", "softbreak"}
    shown = {"".join(child.content for child in each.children) for each in cells}
    (told,) = sheet["sources"]["in_trouble"]
    assert {printable(told["url"]), printable(told["detail"])} <= shown
    assert "'Disallow: /*|**b**<i>' `" in shown


def test_another_bot_is_named_by_its_own_runs(record):
    record.run(NOW - 2 * DAY, "http://a.example/feed")
    record.run(NOW - DAY, "http://a.example/feed", options=OTHER)
    ours, theirs = sheet_of(record.url, options=OTHER)["identities"]
    assert (ours["user_agent"], ours["contact"]) == (identity.USER_AGENT, identity.CONTACT)
    assert theirs == {
        "runs": 1,
        "first_run": 2,
        "last_run": 2,
        "contract": "v|1",
        "user_agent": AGENT,
        "token": "Example-Bot",
        "policy": "https://bot.example/",
        "contact": "me@bot.example",
        "blocklist": None,
        "signing_key": None,
    }
    late = markdown(sheet_of(record.url, since=NOW - 1.5 * DAY, options=OTHER))
    assert "Walsh-Research" not in late
    assert "| contact | me@bot.example |" in late
    assert "| contract | v\\|1 |" in late


def test_what_was_deleted_is_not_known(record):
    """Of a row that is older than the log only some others may be left."""
    record.run(NOW - 100 * DAY, "http://a.example/feed")
    last = record.run(NOW - DAY, "http://a.example/feed")
    kept_from = NOW - DAY + 60.0 - 30 * DAY
    record.rows(requests, request(kept_from - 1.0), request(NOW - DAY, run=last))
    record.rows(denials, denial(kept_from - 1.0, "a.example"), denial(NOW - DAY, "a.example"))
    sheet = sheet_of(record.url)
    assert sheet["log"] == {"days": [30], "deleted_before": "2025-12-03T00:01:00Z"}
    assert sheet["requests"]["number"] == 1
    assert sheet["kept_back"][0]["number"] == 1
    assert sheet["runs"]["crawls"] == 2, "runs are kept for good"
    told = "- What was asked for and kept back before 2025-12-03T00:01:00Z"
    assert told in markdown(sheet)
    late = sheet_of(record.url, since=NOW - 2 * DAY)
    assert late["log"]["deleted_before"] is None
    assert "- The record has all of the above." in markdown(late)


def test_a_run_belongs_to_the_period_of_its_rows(record):
    """A run may have begun before the period, and before the log that is left."""
    long = record.run(NOW - 100 * DAY, "http://a.example/feed")
    record.run(NOW - 50 * DAY, "http://b.example/feed")
    record.run(NOW - DAY, "http://c.example/feed")
    record.rows(requests, request(NOW - 3600.0, run=long))
    sheet = sheet_of(record.url, since=NOW - 2 * DAY)
    assert sheet["runs"]["crawls"] == 2
    assert sheet["sources"]["declared"] == 2
    assert sheet["log"]["deleted_before"] is None
    late = sheet_of(record.url, since=NOW - 600.0)
    assert late["runs"]["crawls"] == 0


def test_what_else_the_record_lacks_is_said(record):
    record.run(NOW - 3600.0, "http://a.example/feed")
    name = record.copy(b"User-agent: *\nCrawl-delay: 3\n")
    rows = [request(NOW - 3000.0 + 60.0 * number, robots=name) for number in range(3)]
    rows[1] |= {"seconds": None, "status": None}
    record.rows(requests, *rows)
    assert sheet_of(record.url)["pauses"]["crawl_delay"]["longest"] == 3.0
    record.without_copies()
    sheet = sheet_of(record.url)
    assert sheet["pauses"]["crawl_delay"]["longest"] is None
    assert sheet["pauses"]["crawl_delay"]["requests_not_known"] == 3
    assert (sheet["sources"]["declared"], sheet["sources"]["runs_not_known"]) == (0, 1)
    assert (sheet["pauses"]["kept"], sheet["pauses"]["not_known"]) == (1, 1)
    text = markdown(sheet)
    assert "- What 1 run declared: the copy is no longer kept." in text
    assert "- What robots.txt asked of 3 requests: its copy or run is missing." in text
    assert "- How 1 request ended." in text


def test_a_pause_that_was_too_short_is_counted(record):
    record.run(NOW - 3600.0, "http://a.example/feed")
    record.rows(
        requests,
        request(NOW - 100.0, status=503, hold=20.0, retry_after="20"),
        request(NOW - 90.0),
        request(NOW - 10.0, pause=4.0),
    )
    record.rows(
        acts,
        {"at": NOW - 50.0, "host": "a.example", "act": "pause", "seconds": 4.0, "reason": ""},
        {"at": NOW - 20.0, "host": "b.example", "act": "release", "seconds": 9.0, "reason": "x"},
        {"at": NOW - 9 * DAY, "host": "a.example", "act": "pause", "seconds": 7.0, "reason": ""},
    )
    pauses = sheet_of(record.url, since=NOW - DAY)["pauses"]
    assert (pauses["short"], pauses["kept"], pauses["first"]) == (1, 1, 1)
    assert pauses["least_beyond_asked"] == pytest.approx(-10.5)
    assert pauses["retry_after"] == {"answers": 1, "hosts": 1}
    assert pauses["holds"] == {"hosts": 1, "longest": 20.0}
    assert pauses["operator"] == {"pauses": 1, "hosts": 1, "longest": 4.0, "releases": 1}


def test_only_hosts_of_declared_sources_are_named(record):
    """Decision 36: where a redirect leads, no source is declared."""
    record.run(NOW - 3600.0, "http://a.example/feed")
    where = ("a.example", "b.example", "b.example", "c.example")
    record.rows(denials, *(denial(NOW - 60.0, host, "blocklist", f"of {host}") for host in where))
    record.rows(requests, request(NOW - 50.0, "d.example", url="http://d.example/feed"))
    sheet = sheet_of(record.url)
    assert sheet["kept_back"] == [
        {
            "gate": "blocklist",
            "number": 4,
            "hosts": [{"host": "a.example", "reason": "of a.example", "number": 1}],
            "not_named": {"hosts": 2, "number": 3},
        }
    ]
    text = markdown(sheet)
    assert "| blocklist | 2 hosts that no source declares |  | 3 |" in text
    assert not any(f"{name}.example" in text + json.dumps(sheet) for name in "bcd")


def test_sources_are_counted_by_their_last_visit_in_the_period(record):
    urls = [f"http://{name}.example/feed" for name in "abcd"]
    record.run(NOW - 3600.0, *urls)
    item = EntryItem(kind="feed", source=urls[0], title="One", tags=["x"])
    found = entry_of(urls[0], at=NOW - 60.0, item=json.dumps(item.to_dict()))
    record.source(urls[0], found)
    record.source(urls[1], outcome="refused", status=429)
    record.source(urls[2], fetched_at=NOW - 9 * DAY)
    record.source("http://gone.example/feed", outcome="gone", status=410)
    sheet = sheet_of(record.url, since=NOW - DAY)
    sources = sheet["sources"]
    assert (sources["declared"], sources["not_declared"]) == (4, 1)
    assert {each["outcome"]: each["number"] for each in sources["outcomes"]} == {
        "fetched": 1,
        "gone": 1,
        "not visited": 2,
        "refused": 1,
    }
    assert [each["status"] for each in sources["in_trouble"]] == [410, 429]
    filled = {each["name"] for each in sheet["entries"]["fields"] if each["filled"]}
    assert filled == {"kind", "source", "title", "tags"}


def test_a_long_list_ends_and_says_so(record):
    urls = [f"http://a.example/{number:03}" for number in range(MOST_ROWS + 2)]
    record.run(NOW - 3600.0, *urls)
    for url in urls:
        record.source(url, outcome="failed")
    sheet = sheet_of(record.url)
    assert len(sheet["sources"]["in_trouble"]) == MOST_ROWS + 2
    text = markdown(sheet)
    assert "… and 2 more" in text
    assert urls[-3] in text
    assert urls[-2] not in text
