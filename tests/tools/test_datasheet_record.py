"""`scrapy datasheet`: each number is that of the record, and what is not known is said."""

import json
from contextlib import closing

import pytest
from markdown_it import MarkdownIt
from scrapy.settings import Settings
from sqlalchemy import insert, select

from tests.helpers.records import commit, entry_of
from tests.tools.test_datasheet import NOW, OPTIONS, sheet_of
from walsh_scrapy import identity
from walsh_scrapy.items import EntryItem
from walsh_scrapy.options import Options
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.sources import Source, declaration
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import keep_copy
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.state.tables import acts, copies, denials, requests
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.tools.datasheet.markdown import MOST_ROWS, markdown
from walsh_scrapy.tools.exits import CommandError

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
            commit(state, SourceRecord(url=url, **given), found)

    def rows(self, table, *rows):
        with closing(State(self.url)) as state, state._database.write() as connection:
            numbers = dict(connection.all(select(copies.c.hash, copies.c.id)))
            named = [name for name in ("robots", "blocklist") if name in table.c]
            written = [
                row | {name: numbers.get(row[name]) for name in named if name in row}
                for row in rows
            ]
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
    assert told not in markdown(late)
    assert "- What came into a source and left it again between two visits." in markdown(late)


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


def test_a_source_that_was_never_read_is_named(record):
    """Its host asks to wait whenever a run comes by: who reads the sheet wants to know that."""
    kept, busy, never = (f"http://{name}.example/feed" for name in ("kept", "busy", "never"))
    record.run(NOW - 3600.0, kept, busy, never)
    record.source(kept)
    why = "its site answers 429"
    record.source(busy, fetched_at=None, outcome="refused", status=429, detail=why)
    record.rows(requests, request(NOW - 60.0, "busy.example", source=busy, status=429))
    sources = sheet_of(record.url)["sources"]
    assert [(each["url"], each["outcome"], each["detail"]) for each in sources["in_trouble"]] == [
        (never, "not visited", None),
        (busy, "refused", why),
    ]


def test_a_source_that_was_rewritten_is_not_called_unvisited(record):
    old, new = "http://old.example/feed", "http://new.example/feed"
    record.run(NOW - 3600.0, old)
    record.rows(requests, request(NOW - 60.0, "old.example", source=old))
    record.source(new)
    sheet = sheet_of(record.url)
    outcomes = {each["outcome"]: each["number"] for each in sheet["sources"]["outcomes"]}
    assert outcomes == {"fetched": 1, "not known": 1}
    assert sheet["sources"]["in_trouble"] == []
    assert "- What came of 1 source that requests were sent for: the state" in markdown(sheet)


def test_a_source_that_was_forgotten_is_in_no_trouble(record):
    """Its record stays, empty, while it has entries."""
    asked, undeclared = "http://asked.example/feed", "http://undeclared.example/feed"
    record.run(NOW - 3600.0, asked)
    record.rows(requests, request(NOW - 60.0, "asked.example", source=asked))
    for url in (asked, undeclared):
        record.source(url, entry_of(url, at=NOW - 60.0), fetched_at=None, outcome="")
    sources = sheet_of(record.url)["sources"]
    assert (sources["not_declared"], sources["in_trouble"]) == (0, [])
    assert [each["outcome"] for each in sources["outcomes"]] == ["not known"]


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
    assert [each["status"] for each in sources["in_trouble"]] == [410, None, 429]
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
