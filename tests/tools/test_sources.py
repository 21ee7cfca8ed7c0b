"""The rows of `walsh sources`: when each source is due and why, their order and their words."""

import contextlib
import io
import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len
from rich.console import Console
from scrapy.settings import Settings

from tests.helpers import ROOT, cases
from tests.helpers.records import commit, entry_of, known_of
from tests.helpers.sites import LIST_URL, feed, paths, site
from walsh_scrapy.options import Options
from walsh_scrapy.programname import program_name
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.testing.crawl import keep_empty_blocklist, write_sources
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site
from walsh_scrapy.tools.offers import TRY
from walsh_scrapy.tools.output import as_dict, json_array, screen, table
from walsh_scrapy.tools.output import record as record_lines
from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources
from walsh_scrapy.tools.sources.overview import (
    COLUMNS,
    SourceRow,
    build_overview,
    next_visit,
    totals,
)

DAY = 86_400.0
NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC).timestamp()  # a Wednesday
URL = "http://a.example/feed"
HOSTILE = "\x1b]0;owned\x07[bold red]x[/] \u202emoc\u2028\x9b2J"


#: The end of the last visit.
VISITED = NOW - 3600


def record(url=URL, **fields):
    visited = {"visited_at": VISITED, "not_before": VISITED, "outcome": "fetched"}
    return SourceRecord(**{"url": url, "kind": "feed"} | visited | fields)


def server_asks(seconds):
    return {"server_interval": seconds, "not_before": VISITED + seconds}


def visit_after(found, min_revisit=DAY, every=None):
    return next_visit(
        known_of(found, min_revisit, NOW, every), Source(URL, every=every), min_revisit, NOW
    )


NEW = {"visited_at": None, "not_before": 0.0}
ASKED = server_asks(5 * DAY)


@pytest.mark.parametrize(
    ("fields", "rule", "why"),
    [
        (NEW, "new", "not visited yet"),
        (NEW | {"outcome": "refused", "status": 429}, "new", "refused (429)"),
        ({"visited_at": NOW + DAY}, "clock", "its last visit lies in the future, 2026-05-21 12:00"),
        ({}, "revisit", "every 1 d"),
        (ASKED, "server", "the server wants 5 d"),
        (ASKED | {"feed_interval": 5 * DAY}, "feed", "the feed wants 5 d"),
        (ASKED | {"feed_interval": 2 * DAY}, "server", "the server wants 5 d"),
        (server_asks(30 * DAY) | {"feed_interval": 365 * DAY}, "feed", "the feed wants 30 d"),
        ({"failures": 1}, "failing", "failing, again after 1 d"),
        ({"failures": 3}, "failing", "failing, doubled to 4 d"),
        ({"failures": 9}, "failing", "failing, doubled to 30 d"),
        ({"failures": 2} | server_asks(7 * DAY), "server", "the server wants 7 d"),
        ({"outcome": "gone", "not_before": math.inf, "failures": 1}, "gone", "when you resume it"),
        ({"outcome": "gone", "not_before": 0.0}, "resumed", "you resumed it"),
        ({"skip_hours": "11,12", "not_before": NOW + DAY}, "skip", "the feed's skipHours"),
        ({"skip_days": "Thursday", "not_before": NOW + 2 * DAY}, "skip", "the feed's skipDays"),
    ],
)
def test_each_next_visit_has_its_rule(fields, rule, why):
    found = visit_after(record(**fields))
    assert found.rule == rule
    assert found.why.startswith(why)
    assert found.is_due == (rule in ("new", "clock", "resumed"))


def test_every_and_the_server_decide_when_a_source_is_due():
    rare = visit_after(record(), every=timedelta(days=7))
    assert (rare.rule, rare.why) == ("every", "every 7 d, as declared")
    due = visit_after(record(), 3600.0)
    assert (due.is_due, due.at) == (True, NOW)
    assert not next_visit(known_of(record(not_before=0.0), DAY, NOW), None, DAY, NOW).is_due
    asked = visit_after(record(**server_asks(7200.0)), 3600.0)
    assert (asked.is_due, asked.rule, asked.at) == (False, "server", NOW + 3600)


def overview_of(records, sources=None, **settings):
    """The overview of a state in memory."""
    state = State("sqlite://")
    for each in records:
        commit(state, each)
    declared = sources or [Source(each.url) for each in records]
    options = Options.from_settings(Settings({"WALSH_STATE_URL": "sqlite://"} | settings))
    found = build_overview(declared, state, options, NOW)
    state.close()
    return found


