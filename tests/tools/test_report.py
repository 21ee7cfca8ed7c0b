"""`walsh report`: the gaps it compares, the rows it shows, and a page that is safe."""

import json
import re
from collections import Counter
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from scrapy.settings import Settings
from sqlalchemy import update

from tests.helpers.records import (
    BEGUN,
    DAY,
    HOSTILE,
    NOW,
    RECORD,
    commit,
    entry_of,
    hold,
    keep_robots,
    log_requests,
    page_of,
    report_of,
    write_state,
)
from tests.helpers.sites import feed, site
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.options import Options
from walsh_scrapy.policy.problems import Severity, problems_of
from walsh_scrapy.policy.robots.copy import RobotsCopy
from walsh_scrapy.state import State
from walsh_scrapy.state.evidence import TimeSpan
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.runstore import RunRecord
from walsh_scrapy.state.tables import requests
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.testing.web import Reply
from walsh_scrapy.tools import report
from walsh_scrapy.tools.report import (
    choose_period,
    compare,
    draw_bars,
    group_days,
    name_answer,
)

URL = "http://a.example/feed"


def gap(seconds, host="a.example", required=1.0, problem=None):
    """A row of `request_gaps`."""
    row = {"host": host, "gap": seconds, "required": required, "problem": problem}
    return row | {"requested_at": "2026-05-23T06:00:00Z", "by_hold": False}


def test_gaps_are_counted_by_multiples_of_the_required_gap():
    (host,), gaps = compare([gap(6.0), gap(1.5), gap(None), gap(4.0, required=3.0)])
    assert (host["requests"], host["shortest"]["gap"]) == (4, 1.5)
    assert host["longest"]["required"] == 3.0
    assert gaps == {"x15": 1, "x5": 1, "x1": 1}


def test_hosts_with_short_gaps_come_first_then_by_requests():
    many = [gap(10.0, "many.example") for _ in range(5)]
    few = [gap(None, "few.example"), gap(0.9, "few.example", problem="too short")]
    hosts, gaps = compare([*many, *few, gap(7.0)])
    assert [row["host"] for row in hosts] == ["few.example", "many.example", "a.example"]
    assert [row["too_short"] for row in hosts] == [1, 0, 0]
    assert gaps["short"] == 1


def gather_report(state):
    period = choose_period(state, NOW)
    problems = problems_of(state.rows("problem_facts"))
    return report.gather(state, Options.from_settings(Settings()), problems, period, NOW)


@pytest.fixture
def state(tmp_path):
    with closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        yield state


def test_period_is_the_last_crawl_by_default(state):
    assert choose_period(state, NOW).words == "No crawl is recorded"
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
    assert choose_period(state, NOW, NOW - 9 * DAY).span.since == NOW - 9 * DAY


def test_next_visits_of_the_report_wait_for_visit_time(tmp_path):
    url, file = f"sqlite:///{tmp_path / 'state.sqlite3'}", tmp_path / "sources.txt"
    file.write_text(f"{URL}\n")
    with closing(State(url)) as state:
        failed = {"outcome": "failed", "failures": 1, "visited_at": NOW - 9 * DAY}
        commit(state, SourceRecord(url=URL, kind="feed", **failed))
        Stores(state).sync(file, NOW)
        rules = b"User-agent: *\nVisit-time: 0700-0845\n"
        keep_robots(state, "http://a.example:80", RobotsCopy(NOW, 200, rules))
    (row,) = report_of(url, file)["failing"].rows
    assert row["next_visit"] == "2026-05-23T07:00:00Z"


def test_each_status_has_its_kind_of_answer():
    statuses = (200, 304, 302, 429, 503, 404, 500, None)
    assert [name_answer(status, "target", is_open=False) for status in statuses] == [
        *("full", "unchanged", "redirect", "refused", "refused", "client", "server", "none")
    ]
    assert name_answer(None, "target", is_open=True) == "open"


