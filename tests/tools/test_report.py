"""`walsh report`: the gaps it compares, what it says of sources, and a page that is safe."""

import json
import re
import sys
from contextlib import closing
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser

import pytest
from scrapy.settings import Settings
from sqlalchemy import update

from tests.helpers import records
from tests.helpers.records import (
    BEGUN,
    DAY,
    HOSTILE,
    NOW,
    RECORD,
    commit,
    entry_of,
    log_requests,
    page_of,
    write_state,
)
from tests.helpers.sites import feed, site
from walsh_scrapy.options import Options
from walsh_scrapy.policy.audit.pace import GapCheck
from walsh_scrapy.policy.audit.record import Basis, Documents
from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.state import State
from walsh_scrapy.state.hosts import HostSnapshot
from walsh_scrapy.state.log import SeenEntry, TimeSpan
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.tables import requests
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools import report
from walsh_scrapy.tools.report import (
    answers,
    build_news,
    build_report,
    choose_period,
    find_needs,
    host_lines,
    kind_of,
)
from walsh_scrapy.tools.report.findings import check_clock
from walsh_scrapy.tools.report.hostrows import COLUMNS, HostRow
from walsh_scrapy.tools.report.output import as_dict
from walsh_scrapy.tools.report.runrows import RunRow

URL = "http://a.example/feed"


def sent(at, seconds=0.5, host="a.example", **fields):
    given = {"duration": seconds, "run": 1, "delay": 1.0}
    return records.sent(at, f"http://{host}/feed", host, **given | fields)


def lines_of(records):
    judge = GapCheck(Basis({}, (), frozenset(), Documents({}.get)))
    return host_lines(records, judge, lambda record: record.run == 1)


def test_a_gap_begins_at_the_end_of_the_exchange_before_it():
    (line,) = lines_of([sent(100.0, 1.0), sent(102.5), sent(109.0)])
    assert [each.gap.kept for each in line.sent] == [None, 1.5, 6.0]
    assert (line.smallest.kept, line.longest.least, line.short) == (1.5, 1.0, 0)


def test_hosts_with_short_gaps_come_first_then_those_with_most_requests():
    many = [sent(number * 10.0, host="many.example") for number in range(5)]
    few = [sent(1.0, host="few.example"), sent(2.4, host="few.example")]
    lines = lines_of([*many, *few, sent(7.0)])
    assert [line.host for line in lines] == ["few.example", "many.example", "a.example"]


@pytest.fixture
def state(tmp_path):
    with closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        yield state


def test_the_period_is_the_last_crawl_unless_another_is_asked_for(state):
    nothing = choose_period(state, NOW)
    assert (nothing.runs, nothing.words) == ((), "No crawl is recorded")
    for begun in (NOW - 5 * DAY, NOW - DAY):
        run = state.runs.begin(RunRecord(spider="feeds", started_at=begun))
        state.runs.end(run, begun + 60.0, "finished", {})
    state.runs.begin(RunRecord(spider="feeds", command="parse", started_at=NOW))
    ahead = state.runs.begin(RunRecord(spider="feeds", started_at=NOW + 365 * DAY))
    jumped = state.runs.begin(RunRecord(spider="feeds", started_at=NOW - 60.0))
    state.runs.end(jumped, NOW + 365 * DAY, "finished", {})
    assert (ahead, jumped) == (4, 5)
    assert choose_period(state, NOW).span == TimeSpan(
        since=NOW - DAY, until=NOW - DAY + 60.0, run=2
    )
    assert [run.id for run in choose_period(state, NOW, NOW - 9 * DAY).runs] == [3, 2, 1]


def test_responses_are_counted_by_kind():
    statuses = (200, 304, 302, 429, 503, 404, 500, None)
    assert [kind_of(sent(0.0, status=status)) for status in statuses] == [
        *("full", "unchanged", "redirect", "refused", "refused", "client", "server", "none")
    ]
    assert kind_of(sent(0.0, duration=None, status=None)) == "open"
    found = answers([sent(0.0, status=None), sent(1.0, status=304), sent(2.0, status=304)])
    assert list(found.items()) == [("unchanged", 2), ("none", 1)]
    assert answers([]) == {}


def test_news_are_grouped_by_source_and_by_day_without_gaps():
    entry = '{"title": " A\\n title ", "url": "http://a.example/1", "source_title": "A"}'
    moments = {URL: [0.0, 1.0, 2 * DAY], "http://b.example/": [5.0]}
    news = build_news(moments, [SeenEntry(URL, 0.0, entry)], {"http://b.example/": "Bee"})
    assert news.days == [(date(1970, 1, 1), 3), (date(1970, 1, 2), 0), (date(1970, 1, 3), 1)]
    assert [(each.title, each.count) for each in news.sources] == [("A", 3), ("Bee", 1)]
    assert news.sources[0].headlines[0].title == "A title"