def test_trouble_comes_first():
    troubles = {
        "later": {"visited_at": NOW - DAY + 9},
        "sooner": {"visited_at": NOW - DAY + 8},
        "due": {"visited_at": NOW - DAY - 1},
        "new": NEW | {"outcome": "new"},
        "denied": {"outcome": "denied by robots", "failures": 1},
        "busy": {"outcome": "refused", "refused_since": NOW - DAY},
        "ill": {"outcome": "failed", "failures": 1},
        "dying": {"outcome": "failed", "failures": 7},
        "gone": {"outcome": "gone", "failures": 8, "not_before": math.inf},
    }
    given = [record(f"http://{name}.example/", **fields) for name, fields in troubles.items()]
    found = overview_of(given)
    names = [row.host.removesuffix(".example") for row in found.by_urgency()]
    assert names == ["gone", "dying", "ill", "busy", "denied", "new", "due", "sooner", "later"]
    assert totals(found.by_urgency()) == (
        "9 sources: 1 gone, 2 failing, 1 refused, 1 denied, 1 new, 2 due now"
    )


@pytest.mark.parametrize(
    ("etag", "resent", "words"),
    [
        (b'W/"1"', 3, "3 times in a row for its validators; its ETag is weak: a proxy such as"),
        (None, 4, "4 times in a row for its validators; its server does not compare them"),
        (b'W/"1"', 2, ""),
    ],
)
def test_a_server_that_never_answers_304_is_told_with_the_cause(etag, resent, words):
    (row,) = overview_of([record(etag=etag, resent=resent)]).declared
    (_, line) = table([row], COLUMNS)
    assert words in line
    assert bool(row.problem) == bool(words) == ("never 304" in line)
    assert not row.has_problem


def test_due_sources_are_listed_in_the_order_of_a_run():
    """By kind; then the host with most work; then the source that is due longest."""
    declared = [
        Source("http://one.example/llms", kind="llms"),
        Source("http://one.example/"),
        Source("http://two.example/new"),
        Source("http://two.example/old"),
        Source("http://no.example/"),
    ]
    records = [
        record("http://two.example/new", visited_at=NOW - DAY - 1),
        record("http://two.example/old", visited_at=NOW - DAY - 9),
        record("http://no.example/"),
    ]
    urls = [row.record.url for row in overview_of(records, declared).due({})]
    assert urls == [declared[index].url for index in (3, 2, 1, 0)]


def test_a_delay_that_the_file_asks_for_counts_in_the_order_of_a_run():
    several = [Source(f"http://two.example/{number}") for number in range(3)]
    rare = Source("http://rare.example/", delay=timedelta(seconds=9))
    found = overview_of([], [*several, rare])
    assert found.due({})[0].record.url == rare.url
    assert found.due({"two.example": 4.0})[0].record.url == several[0].url


def test_a_moved_source_waits_for_its_new_host():
    moved = record(moved_to="http://b.example/feed", moved_since=NOW - DAY, move_settled=True)
    (row,) = overview_of([moved]).declared
    assert row.host == "b.example"
    assert "http://b.example/feed (visited there)" in "".join(table([row], COLUMNS))
    watched = record(moved_to="http://b.example/feed", moved_since=NOW - DAY)
    (row,) = overview_of([watched]).declared
    assert row.host == "a.example"
    assert "(watched since 2026-05-19T12:00:00Z)" in "".join(table([row], COLUMNS))


def test_a_source_with_a_new_spelling_is_one_source():
    older = record(f"{URL}//", failures=1, visited_at=NOW - 3 * DAY)
    found = overview_of([older, record(f"{URL}/", failures=3)], [Source(URL)])
    (row,) = found.declared
    assert (row.record.url, row.record.failures) == (URL, 3)
    assert found.undeclared == []


