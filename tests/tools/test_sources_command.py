"""`scrapy sources`: the outcome of each source, which are due and why; resume."""

import json
import re

import pytest

from tests.helpers.sites import LIST_URL, feed, paths, site
from walsh_scrapy.testing.crawl import keep_empty_blocklist, write_sources
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site
from walsh_scrapy.tools.offers import TRY
from walsh_scrapy.tools.sources.overview import COLUMNS

RSS = "application/rss+xml"
MOMENT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def scrapy_sources(tmp_path, on_state):
    """Run `scrapy sources` on the state that the crawls of this test share."""

    def run(*arguments, sources=None, stdout=None, environment=None, **settings):
        if sources is not None:
            write_sources(tmp_path / "sources.txt", sources)
        terminal = {"COLUMNS": "100", "TERM": "xterm"} | (environment or {})
        options = {"settings": settings, "environment": terminal, "stdout": stdout}
        return on_state("sources", *arguments, **options)

    return run


@pytest.fixture
def listed(scrapy_sources):
    """What `scrapy sources --json` says, by URL, in its order."""

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
    told = {
        url.split("/")[2].partition(".")[0]: (line["outcome"], line["status"], line["due_rule"])
        for url, line in found.items()
    }
    assert list(told)[:4] == ["gone", "ill", "noentry", "new"]
    assert told == {
        "gone": ("gone", 410, "gone"),
        "ill": ("failed", 404, "failing"),
        "noentry": ("denied by robots", None, "revisit"),
        "new": ("new", None, "new"),
        "blog": ("fetched", 200, "revisit"),
        "slow": ("fetched", 200, "server"),
        "moved": ("fetched", 200, "revisit"),
    }
    blog = found[sources[0]]
    assert (blog["entries"], blog["due"]) == (2, False)
    assert MOMENT.fullmatch(blog["fetched_at"])
    assert MOMENT.fullmatch(blog["due_at"])
    there = found[sources[5]]
    assert there["moved_to"] == "http://there.example/feed"
    assert there["move_settled"] is False
    assert MOMENT.fullmatch(there["moved_since"])
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
    assert (ill["failing_since"], blog["failing_since"]) == (ill["fetched_at"], None)
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
    link = f'<link rel="alternate" type="{RSS}" title="{{0}}" href="/{{0}}.xml">'
    declared = {"page": ("posts", "comments"), "several": ("news", "posts"), "none": ()}
    pages = {
        name: Reply("".join(map(link.format, feeds)), content_type="text/html")
        for name, feeds in declared.items()
    }
    feeds = {"/posts.xml": feed("Posts"), "/news.xml": feed("News", ["Three"]),
             "/comments.xml": feed("Re: Posts", ["Re: One"])}  # fmt: skip
    web = loopback_web(
        site("blog.example", feed=feed()),
        *(Site(f"{name}.example", "", {"/": page, **feeds}) for name, page in pages.items()),
    )
    known, urls = "http://known.example/", [f"http://{name}.example/" for name in pages]
    keep_empty_blocklist(f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}")
    done = scrapy_sources(
        "add", "http://known.example", "http://blog.example/feed", *urls,
        sources=["# ours", known], environment=web.environment, WALSH_BLOCKLIST_SCHEMA_URL="",
    )  # fmt: skip
    file = tmp_path / "sources.txt"
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "declared already: 1 source",
        f"http://blog.example/feed is declared in {file}",
        f"http://page.example/posts.xml is declared in {file}",
    ]
    several = f'http://several.example/{{}}.xml: {RSS}: feed, "{{}}", {{}}'.format
    assert done.stderr.replace("walsh-scrapy: ", "").splitlines()[:6] == [
        "http://page.example/ declares these feeds too, which were not added:",
        f'  http://page.example/comments.xml: {RSS}, of comments: feed, "Re: Posts", 1 entry',
        "http://several.example/ declares several feeds; give the URL of one to add it:",
        f"  {several('news', 'News', '1 entry')}",
        f"  {several('posts', 'Posts', '2 entries')}",
        f"http://none.example/: nothing to declare was found there; {TRY}",
    ]
    asked = [path.partition("/")[2] for path in paths(web.log) if path.startswith("page.")]
    assert asked == ["robots.txt", "", "posts.xml", "comments.xml"]
    assert file.read_text().split("\n") == [
        "# ours", known, "http://blog.example/feed", "http://page.example/posts.xml", "",
    ]  # fmt: skip
    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=(), robots_exempt=[LIST_URL])
    again = scrapy_sources("add", "http://blog.example/feed")
    assert (again.returncode, again.stdout) == (0, "declared already: 1 source\n")


def test_it_runs_beside_a_crawl(loopback_web, crawl, listed):
    web = loopback_web(site("blog.example", feed=feed(delay=600.0)))  # longer than we look
    url = "http://blog.example/feed"
    running = crawl.start(web, sources=[url], settings={"DOWNLOAD_TIMEOUT": 60})
    assert web.wait_for(lambda log: any(hit.path == "/feed" for hit in log), 300.0)
    during = listed(sources=[url])[url]
    assert running.running
    assert during["host_waits"] == "in flight"