@pytest.mark.parametrize("item", ["no JSON", "[]", '{"title": 7}', '{"url": "javascript:x"}'])
def test_an_item_that_is_odd_hides_no_other(item):
    news = build_news({URL: [0.0]}, [SeenEntry(URL, 0.0, item)], {})
    assert news.sources[0].headlines[0].url == ""


CLOCK = check_clock({}, NOW)


def row_of(begun, last_sign=None, **record):
    run = RunRecord(spider="feeds", started_at=begun, **record)
    return RunRow(run, begun if last_sign is None else last_sign, NOW)


def test_what_needs_the_operator_names_runs_gaps_and_files():
    runs = [
        row_of(NOW - 600),  # it may still go on
        row_of(NOW - DAY, ended_at=NOW - DAY, finish_reason="state_failed"),
        row_of(NOW - 2 * DAY),
        row_of(NOW - 3 * DAY, ended_at=NOW - 3 * DAY, finish_reason="closespider_timeout"),
        row_of(NOW - 4 * DAY, ended_at=NOW - 4 * DAY, summary={"failed": 3}),
    ]
    killed = "did not end, last sign at 2026-05-21 06:00:00 UTC"
    problems = ["", "state_failed", killed, "", "no source was read"]
    assert [row.problem for row in runs] == problems
    lines = lines_of([sent(0.0), sent(1.0)])
    assert [need.text for need in find_needs(runs, lines, [], [], "line 3: no URL", CLOCK)] == [
        "3 runs went wrong, the last one: state_failed",
        "1 gap at 1 host shorter than the delay",
        "The sources file was not read: line 3: no URL",
    ]
    assert not [*find_needs(runs[:1], lines_of([sent(0.0), sent(9.0)]), [], [], "", CLOCK)]


def test_commands_and_a_wrong_clock_in_what_needs_the_operator():
    assert not [*find_needs([row_of(3.0, command="shell")], [], [], [], "", CLOCK)]
    (need,) = find_needs([], [], [], [], "", check_clock({"runs": NOW + 9 * DAY}, NOW))
    assert need.section == "runs"
    assert "times of runs until 2026-06-01 06:00:00 UTC lie in the future" in need.text
    assert "clock right?" in need.text


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({"hold_since": NOW - 2 * DAY, "hold_until": NOW + 60}, 1),
        ({"hold_since": NOW - 60, "hold_until": NOW + DAY - 120}, 0),
        ({"hold_since": NOW - 2 * DAY, "hold_until": NOW - 60}, 0),
        ({"hold_since": NOW, "hold_until": NOW + 2 * DAY, "hold_by": "unreachable"}, 0),
    ],
)
def test_a_hold_is_long_as_status_counts_it(fields, needs):
    row = HostRow("a.example", HostSnapshot(HostTimes(**fields), NOW), None)
    assert len([*find_needs([], [], [], [row], "", CLOCK)]) == needs


def test_a_host_in_trouble_is_named_with_its_delay():
    times = HostTimes(request_ended_at=NOW - 1.0, delay=8.0, server_errors=3)
    row = HostRow("ill.example", HostSnapshot(times, NOW), None)
    assert row.why == (
        "one request every 8 s; it answered 500, 502 or 504 3 times in a row, which slows it down"
    )
    assert as_dict(row, COLUMNS)["server_errors"] == 3
    later = HostRow("ill.example", HostSnapshot(times, NOW + 60.0), None)
    assert (later.until, later.why) == (None, row.why.partition("; ")[2])


def test_the_chart_library_leaves_the_imports_of_the_process_as_they_were():
    assert [finder for finder in sys.meta_path if type(finder).__module__ == "pygal"] == []


class Page(HTMLParser):
    """What matters of a page: its elements, their attributes, the texts of its links."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.opened = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "link", "img"}:
            self.opened.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.opened.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def filled(tmp_path):
    """Return a function that fills a state and declares its sources; it returns the state's URL."""

    def fill(*size):
        url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
        (tmp_path / "sources.txt").write_text("\n".join(write_state(url, *size)))
        return url

    return fill


@pytest.mark.parametrize(("requests", "hosts"), [(0, 1), (1, 1), (240, 6), (10_000, 206)])
def test_the_page_is_whole_and_loads_nothing(filled, tmp_path, requests, hosts):
    url = filled(requests, hosts)
    text = page_of(url, tmp_path / "sources.txt")
    page = Page(text)
    assert page.opened == []
    assert len(text.encode()) < 3_000_000
    assert not any(page.all(tag) for tag in ("script", "img", "link", "iframe", "object", "form"))
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name in ("style", "src") for name in attributes)
        assert attributes.get("href", "#").startswith(("#", "http://", "https://"))
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = (each["content"] for each in page.all("meta") if "http-equiv" in each)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(page.all("h1")) == 1
    assert len(page.all("table")) == text.count("<caption>")
    for svg in page.all("svg"):
        assert svg["role"] == "img"
        assert set(svg["aria-labelledby"].split()) <= set(ids)
    if requests >= 240:
        assert page.all("svg")
        assert "Problems for you" in text
    if requests == 0:
        assert "Nothing needs you" in text
        assert not re.search('id="(?:gaps|responses|waiting)"', text)