def test_markup_from_servers_and_files_is_shown_as_text():
    odd = {"detail": HOSTILE, "moved_to": f"http://x.example/{HOSTILE}"}
    failed = record(outcome="failed", failures=1, **odd)
    found = overview_of([failed], [Source(URL, name=HOSTILE)]).by_urgency()
    for width in (40, 200):
        written = io.StringIO()
        console = Console(file=written, force_terminal=True, color_system=None, width=width)
        for line in screen(found, COLUMNS, width):
            console.print(line, soft_wrap=True)
        told = re.sub(
            rf"\x1b\]8;id=\d+;{URL}\x1b\\|\x1b\]8;;\x1b\\|\x1b\[[01]?m", "", written.getvalue()
        )
        assert "[bold" in told
        assert not set(told) & set("\x1b\x07\x9b\u202e\u2028")
    piped = "\n".join(table(found, COLUMNS))
    assert len(piped.splitlines()) == 2
    assert r"\x1b]0;owned\x07[bold red]x[/] \u202emoc\u2028\x9b2J" in piped
    written = list(json_array(as_dict(row, COLUMNS) for row in found))
    assert all(line.isprintable() for line in written)
    assert json.loads("".join(written))[0]["detail"] == HOSTILE


@pytest.mark.parametrize("width", [40, 80, 200])
def test_at_a_terminal_facts_fit_the_width_and_no_url_is_cut(width):
    url = f"http://a.example/{'long/' * 60}"
    failed = record(
        url, outcome="failed", status=404, failures=3, detail="a.example " + "answered 404 " * 9,
        moved_to=f"http://b.example/{'there/' * 60}", moved_since=NOW - DAY,
    )  # fmt: skip
    found = overview_of([failed], [Source(url, name="Ünï 日本語 & more", kind="llms")])
    assert url in list(table(found.declared, COLUMNS))[1], "in a pipe nothing is cut"
    lines = [line.plain for line in screen(found.declared, COLUMNS, width)]
    assert lines[0] == url
    assert [line for line in lines if cell_len(line) > width] == [
        url, f"  {url}", f"  {failed.moved_to}",
    ]  # fmt: skip
    told = " ".join(" ".join(lines).split())
    for fact in ("status 404", "failures 3", "name Ünï 日本語 & more", "kind llms", "404 answered"):
        assert fact in told


def test_what_is_stale_failing_or_moved():
    state = State("sqlite://")
    commit(state, record(), [entry_of(URL, at=NOW - 9 * DAY)])
    never = record("http://never.example/", outcome="denied by robots")
    commit(state, replace(never, first_visited_at=NOW - 5 * DAY))
    declared = [Source(url) for url in (URL, "http://never.example/", "http://new.example/")]
    rows = build_overview(declared, state, Options.from_settings(Settings()), NOW).declared
    state.close()
    assert [row.is_stale(NOW - 9 * DAY) for row in rows] == [False, False, False]
    assert [row.is_stale(NOW - 8 * DAY) for row in rows] == [True, False, False]
    assert [row.is_stale(NOW - 4 * DAY) for row in rows] == [True, True, False]
    assert [row.has_problem for row in rows] == [False, True, False]
    assert as_dict(rows[0], COLUMNS)["newest_entry"] == "2026-05-11T12:00:00Z"


def test_a_url_means_itself_or_another_spelling_or_nothing():
    known = ["http://a.example/feed", "http://a.example/feed/", "http://b.example/x"]
    assert find_sources("http://a.example/feed", known) == known[:1]
    assert find_sources("HTTP://B.example:80/x#top", known) == known[2:]
    assert find_sources("http://A.example/feed", known) == known[:2]
    with pytest.raises(UnknownSource, match=r"did you mean http://b\.example/x\?"):
        find_sources("http://b.example/y", known)
    with pytest.raises(UnknownSource, match="sources --all"):
        find_sources("\x1b", known)


def test_the_fields_of_json_and_their_rules_are_those_of_the_docs():
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    table, rules = page.split("| `due_rule` | when", 1)
    (row,) = overview_of([record()]).declared
    fields = re.search(r"\| field \| meaning \|\n\|---\|---\|\n((?:\|.+\n)+)", table)[1]
    assert re.findall(r"^\| `(\w+)`", fields, re.MULTILINE) == list(as_dict(row, COLUMNS))
    rows = re.search(r"\n((?:\|.+\n)+)\n", rules)[1]
    named = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows.splitlines()))
    assert len(set(named)) == len(named) == 11


# `walsh sources`: the outcome of each source, which are due and why; resume.

RSS = "application/rss+xml"
MOMENT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def scrapy_sources(tmp_path, on_state):
    """Run `walsh sources` on the state that the crawls of this test share."""

    def run(*arguments, sources=None, environment=None, **settings):
        if sources is not None:
            write_sources(tmp_path / "sources.txt", sources)
        words = arguments if arguments[:1] == ("add",) else ("sources", *arguments)
        return on_state(*words, settings=settings, environment=environment)

    return run


