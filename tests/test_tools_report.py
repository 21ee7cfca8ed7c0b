"""`scrapy report`: the pauses it compares, what it says of sources, and a page that is safe."""

import re
import sys
from contextlib import closing
from datetime import date
from html.parser import HTMLParser

import pytest
from scrapy.settings import Settings
from sqlalchemy import update

from tests.reportstate import BEGUN, DAY, HOSTILE, MONTH, NOW, SETTINGS, write_state
from walsh_scrapy.options import Options
from walsh_scrapy.policy.robots.access import RobotsCopy
from walsh_scrapy.sources import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.history import SeenEntry, Span, Visit
from walsh_scrapy.state.requests import RequestRecord
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.state.tables import requests
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.report import report
from walsh_scrapy.tools.report.charts import MOST_POINTS, thinned
from walsh_scrapy.tools.report.needs import find_needs
from walsh_scrapy.tools.report.news import build_news
from walsh_scrapy.tools.report.page import render
from walsh_scrapy.tools.report.period import choose_period
from walsh_scrapy.tools.report.report import build_report
from walsh_scrapy.tools.report.responses import gates, kind_of, shares
from walsh_scrapy.tools.report.spacing import Asked, Sent, Terms, asked_spacing, host_lines
from walsh_scrapy.tools.report.terms import KnownTerms
from walsh_scrapy.tools.report.trouble import find_troubles
from walsh_scrapy.tools.sources.nextvisit import next_visit
from walsh_scrapy.tools.sources.overview import SourceRow

OPTIONS = Options.from_settings(Settings())
URL = "http://a.example/feed"


def sent(at, seconds=0.5, host="a.example", **fields):
    given = {"url": URL, "gates": "", "status": 200, "run": 1} | fields
    return RequestRecord(sent_at=at, host=host, seconds=seconds, **given)


def lines_of(records, asked=1.0, included=lambda record: record.run == 1):
    return host_lines(records, lambda _before, _record: Asked(asked, "settings"), included)


def test_a_pause_begins_at_the_end_of_the_exchange_before_it():
    (line,) = lines_of([sent(100.0, 2.0), sent(103.5), sent(110.0)])
    assert [each.kept for each in line.sent] == [None, 1.5, 6.0]
    assert (line.smallest.kept, line.asked, line.short) == (1.5, Asked(1.0, "settings"), 0)


def test_a_pause_counts_from_the_request_of_another_run():
    (line,) = lines_of([sent(100.0, run=1), sent(101.0, run=2), sent(102.0, run=1)])
    assert [each.kept for each in line.sent] == [None, 0.5]
    assert line.short == 1


def test_hosts_with_short_pauses_come_first_then_those_with_most_requests():
    many = [sent(number * 10.0, host="many.example") for number in range(5)]
    few = [sent(1.0, host="few.example"), sent(2.4, host="few.example")]
    lines = lines_of(sorted([*many, *few, sent(7.0)], key=lambda each: each.sent_at))
    assert [line.host for line in lines] == ["few.example", "many.example", "a.example"]


def test_the_last_requests_are_listed_and_those_that_came_too_soon():
    (line,) = lines_of([sent(at) for at in (0.0, 1.0, 9.0, 10.0, 20.0, 30.0)])
    assert [each.record.sent_at for each in line.listed(2)] == [1.0, 10.0, 20.0, 30.0]
    assert [each.record.sent_at for each in line.listed(1)] == [10.0, 30.0]
    assert line.listed(9) == line.sent


@pytest.mark.parametrize(
    ("latency", "robots", "pause", "asked"),
    [
        (0.2, 0.0, 0.0, Asked(1.0, "settings")),
        (3.0, 0.0, 0.0, Asked(3.0, "a slow answer")),
        (3.0, 5.0, 0.0, Asked(5.0, "robots.txt")),
        (3.0, 5.0, 60.0, Asked(60.0, "your pause")),
        (0.2, 0.5, 0.5, Asked(1.0, "settings")),
    ],
)
def test_what_is_asked_for_is_the_largest(latency, robots, pause, asked):
    assert asked_spacing(Terms(1.0, 1.0), latency, robots, pause) == asked


@pytest.fixture
def state(tmp_path):
    with closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        yield state


def test_terms_are_those_of_the_time_of_a_request(state):
    state.ledger.pause("a.example", 40.0, "")
    paused_at = state.history.pauses()["a.example"][0].at
    body = b"User-agent: *\nCrawl-delay: 20\n"
    state.robots.keep("http://a.example:80", RobotsCopy(paused_at - 100.0, 200, body))
    run = RunRecord(id=1, spider="feeds", begun=0.0, settings=SETTINGS | {"min_interval": 3.0})
    asked = KnownTerms(state, OPTIONS, [run])
    before, gates = sent(0.0), "blocklist: not listed; robots: allowed"
    # Before the copy was read, for robots.txt itself, after the copy, after the pause.
    assert asked(before, sent(paused_at - 200.0, gates=gates)).seconds == 3.0
    assert asked(before, sent(paused_at - 50.0)).seconds == 3.0
    assert asked(before, sent(paused_at - 50.0, gates=gates)) == Asked(20.0, "robots.txt")
    assert asked(before, sent(paused_at + 1.0, gates=gates)) == Asked(40.0, "your pause")
    assert asked(before, sent(paused_at - 200.0, run=9)).seconds == OPTIONS.min_interval