def test_a_missing_robots_txt_is_an_answer(state):
    missing = replace(
        RECORD, requested_at=NOW - 60.0, status=404, url="http://a.example/robots.txt"
    )
    run = state.runs.begin(RunRecord(spider="feeds", started_at=NOW - 61.0))
    robots, refused = (replace(missing, run=run, purpose=of) for of in ("robots", "target"))
    log_requests(state, robots, replace(robots, status=429), refused)
    state.runs.end(run, NOW, "finished", {})
    report = gather_report(state)
    assert report["answers"] == {"refused": 1, "absent": 1, "client": 1}
    assert report["success"] == pytest.approx(1 / 3)


def test_news_have_the_name_of_the_sources_file(state, tmp_path):
    run = state.runs.begin(RunRecord(spider="feeds", started_at=NOW - 61.0))
    item = json.dumps({"kind": "feed", "source": URL, "source_title": "Title of the feed"})
    commit(
        state,
        SourceRecord(url=URL, kind="feed"),
        [entry_of(URL, at=NOW - 60.0, item=item, run=run)],
    )
    state.runs.end(run, NOW, "finished", {})
    assert [row["name"] for row in gather_report(state)["news"].rows] == ["Title of the feed"]
    (tmp_path / "sources.toml").write_text(f'[[source]]\nurl = "{URL}"\nname = "My name"\n')
    Stores(state).sync(tmp_path / "sources.toml", NOW)
    assert [row["name"] for row in gather_report(state)["news"].rows] == ["My name"]