@pytest.fixture
def listed(scrapy_sources):
    """What `walsh sources --json` says, by URL, in its order."""

    def run(*arguments, **options):
        result = scrapy_sources("--json", *arguments, **options)
        assert result.returncode == 0, result.stderr
        return {line["url"]: line for line in json.loads(result.stdout)}

    return run


def test_every_source_is_listed_with_what_came_of_it(loopback_web, crawl, listed, scrapy_sources):
    moved = Reply(status=301, headers={"Location": "http://there.example/feed"})
    web = loopback_web(
        site("blog.example"),
        site("slow.example", feed=feed(headers={"Cache-Control": "max-age=432000"})),
        site("gone.example", feed=Reply(status=410)),
        site("ill.example", feed=Reply(status=404)),
        site("noentry.example", "User-agent: *\nDisallow: /\n"),
        site("moved.example", feed=moved),
        site("there.example"),
    )
    names = ("blog", "slow", "gone", "ill", "noentry", "moved")
    sources = [f"http://{name}.example/feed" for name in names]
    crawl(web, sources=sources)
    found = listed(sources=[*sources, "http://new.example/"])
    assert all(list(line) == [column.name for column in COLUMNS] for line in found.values())
    told = [(line["outcome"], line["status"], line["due_rule"]) for line in found.values()]
    assert told[:4] == [
        ("gone", 410, "gone"),
        ("failed", 404, "failing"),
        ("denied by robots", None, "revisit"),
        ("new", None, "new"),
    ]
    assert sorted(told[4:]) == [("fetched", 200, rule) for rule in ("revisit", "revisit", "server")]
    assert found[sources[1]]["due_rule"] == "server"
    blog = found[sources[0]]
    assert (blog["entries"], blog["due"]) == (2, False)
    there = found[sources[5]]
    assert (there["moved_to"], there["move_settled"]) == ("http://there.example/feed", False)
    for moment in (blog["visited_at"], blog["due_at"], there["moved_since"]):
        assert MOMENT.fullmatch(moment)
    piped = scrapy_sources().stdout.splitlines()
    assert len(piped) == 1 + 7 + 1 + 2
    (line,) = [line for line in piped if "http://moved.example/feed" in line]
    assert "http://there.example/feed (watched since 20" in line
    assert piped[8] == "7 sources: 1 gone, 1 failing, 1 denied, 1 new, 1 due now"
    assert piped[9].startswith("to change in ")
    assert piped[10].startswith(f"  {sources[2]} (line 3) is gone (")
    assert list(listed("--failing")) == list(found)[:3]
    assert list(listed("--failing", "60d")) == []
    ill = found["http://ill.example/feed"]
    assert (ill["failing_since"], blog["failing_since"]) == (ill["visited_at"], None)
    assert list(listed("--stale", "1d")) == [], "their first visits were a moment ago"
    assert set(listed("--stale", "0min")) == set(sources)
    told = scrapy_sources("--failing").stdout.splitlines()
    assert told[-1].startswith("3 listed of 7 sources: 1 gone")


def test_due_is_what_the_next_run_asks_for(loopback_web, crawl, listed):
    hosts = ("one", "two", "three")
    pages = {f"p{number}": feed() for number in range(2)}
    web = loopback_web(*(site(f"{host}.example", **pages) for host in hosts))
    before = "http://one.example/feed"
    crawl(web, sources=[before])
    sources = [before, "http://one.example/p0"]
    sources += [f"http://{host}.example/{page}" for host in hosts[1:] for page in pages]
    due = listed("--due", sources=sources)
    result = crawl(web, sources=sources)
    asked = [path for path in paths(result.log) if not path.endswith("robots.txt")]
    assert before not in due
    assert sorted(due) == sorted(f"http://{path}" for path in asked)
    assert listed("--due", sources=sources) == {}


def test_a_changed_file_is_read_into_the_state_ahead(scrapy_sources):
    urls = [f"http://{name}.example/feed" for name in "abc"]
    expected = [("3 sources: 3 new", "0 unchanged"), ("2 sources: 0 new, 0 changed, 1 removed, 2",)]
    for sources, words in zip((urls, urls[1:]), expected, strict=True):
        line = scrapy_sources("sync", sources=sources).stdout
        assert [word for word in words if word not in line] == []