def test_the_period_is_the_last_run_unless_another_is_asked_for(state):
    nothing = choose_period(state, NOW, MONTH)
    assert (nothing.runs, nothing.words) == ((), "No run yet")
    for begun in (NOW - 5 * DAY, NOW - DAY):
        run = state.runs.begin(RunRecord(spider="feeds", begun=begun))
        state.runs.end(run, begun + 60.0, "finished", {})
    assert choose_period(state, NOW, MONTH).span == Span(
        since=NOW - DAY, until=NOW - DAY + 60.0, run=2
    )
    assert choose_period(state, NOW, MONTH, run=1).span.run == 1
    assert [run.id for run in choose_period(state, NOW, MONTH, since=NOW - 9 * DAY).runs] == [
        2,
        1,
    ]
    of_host = choose_period(state, NOW, MONTH, host="a.example")
    assert of_host.span == Span(since=NOW - MONTH)
    with pytest.raises(CommandError, match="no run 7 in the state; the last one is run 2"):
        choose_period(state, NOW, MONTH, run=7)


def test_responses_are_counted_by_kind():
    assert [kind_of(status) for status in (200, 304, 302, 429, 503, 404, 500, None)] == [
        *("full", "unchanged", "redirect", "refused", "refused", "client", "server", "none")
    ]
    found = shares([sent(0.0, status=304), sent(1.0, status=304), sent(2.0, status=None)])
    assert [(share.kind, share.number, round(share.percent)) for share in found] == [
        ("unchanged", 2, 67),
        ("none", 1, 33),
    ]
    assert shares([]) == []


def test_gates_count_what_they_let_through_and_what_runs_say_they_denied():
    records = [sent(0.0, gates="robots: allowed; blocklist: not listed"), sent(1.0, gates="")]
    run = RunRecord(spider="feeds", begun=0.0, summary={"denied": {"scope": 2, "odd": "x"}})
    found = gates(records, [run, RunRecord(spider="x", begun=0.0)])
    assert [(gate.name, gate.passed, gate.denied) for gate in found] == [
        ("blocklist", 1, 0),
        ("scope", 0, 2),
        ("robots", 1, 0),
    ]


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


def row_of(**fields):
    source = Source(URL)
    record = SourceRecord(**{"url": URL, "kind": "feed", "fetched_at": NOW, "due_at": NOW} | fields)
    return SourceRow(source, record, next_visit(record, source, DAY, NOW), 0, None, "a.example")


@pytest.mark.parametrize(
    ("fields", "what", "advice", "command"),
    [
        ({"outcome": "gone", "due_at": float("inf")}, "gone", "If it is back", "sources resume"),
        ({"failures": 1, "status": 404}, "failing", "Nothing is at this address", "discover"),
        ({"failures": 1, "status": 403}, "failing", "does not want this", ""),
        ({"failures": 1, "status": 429}, "failing", "asked to wait", ""),
        ({"failures": 1, "status": 500}, "failing", "Nothing to do yet", ""),
        ({"failures": 5, "status": 500}, "failing", "Write to its owner", ""),
        ({"failures": 1, "status": 200}, "failing", "could not be read as a feed", "discover"),
        ({"failures": 1}, "failing", "did not answer. Nothing to do yet", ""),
        ({"failures": 5}, "failing", "Check its address", "discover"),
        ({"outcome": "denied by blocklist"}, "denied", "Its owner opted out", "mayfetch"),
        ({"outcome": "denied by some"}, "denied", "Ask which gate", "mayfetch"),
        (
            {"moved_to": "http://b.example/", "moved_since": 1.0, "move_settled": True},
            *("moved", "Write the new address", ""),
        ),
    ],
)
def test_each_trouble_says_what_to_do(fields, what, advice, command):
    (found,) = find_troubles([row_of(**fields), row_of(outcome="fetched")], {})
    assert found.what == what
    assert advice in found.advice
    assert (command in found.command) if command else found.command == ""


def test_a_failing_source_fails_since_the_first_of_its_visits_in_a_row():
    visits = [Visit(URL, number, NOW - number * DAY) for number in range(4)]

    def since(failures, seen):
        (found,) = find_troubles([row_of(failures=failures, status=404)], {URL: seen})
        return found.since

    assert since(3, visits) == "since 2026-05-21 06:00:00 UTC"
    assert since(9, visits) == "since 2026-05-20 06:00:00 UTC or before"
    assert since(1, []) == "last seen 2026-05-23 06:00:00 UTC"