def test_each_run_says_whether_it_signed_and_by_which_key(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    with closing(State(url)) as state:
        for begun, settings in enumerate(({"signing_key": ""}, {"signing_key": "kQ-7<b>"})):
            state.runs.begin(RunRecord(spider="feeds", started_at=NOW + begun, settings=settings))
    text = page_of(url, tmp_path / "sources.txt", since=NOW)
    (runs,) = re.findall(r'<section id="runs".*?</section>', text, re.DOTALL)
    assert ">Https signed by<" in runs
    assert re.findall("<bdi>(kQ-7.*?|none)</bdi>", runs) == ["kQ-7&lt;b&gt;", "none"]


def test_texts_of_strangers_are_shown_and_not_obeyed(filled, tmp_path):
    url = filled(240, 6)
    text = page_of(url, tmp_path / "sources.txt")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\\u202egnippals" in text
    assert "{{ 7 * 7 }}" in text
    assert r"404 &lt;b&gt;Not Found&lt;/b&gt;" in text
    assert "<i>refused" not in text
    assert "javascript:" not in re.sub(r"<bdi>.*?</bdi>", "", text)
    assert not {"\x00", "\x1b", "\u202e", "\u2028"}.intersection(text)
    assert max(map(len, text.split("<"))) < 10_000  # no text is as long as the longest title
    assert len(HOSTILE[4]) == 1_000_000


def write_earlier(url, hold):
    """Write a request to the first host, two days before the run, of no run."""
    asked = {"host": "blog0.example", "url": "http://blog0.example/", "gates": ""}
    answered = {"status": None, "duration": 0.0, "hold": hold}
    with closing(State(url)) as state:
        log_requests(state, replace(RECORD, requested_at=BEGUN - 2 * DAY, **asked, **answered))


def test_a_gap_that_was_too_short_is_told_wherever_it_counts(filled, tmp_path):
    url = filled(30)
    with closing(State(url)) as state:
        moment = BEGUN + 70.0
        moved = update(requests).where(requests.c.requested_at == moment)
        moved = moved.values(requested_at=moment - 9.253)
        state._database.write(lambda connection: connection.execute(moved))
    text = page_of(url, tmp_path / "sources.txt")
    assert '<a href="#gaps">1 gap at 1 host shorter than the delay</a>' in text
    assert '<td class="number">0.49 s <span class="short">1 too short</span></td>' in text
    assert "no gap was shorter" not in text


def test_a_page_names_its_age_its_success_and_a_problem_with_its_source_first(filled, tmp_path):
    text = page_of(filled(240, 6), tmp_path / "sources.txt")
    assert re.search(r"As of <time [^>]+>.+?</time>, .+ after the last run ended\.", text)
    assert re.search(r"succeeded \(2xx, 304, redirects\)</dt><dd>\d+\.\d%</dd>", text)
    (card, *_) = re.findall(r'<section class="card".*?</section>', text, re.DOTALL)
    source, advice = card.index("<h3"), card.index("<p>")
    assert source < advice < card.index('<p class="command"><code>')


def first_gap(url):
    with closing(State(url)) as state:
        options = Options.from_settings(Settings())
        (line,) = build_report(state, options, "none.txt", choose_period(state, NOW), NOW).lines
    return line.sent[0].gap.kept


def test_a_long_log_is_cut_and_the_page_says_so(filled, tmp_path, monkeypatch):
    url = filled(30)
    write_earlier(url, hold=0.0)
    text = page_of(url, tmp_path / "sources.txt")
    assert "The log has more requests" not in text
    assert first_gap(url) == 2 * DAY
    monkeypatch.setattr(report, "MOST_READ", 20)
    text = page_of(url, tmp_path / "sources.txt")
    assert "The log has more requests" in text
    assert "<dd>20</dd>" in text
    assert first_gap(url) is None, "what was cut off came between"


def test_a_gap_since_an_earlier_run_is_compared_too(filled, tmp_path):
    url = filled(1)
    write_earlier(url, hold=3 * DAY)
    text = page_of(url, tmp_path / "sources.txt")
    assert "1 gap at 1 host shorter than the delay" in text
    assert '<td class="number">3 d (hold)</td>' in text
    assert "request to 1 host</dt><dd>1</dd>" in text


def test_a_sources_file_that_cannot_be_read_is_told_in_the_page(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    write_state(url, 1)
    assert "The sources file was not read: " in page_of(url, tmp_path / "none.toml")


def test_the_history_is_the_same_on_both_databases(url):
    write_state(url, 240, 6)
    with closing(State(url)) as state, state.log() as log:
        records = log.requests(TimeSpan(since=BEGUN + 100.0, until=BEGUN + 500.0), "blog1.example")
        assert {record.host for record in records} == {"blog1.example"}
        assert [record.requested_at - BEGUN for record in records] == [*range(130, 500, 60)]
        assert (
            log.requests(TimeSpan(since=BEGUN), "blog1.example", 3)[-1].requested_at
            == BEGUN + 2350.0
        )
        before = log.requests_before(BEGUN + 125.0, None)
        assert [each.requested_at - BEGUN for each in before] == [120.0, 70, 80, 90, 100, 110]
        assert log.requests_before(BEGUN + 125.0, "blog1.example") == before[1:2]
        span = TimeSpan(since=BEGUN, run=1)
        assert sum(map(len, log.first_seen(span).values())) == 24
        assert log.first_seen(TimeSpan(since=BEGUN, run=2)) == {}
        at_once = log.first_seen(TimeSpan(since=BEGUN, until=BEGUN))
        assert at_once.keys() <= log.first_seen(span).keys()
        assert len(log.newest(span, 2, 100)) == 12
        assert len(log.newest(span, 2, 5)) == 5


def test_addresses_and_credentials_are_in_no_report(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    source = "http://a.example/feed?token=s3cr3t&page=2"
    (tmp_path / "sources.txt").write_text(source)
    item = {"title": "by jo@a.example", "url": source, "source_title": "jo@a.example's"}
    with closing(State(url)) as state:
        entry = entry_of(source, "1", at=NOW - 60, item=json.dumps(item))
        commit(state, SourceRecord(url=source, kind="feed", visited_at=NOW - 60), [entry])
        commit(state, SourceRecord(url=source, kind="feed", outcome="failed", failures=3))
    text = page_of(url, tmp_path / "sources.txt", since=NOW - 3600)
    assert "s3cr3t" not in text
    assert "jo@" not in text
    assert "token=…&amp;page=2" in text
    assert "by …" in text


# `walsh report`: a page about real runs, whole or not at all, and one line about it.

SOURCES = ["http://blog.example/feed", "http://slow.example/feed", "http://lost.example/feed"]


#: Host, smallest gap, delay asked for and by what, of a row in the page.
PAUSES = re.compile(
    r'<bdi>([\w.]+)</bdi></th>\n<td class="number">([\d.]+) s</td>'
    r'<td class="number">([\d.]+) s</td><td class="number">([\d.]+) s</td>'
)


def test_the_report_of_a_run_compares_the_gaps_that_servers_saw(
    loopback_web, crawl, again, on_state, tmp_path
):
    def report(*arguments):
        result = on_state("report", *arguments)
        assert result.returncode == 0, result.stderr
        return result

    web = loopback_web(
        site("blog.example", feed=feed(posts=["R&D", "Two"])),
        site("slow.example", "User-agent: *\nCrawl-delay: 2\n", feed=[feed(), Reply(status=304)]),
        site("lost.example", feed=Reply("", status=404)),
    )
    write_sources(tmp_path / "sources.txt", SOURCES)
    crawl(web, sources=SOURCES)
    page = tmp_path / "report.html"
    result = report("-o", page)
    line = rf"Run 1 of feeds, .* UTC: \d+ KiB written to {re.escape(str(page))}\n"
    assert re.fullmatch(line, result.stderr)
    assert result.stdout == ""
    text = page.read_text("utf-8")
    assert "R&amp;D</bdi>" in text
    assert "1 source with problems: 1 failing" in text
    assert "discover http://lost.example/feed" in text
    assert 'class="short"' not in text
    rows = {row[0]: row[1:] for row in re.findall(PAUSES, text)}
    assert rows.keys() == {"blog.example", "slow.example", "lost.example"}
    kept, asked, longest = rows["slow.example"]
    assert (asked, longest) == ("2.00", "2.00")
    assert 2.0 <= float(kept) < 60.0
    assert rows["blog.example"][1:] == ("1.00", "1.00")
    # A second run, which nothing new came of; and both of them.
    again(web, sources=SOURCES)
    second = report("-o", "-").stdout
    assert '<section id="new"' not in second
    assert "<dt>unchanged (304)</dt><dd>0</dd>" not in second
    both = report("-o", "-", "--since", "1d").stdout
    assert 'class="short"' not in both
    assert both.count('<section id="runs"') == 1