def test_without_a_state_all_are_new_and_none_is_made(scrapy_sources, listed, tmp_path):
    sources = ["http://a.example/feed", "http://b.example/feed"]
    found = listed("--due", sources=sources)
    assert list(found) == sources
    assert "it is due now, as before" in scrapy_sources("resume", sources[0]).stdout
    assert not (tmp_path / "crawl").exists()


def test_what_is_no_longer_declared_is_counted_and_can_be_shown(
    loopback_web, crawl, listed, scrapy_sources
):
    web = loopback_web(site("old.example"), site("blog.example"))
    old, blog = "http://old.example/feed", "http://blog.example/feed"
    crawl(web, sources=[old, blog])
    result = scrapy_sources(sources=[blog])
    assert "no longer declared, listed only with --all: 1 source" in result.stdout.splitlines()[-1]
    assert old not in result.stdout
    as_json = scrapy_sources("--json")
    assert "no longer declared" in as_json.stderr
    found = listed("--all")
    assert list(found) == [blog, old]
    assert (found[old]["declared"], found[old]["due_rule"]) == (False, "undeclared")
    assert found[old]["entries"] == 2


def test_resume_makes_due_what_is_gone_or_failing(loopback_web, crawl, listed, scrapy_sources):
    web = loopback_web(
        site("gone.example", feed=[Reply(status=410), feed()]),
        site("ill.example", feed=Reply(status=404)),
        site("blog.example"),
    )
    sources = [f"http://{name}.example/feed" for name in ("gone", "ill", "blog")]
    crawl(web, sources=sources)
    assert listed("--due", sources=sources) == {}
    result = scrapy_sources("resume", *sources)
    assert result.returncode == 0
    assert result.stdout.count("is due now; its failures are counted from 0") == 2
    assert f"{sources[2]} is neither gone nor failing: it is due 20" in result.stdout
    assert [line["due_rule"] for line in listed("--due").values()] == ["resumed", "resumed"]
    second = crawl(web, sources=sources)
    assert second.stats["walsh/sources/fetched"] == 1
    assert listed()[sources[1]]["failures"] == 1


def test_a_change_by_the_operator_during_a_visit_is_kept(
    loopback_web, crawl, again, listed, scrapy_sources
):
    url = "http://ill.example/feed"

    def resumed(_hit):
        assert scrapy_sources("resume", url, sources=[url]).returncode == 0
        return Reply(status=404)

    tagged = feed(host="ill.example", etag='"1"')
    answers = [Reply(status=404), resumed, tagged, resumed]
    web = loopback_web(site("ill.example", feed=[*answers, feed(host="ill.example")]))
    crawl(web, sources=[url])
    again(web, sources=[url])
    assert listed()[url]["failures"] == 1
    again(web, sources=[url])
    again(web, sources=[url])
    assert listed()[url]["failures"] == 1
    (hit,) = [hit for hit in again(web, sources=[url]).log if hit.path == "/feed"]
    assert "if-none-match" not in {name.lower() for name, _ in hit.headers}


def test_add_asks_what_is_there_and_declares_it(loopback_web, scrapy_sources, tmp_path):
    link = '<link rel="alternate" type="application/rss+xml" href="/{}.xml">'
    page = Reply(link.format("posts") + link.format("comments"), content_type="text/html")
    feeds = {"/posts.xml": feed("Posts"), "/comments.xml": feed("Re: Posts", ["Re: One"])}
    web = loopback_web(
        site("blog.example"),
        Site("page.example", "", {"/": page, **feeds}),
        Site("none.example", "", {"/": Reply("", content_type="text/html")}),
    )
    known, blog = "http://known.example/", "http://blog.example/feed"
    keep_empty_blocklist(f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}")
    done = scrapy_sources(
        *("add", "http://known.example", blog, "http://page.example/", "http://none.example/"),
        sources=["# ours", known], environment=web.environment, WALSH_BLOCKLIST_SCHEMA_URL="",
    )  # fmt: skip
    file = tmp_path / "sources.txt"
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "declared already: 1 source",
        f"{blog} is declared in {file}",
        f"http://page.example/posts.xml is declared in {file}",
    ]
    told = done.stderr.replace("walsh: ", "").splitlines()
    assert told[0] == "http://page.example/ declares these feeds too, which were not added:"
    assert told[2] == f"http://none.example/: nothing to declare was found there; {TRY}"
    asked = [path.partition("/")[2] for path in paths(web.log) if path.startswith("page.")]
    assert asked == ["robots.txt", "", "posts.xml", "comments.xml"]
    assert file.read_text() == f"# ours\n{known}\n{blog}\nhttp://page.example/posts.xml\n"
    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=(), robots_exempt=[LIST_URL])