def test_what_needs_the_operator_names_runs_pauses_and_files():
    runs = [
        RunRecord(spider="feeds", begun=2.0),
        RunRecord(spider="feeds", begun=1.0, ended=1.5, how="state_failed"),
        RunRecord(spider="feeds", begun=0.0),
    ]
    lines = lines_of([sent(0.0), sent(1.0)])
    assert [need.text for need in find_needs(runs, lines, [], [], "line 3: no URL")] == [
        "1 run ended early, the last one: state_failed",
        "1 run did not end in order, or still go on",
        "1 pause at 1 host was shorter than asked for",
        "The sources file was not read: line 3: no URL",
    ]
    assert find_needs(runs[:1], lines_of([sent(0.0), sent(9.0)]), [], [], "") == []


def test_the_chart_library_leaves_the_imports_of_the_process_as_they_were():
    assert [finder for finder in sys.meta_path if type(finder).__module__ == "pygal"] == []


def test_a_thinned_time_line_keeps_the_pause_with_the_least_to_spare():
    asked = Asked(1.0, "settings")
    line = [Sent(sent(number), 5.0, asked) for number in range(1000)]
    line[617] = Sent(sent(617.0), 0.2, asked)
    thin = thinned(line)
    assert len(thin) == MOST_POINTS
    assert line[617] in thin
    assert thinned(line[:7]) == line[:7]


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


def page_of(url, sources_file, **period):
    with closing(State(url)) as state:
        chosen = choose_period(state, NOW, MONTH, **period)
        return render(build_report(state, OPTIONS, str(sources_file), chosen, NOW))


@pytest.mark.parametrize(("requests", "hosts"), [(0, 1), (1, 1), (240, 6), (10_000, 206)])
def test_the_page_is_whole_and_loads_nothing(tmp_path, requests, hosts):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    (tmp_path / "sources.txt").write_text("\n".join(write_state(url, requests, hosts)))
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
        assert "What needs you" in text
    if requests == 0:
        assert "Nothing needs you" in text
        assert "No request was sent." in text


def test_texts_of_strangers_are_shown_and_not_obeyed(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    (tmp_path / "sources.txt").write_text("\n".join(write_state(url, 240, 6)))
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


def test_a_pause_that_was_too_short_is_told_wherever_it_counts(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    (tmp_path / "sources.txt").write_text("\n".join(write_state(url, 30)))
    with closing(State(url)) as state, state._database.write() as connection:
        late = state.history.requests(0.0, None, None, 30)
        (moment,) = [each.sent_at for number, each in enumerate(late) if number == 7]
        moved = update(requests).where(requests.c.sent_at == moment)
        connection.execute(moved.values(sent_at=moment - 9.253))
    text = page_of(url, tmp_path / "sources.txt")
    assert '<a href="#pauses">1 pause at 1 host was shorter than asked for</a>' in text
    assert "smallest pause seen, at blog0.example</dt><dd>0.49 s</dd>" in text
    assert '<td class="number short">0.49 s too short</td>' in text
    assert "every pause was as long as asked for" not in text


def test_a_long_log_is_cut_and_the_page_says_so(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    (tmp_path / "sources.txt").write_text("\n".join(write_state(url, 30)))
    assert "The log has more requests" not in page_of(url, tmp_path / "sources.txt")
    monkeypatch.setattr(report, "MOST_READ", 20)
    text = page_of(url, tmp_path / "sources.txt")
    assert "The log has more requests" in text
    assert "<dd>20</dd>" in text


def test_a_report_of_one_host_has_no_other(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    (tmp_path / "sources.txt").write_text("\n".join(write_state(url, 240, 6)))
    text = page_of(url, tmp_path / "sources.txt", host="blog2.example")
    assert "blog2.example" in text
    assert "blog1.example" not in text
    assert "410" in text  # its source is gone


def test_a_sources_file_that_cannot_be_read_is_told_in_the_page(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    write_state(url, 1)
    assert "The sources file was not read: " in page_of(url, tmp_path / "none.toml")


def test_the_history_is_the_same_on_both_databases(url):
    write_state(url, 240, 6)
    with closing(State(url)) as state:
        history = state.history
        records = history.requests(BEGUN + 100.0, BEGUN + 500.0, "blog1.example", 100)
        assert {record.host for record in records} == {"blog1.example"}
        assert [record.sent_at - BEGUN for record in records] == [
            130.0,
            190,
            250,
            310,
            370,
            430,
            490,
        ]
        assert history.requests(BEGUN, None, "blog1.example", 3)[-1].sent_at == BEGUN + 2350.0
        span = Span(since=BEGUN, run=1)
        assert sum(map(len, history.moments(span).values())) == 24
        assert history.moments(Span(since=BEGUN, run=2)) == {}
        assert (
            history.moments(Span(since=BEGUN, until=BEGUN)).keys() <= history.moments(span).keys()
        )
        assert len(history.newest(span, 2, 100)) == 12
        assert len(history.newest(span, 2, 5)) == 5
        assert {seen.source for seen in history.newest(span, 9, 99, [URL])} == set()
        (visit,) = history.visits(["http://blog1.example/feed", URL])
        assert visit == Visit("http://blog1.example/feed", 1, BEGUN + 70.0)