def test_changed_titles_stand_beside_the_titles_before(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    with closing(State(url)) as state:
        source = SourceRecord(url=URL, kind="feed")
        for title, at in (("<b>Old</b>", NOW - DAY), ("RETRACTED: Old", NOW - 60.0)):
            item = json.dumps({"title": title, "url": "http://a.example/1"})
            commit(state, source, [entry_of(URL, at=at, item=item)])
    (row,) = report_of(url, since=NOW - 3600)["changes"].rows
    assert (row["title"], row["previous_title"]) == ("RETRACTED: Old", "<b>Old</b>")
    page = page_of(url, since=NOW - 3600)
    assert "RETRACTED: Old" in page
    assert "before: <bdi>&lt;b&gt;Old&lt;/b&gt;</bdi>" in page
    assert report_of(url, since=NOW - 30.0)["changes"].rows == []


def test_days_without_requests_count_and_many_are_months():
    near = {"2026-05-20": Counter(full=2), "2026-05-22": Counter(none=1)}
    unit, groups = group_days(near)
    assert (unit, list(groups)) == ("day", ["2026-05-20", "2026-05-21", "2026-05-22"])
    unit, groups = group_days(near | {"2025-01-31": Counter(full=1), "2026-05-01": Counter(full=5)})
    assert unit == "month"
    assert groups == {"2025-01": Counter(full=1), "2026-05": Counter(full=7, none=1)}
    assert group_days({}) == ("day", {})


def test_the_longest_bar_fills_the_picture_and_none_is_invisible():
    long, short, empty = draw_bars({"a": {"full": 9_000, "none": 999}, "b": {"full": 1}, "c": {}})
    assert (long.total, long.end) == (9_999, 88.0)
    assert [name for name, _, _ in long.parts] == ["full", "none"]
    assert short.parts[0][2] == 0.5
    assert (empty.parts, empty.total) == ([], 0)


class Page(HTMLParser):
    """What matters of a page: its elements, their attributes, the levels of its headings."""

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
    """Return a function that fills a state, and returns its URL and the file of its sources."""

    def fill(*size):
        url, file = f"sqlite:///{tmp_path / 'state.sqlite3'}", tmp_path / "sources.txt"
        file.write_text("\n".join(write_state(url, *size)))
        sync(url, file)
        return url, file

    return fill


def sync(url, file):
    with closing(State(url)) as state:
        Stores(state).sync(file, NOW)


SIZES = pytest.mark.parametrize(
    ("requests", "hosts"), [(0, 1), (1, 1), (240, 6), (10_000, 206)], ids=str
)


@SIZES
def test_the_page_is_whole_and_loads_nothing(filled, requests, hosts):
    text = page_of(*filled(requests, hosts))
    page = Page(text)
    assert page.opened == []
    assert len(text.encode()) < 1_000_000
    assert not any(page.all(tag) for tag in ("script", "img", "link", "iframe", "object", "form"))
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name in ("style", "src") for name in attributes)
        assert attributes.get("href", "#").startswith(("#", "http://", "https://"))
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = (meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


@SIZES
def test_a_screen_reader_gets_headings_captions_and_titles(filled, requests, hosts):
    page = Page(page_of(*filled(requests, hosts)))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {
        attributes["href"][1:] for attributes in page.all("a") if attributes["href"][0] == "#"
    } <= {*ids}
    levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(attributes["scope"] in ("col", "row") for attributes in page.all("th"))
    pictures = [attributes for attributes in page.all("svg") if "aria-hidden" not in attributes]
    assert len(pictures) == min(requests, 2)
    for attributes in pictures:
        assert attributes["role"] == "img"
        assert set(attributes["aria-labelledby"].split()) <= set(ids)


def test_empty_page_has_no_empty_section(filled):
    text = page_of(*filled(0))
    assert "Nothing needs your attention" in text
    assert not re.search('id="(?:gaps|requests|waiting|new)"', text)


def test_problems_come_first_with_links_to_their_section(filled):
    url, file = filled(240, 6)
    with closing(State(url, clock=lambda: NOW)) as state:
        hold(state, "blog1.example", 2 * DAY, "retry-after", 429)
    text = page_of(url, file)
    assert "Nothing needs your attention" in text, "these are notes"
    with closing(State(url, clock=lambda: NOW)) as state:
        run = state.runs.begin(RunRecord(spider="feeds", started_at=NOW - 60.0))
        state.runs.end(run, NOW - 30.0, "finished", {"problem": "nothing_read"})
    text = page_of(url, file, since=NOW - 9 * DAY)
    (first, *_) = re.findall(r'<h2 id="[^"]+">(.+?)</h2>', text)
    assert first == "Needs your attention"
    (needs,) = re.findall(r'<section class="needs".*?</section>', text, re.DOTALL)
    assert "blog1.example" in needs
    assert 'href="#failing"' in needs
    assert text.index('id="failing"') < text.index('id="waiting"') < text.index('id="new"')


def test_times_are_read_to_the_minute(filled):
    url, file = filled(240, 6)
    with closing(State(url, clock=lambda: NOW)) as state:
        hold(state, "blog1.example", 2 * DAY, "retry-after", 429)
    words = re.sub("<[^>]*>", "", page_of(url, file))
    assert re.search(r"until [-\d]{10} \d\d:\d\d\b", words)
    assert not re.search(r"\dT\d\d:\d\d:\d\dZ", words)


def test_sources_with_a_problem_come_first_with_their_advice(filled):
    url, file = filled(240, 6)
    report = report_of(url, file)
    problems = [row["problem"] for row in report["failing"].rows]
    assert problems == ["gone", "failing", "denied", "moved"]
    assert (report["failing"].count, report["sources"]) == (4, 6)
    text = page_of(url, file)
    (card, *_) = re.findall(r'<section class="card".*?</section>', text, re.DOTALL)
    assert card.index("<h3") < card.index("410 Gone") < card.index("sources resume")


def test_a_long_list_is_limited_and_counted(filled, monkeypatch):
    url, file = filled(240, 6)
    monkeypatch.setattr(report, "MAX_SOURCES", 2)
    text = page_of(url, file)
    assert "2 of 4 sources" in text
    assert "2 of 6 sources" in text, "with new entries"
    assert text.count('<section class="card"') == 2


def test_each_run_says_whether_it_signed_and_by_which_key(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    with closing(State(url)) as state:
        for begun, settings in enumerate(({"signing_key": ""}, {"signing_key": "kQ-7<b>"})):
            state.runs.begin(RunRecord(spider="feeds", started_at=NOW + begun, settings=settings))
    text = page_of(url, since=NOW)
    (runs,) = re.findall(r'<section id="runs".*?</section>', text, re.DOTALL)
    assert re.findall("signed by <bdi>(.+?)</bdi>", runs) == ["kQ-7&lt;b&gt;", "no key"]


def test_the_versions_of_a_run_are_folded(filled):
    text = page_of(*filled(1))
    (folded,) = re.findall(
        r"<td[^>]*>[^<]*<bdi>finished.*?(<details>.*?</details>)", text, re.DOTALL
    )
    assert "scrapy 2.19.0" in folded


def test_runs_that_went_wrong_are_named_and_come_first(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    with closing(State(url)) as state:
        for day, reason in ((3, "finished"), (2, "state_failed"), (1, "finished")):
            run = state.runs.begin(RunRecord(spider="feeds", started_at=NOW - day * DAY))
            problem = "" if reason == "finished" else reason
            state.runs.end(run, NOW - day * DAY + 60.0, reason, {"problem": problem})
    report = report_of(url, since=NOW - 9 * DAY)
    assert [row["run"] for row in report["runs"].rows] == [2, 3, 1]
    assert [row["problem"] for row in report["runs"].rows] == ["state_failed", None, None]
    assert need_of(report, "runs") is None  # the last one went well


def test_hostile_texts_are_escaped(filled):
    text = page_of(*filled(240, 6))
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
    request = {"host": "blog0.example", "url": "http://blog0.example/", "gates": ""}
    answered = {"status": None, "duration": 0.0, "hold": hold}
    with closing(State(url)) as state:
        log_requests(state, replace(RECORD, requested_at=BEGUN - 2 * DAY, **request, **answered))
        # It was written before the others, or else a clock was set.
        first = update(requests).where(requests.c.requested_at == BEGUN - 2 * DAY).values(id=0)
        state.database.write(lambda connection: connection.execute(first))


def need_of(report, section):
    """Return the subject of a problem that the page itself finds, or None."""
    rows = [row for row in report["problems"].rows if row.get("section") == section]
    return rows[0]["subject"] if rows else None


def test_short_gap_is_shown_in_problems_table_and_chart(filled):
    url, file = filled(30)
    assert need_of(report_of(url, file), "gaps") is None
    with closing(State(url)) as state:
        moment = BEGUN + 70.0
        moved = update(requests).where(requests.c.requested_at == moment)
        moved = moved.values(requested_at=moment - 9.253, monotonic=requests.c.monotonic - 9.253)
        state.database.write(lambda connection: connection.execute(moved))
    assert need_of(report_of(url, file), "gaps").startswith("1 gap ")
    text = page_of(url, file)
    assert '0.49 s<br><strong class="bad">1 ' in text
    assert '<rect class="short"' in text


def test_critical_problems_come_before_warnings(filled):
    url, file = filled(1, 2)
    write_earlier(url, hold=3 * DAY)
    file.write_text("no URL")
    severities = [row["severity"] for row in report_of(url, file)["problems"].rows]
    assert severities.count("critical") >= 2
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[-1] == "note"


def test_a_page_names_its_age_and_its_success(filled):
    text = page_of(*filled(240, 6))
    assert re.search(r"Created <time [^>]+>.+?</time>, \d", text)
    assert re.search(
        r"succeeded \(2xx, 304, redirects, no robots.txt\)</dt><dd>\d+\.\d%</dd>", text
    )


def test_a_long_log_is_cut_and_the_page_says_so(filled, monkeypatch):
    url, file = filled(30)
    write_earlier(url, hold=0.0)
    text = page_of(url, file)
    assert "<dd>30</dd>" in text
    assert "This section is about" not in text
    assert report_of(url, file)["gaps"].total() == 30
    monkeypatch.setattr(report, "MAX_REQUESTS", 20)
    text = page_of(url, file)
    assert "<dd>30</dd>" in text
    assert "the last 20 requests" in text
    assert report_of(url, file)["gaps"].total() == 20


def test_a_gap_since_an_earlier_run_is_compared_too(filled):
    url, file = filled(1)
    write_earlier(url, hold=3 * DAY)
    report = report_of(url, file)
    assert need_of(report, "gaps").startswith("1 gap ")
    (row,) = report["hosts"].rows
    assert (row["requests"], row["shortest"]["required"]) == (1, 3 * DAY)
    assert row["shortest"]["by_hold"]


def test_unreadable_sources_file_is_shown_in_the_page(filled):
    url, file = filled(1)
    file.write_text("no URL")
    text = page_of(url, file)
    assert "cannot be read" in text
    file.unlink()
    assert "cannot be read" in page_of(url, file)


def test_a_project_without_a_sources_file_needs_none(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    write_state(url, 1)
    assert "sources file" not in page_of(url, tmp_path / "none.toml")


def test_the_history_is_the_same_on_both_databases(url, tmp_path):
    file = tmp_path / "sources.txt"
    file.write_text("\n".join(write_state(url, 240, 6)))
    sync(url, file)
    report = report_of(url, file)
    assert (report["requests"], report["answers"]["unchanged"]) == (240, 54)
    assert {day: counts["new_entries"] for day, counts in report["days"].items()} == {
        "2026-05-20": 8,
        "2026-05-21": 8,
        "2026-05-22": 8,
    }
    assert (report["entries"], report["news"].count) == (24, 6)
    assert [len(row["newest"]) for row in report["news"].rows] == [4] * 6
    assert [row["problem"] for row in report["failing"].rows] == [
        "gone",
        "failing",
        "denied",
        "moved",
    ]
    assert report_of(url, file, since=BEGUN + DAY)["entries"] == 16


def test_the_headlines_of_a_source_are_its_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_HEADLINES_OF_SOURCE", 2)
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    with closing(State(url)) as state:
        entries = [
            entry_of(URL, str(number), at=NOW - number, item=json.dumps({"title": f"T{number}"}))
            for number in range(5)
        ]
        commit(state, SourceRecord(url=URL, kind="feed", visited_at=NOW - 60), entries)
    (row,) = report_of(url, since=NOW - 3600)["news"].rows
    assert ([entry["title"] for entry in row["newest"]], row["entries"]) == (["T0", "T1"], 5)
    assert "2 of 5 entries" in page_of(url, since=NOW - 3600)


def test_addresses_and_credentials_are_in_no_report(tmp_path):
    url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    source = "http://a.example/feed?token=s3cr3t&page=2"
    (tmp_path / "sources.txt").write_text(source)
    item = {"title": "by jo@a.example", "url": source, "source_title": "jo@a.example's"}
    sync(url, tmp_path / "sources.txt")
    with closing(State(url)) as state:
        entry = entry_of(source, "1", at=NOW - 60, item=json.dumps(item))
        commit(state, SourceRecord(url=source, kind="feed", visited_at=NOW - 60), [entry])
        failed = {"outcome": "failed", "failures": 3, "status": 404, "visited_at": NOW - 60}
        commit(state, SourceRecord(url=source, kind="feed", **failed))
    text = page_of(url, tmp_path / "sources.txt", since=NOW - 3600)
    assert 'class="card"' in text
    assert "s3cr3t" not in text
    assert "jo@" not in text
    assert "token=…&amp;page=2" in text
    assert "by …" in text


# `walsh report`: a page about real runs, whole or not at all, and one line about it.

SOURCES = ["http://blog.example/feed", "http://slow.example/feed", "http://lost.example/feed"]


#: Host, requests, shortest gap, required gap and longest required gap of a row in the page.
GAPS = re.compile(
    r'<bdi>([\w.]+)</bdi>.*?</th><td class="number">(\d+)</td>\n<td class="number">([\d.]+) s</td>'
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
    assert "1 source is failing" in text
    assert "discover http://lost.example/feed" in text
    assert 'class="short"' not in text
    rows = {row[0]: row[2:] for row in re.findall(GAPS, text)}
    assert rows.keys() == {"blog.example", "slow.example", "lost.example"}
    shortest, required, longest = rows["slow.example"]
    assert (required, longest) == ("2.00", "2.00")
    assert 2.0 <= float(shortest) < 60.0
    assert rows["blog.example"][1:] == ("1.00", "1.00")
    # A second run, which nothing new came of; and both of them.
    again(web, sources=SOURCES)
    second = report("-o", "-").stdout
    assert '<section id="new"' not in second
    assert "<dt>unchanged (304)</dt><dd>0</dd>" not in second
    both = report("-o", "-", "--since", "1d").stdout
    assert 'class="short"' not in both
    assert both.count('<section id="runs"') == 1