def test_it_runs_beside_a_crawl(loopback_web, crawl, listed):
    web = loopback_web(site("blog.example", feed=feed(delay=600.0)))  # longer than we look
    url = "http://blog.example/feed"
    running = crawl.start(web, sources=[url], settings={"DOWNLOAD_TIMEOUT": 60})
    assert web.wait_for(lambda log: any(hit.path == "/feed" for hit in log), 300.0)
    during = listed(sources=[url])[url]
    assert running.running
    assert during["host_waits"] == "in flight"


# `walsh sources show`: all that the record has of one source, on both databases.

THERE = "http://b.example/feed"
PLACE = {"name": "A", "tags": ("x",), "folders": ("F",)}
SOURCE = Source(URL, every=timedelta(days=7), delay=timedelta(seconds=5), **PLACE)
ASKED_FOR = {"server_interval": 7200.0, "feed_interval": 3600.0, "skip_days": "Sunday"}
MOVED = {"moved_to": THERE, "moved_since": NOW - 900_000.0, "move_settled": True}
RECORDED = record(
    visited_at=NOW,
    not_before=NOW + DAY,
    detail="http://b.example/feed has too many entries: 3, the oldest, are left out",
    status=200,
    validator_url=THERE,
    etag=b'"\xfc"',
    format="rss20, repaired",
    **ASKED_FOR,
    **MOVED,
)
OPTIONS = Options.from_settings(Settings())


def record_of(state):
    (row,) = build_overview([SOURCE], state, OPTIONS, NOW).declared
    return "\n".join(record_lines(row, COLUMNS)), as_dict(row, COLUMNS)


def test_a_source_is_told_with_every_column(url):
    with contextlib.closing(State(url)) as state:
        commit(state, RECORDED)
        text, told = record_of(state)
    facts = {tuple(line.split(maxsplit=1)) for line in text.splitlines()}
    wanted = (
        ("name", "A"), ("tags", "x"), ("folder", "F"), ("every", "7 d"), ("delay", "5 s"),
        ("status", "200"), ("format", "rss20, repaired"), ("etag", '"ü"'), ("host", "b.example"),
    )  # fmt: skip
    assert [each for each in wanted if each not in facts] == []
    for words in (f"{THERE} (visited there)", "3, the oldest, are left out", "Sunday", "2 h"):
        assert words in text
    assert (told["etag"], told["folder"], told["feed_interval"]) == ('"ü"', "F", 3600.0)


def test_without_a_state_there_is_the_declaration():
    text, told = record_of(None)
    assert text.splitlines()[0] == URL
    assert "not visited yet" in text
    assert (told["every"], told["visited_at"]) == (604_800.0, None)


# Sources with problems: what the report says of each, and what to do.

BUSY = {"outcome": "refused", "status": 429, "refused_since": NOW - 3 * DAY}
WEAK, STRONG = ({"resent": 3, "etag": etag} for etag in (b'W/"1"', b'"1"'))


def row_of(**fields):
    found = record(**fields)
    return SourceRow(Source(URL), found, visit_after(found), 0, None, "a.example")


@cases(
    "fields",
    "what",
    "advice",
    "command",
    more=[
        (WEAK, "resent", "nginx: no gzip", ""),
        (STRONG, "resent", "compare If-None-Match", ""),
        ({"failures": 1, **BUSY}, "refused", "wants a wait", f"{program_name()} hosts"),
        ({"visited_at": None, **BUSY}, "refused", "wants a wait", f"{program_name()} hosts"),
    ],
)
def test_each_trouble_says_what_to_do(fields, what, advice, command):
    assert row_of(outcome="fetched").problem is None
    found = row_of(**fields).problem
    assert found.what == what
    assert advice in found.advice
    assert (command in found.command) if command else found.command == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"failures": 3, "failing_since": NOW - 2 * DAY}, "since 2026-05-18 12:00:00 UTC"),
        ({"outcome": "gone", "not_before": math.inf}, "since 2026-05-20 11:00:00 UTC"),
        ({"visited_at": None, **BUSY}, "since 2026-05-17 12:00:00 UTC"),
        ({"outcome": "denied by robots"}, "last seen 2026-05-20 11:00:00 UTC"),
    ],
)
def test_each_trouble_says_since_when(fields, words):
    assert row_of(**fields).problem.since == words
