"""A feed that another site's feed replaces: nothing of that is kept until it is accepted."""

import json
from contextlib import closing

import pytest

from tests.helpers.sites import site
from walsh_scrapy.policy.advice import complete_source
from walsh_scrapy.state import State
from walsh_scrapy.testing.feeds import Post, atom, json_feed, rss
from walsh_scrapy.testing.site import Reply

DAY = 86_400.0
URL = "http://blog.example/feed"
OURS = ("Our blog", "http://www.blog.example/")
TYPES = {rss: "rss+xml", atom: "atom+xml", json_feed: "feed+json"}
DAYS = [number * 2 * DAY for number in range(4)]


def document(title, link, *posts, write=rss, etag='"1"'):
    body = write(title, [Post(post, f"{link}{post}") for post in posts], link)
    return Reply(body, content_type=f"application/{TYPES[write]}", etag=etag)


@pytest.fixture
def visit(simulated, url):
    """Visit a source once for each of its documents; return the runs."""

    def run(*documents, first=0):
        return simulated(
            site("blog.example", feed=list(documents)),
            sources=[URL],
            starts=DAYS[first : first + len(documents)],
            settings={"WALSH_STATE_URL": url},
        )

    return run


def row_of(url):
    with closing(State(url)) as state:
        (row,) = map(complete_source, state.rows("readable_sources"))
        return row


@pytest.mark.parametrize("write", TYPES)
def test_another_site_and_another_title_at_once_keep_nothing(visit, url, write):
    ours = document(*OURS, "One", write=write)
    theirs = document("Casino", "http://casino.example/", "Win", write=write, etag='"2"')
    first, second, third = visit(ours, theirs, theirs)
    assert [item["title"] for item in first.items] == ["One"]
    assert (second.items, third.items) == ([], [])
    assert second.stats["walsh/sources/failed"] == 1
    sent = [hit.header("If-None-Match") for hit in third.log if hit.path == "/feed"]
    assert sent == ['"1"'], "the validators of the last good document stay"
    assert "'Our blog' of www.blog.example, and is 'Casino' of casino.example" in second.stderr
    row = row_of(url)
    assert (row["problem"], row["failures"], row["entries"]) == ("replaced", 1, 1)
    assert f"sources accept {URL}" in row["advice"]


def test_it_is_a_warning_after_two_visits(visit, called, url, tmp_path):
    def replaced():
        file = max(tmp_path.rglob("sources.toml"), key=lambda file: file.stat().st_mtime_ns)
        printed = called("status", "--json", "--sources", str(file), WALSH_STATE_URL=url)[1]
        rows = map(json.loads, printed.splitlines())
        return [(row["severity"], row["subject"]) for row in rows if row["code"] == "replaced"]

    theirs = document("Casino", "http://casino.example/", "Win", etag='"2"')
    visit(document(*OURS, "One"), theirs)
    assert (row_of(url)["problem"], replaced()) == ("failing", [])
    visit(theirs, first=2)
    assert replaced() == [("warning", URL)]


def test_what_is_accepted_counts_from_the_next_visit_on(visit, called, url, tmp_path):
    theirs = document("Casino", "http://casino.example/", "Win", etag='"2"')
    visit(document(*OURS, "One"), theirs)
    (tmp_path / "sources.toml").write_text(f'[[source]]\nurl = "{URL}"\n')
    status, out, _ = called("sources", "accept", URL, WALSH_STATE_URL=url)
    assert (status, out.count("next visit: now")) == (0, 1)
    (third,) = visit(theirs)
    assert [item["title"] for item in third.items] == ["Win"]
    assert row_of(url)["problem"] is None
    with closing(State(url)) as state:
        (override,) = state.rows("readable_overrides")
        assert (override["override"], override["url"]) == ("accept", URL)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(("Our new name", "http://blog.example/"), id="another title"),
        pytest.param(("Our blog", "http://elsewhere.example/"), id="another site"),
        pytest.param(("Our new name", "http://news.blog.example/"), id="within one domain"),
    ],
)
def test_a_title_or_a_site_may_change_alone(visit, url, later):
    _, second = visit(document(*OURS, "One"), document(*later, "Two", etag='"2"'))
    assert [item["title"] for item in second.items] == ["Two"]
    assert row_of(url)["problem"] is None


def test_it_is_visited_as_often_as_before(simulated, url):
    theirs = document("Casino", "http://casino.example/", "Win", etag='"2"')
    runs = simulated(
        site("blog.example", feed=[document(*OURS, "One"), *[theirs] * 4]),
        sources=[URL],
        starts=[number * 1.01 * DAY for number in range(5)],
        settings={"WALSH_STATE_URL": url},
    )
    assert [run.stats.get("walsh/sources/failed", 0) for run in runs] == [0, 1, 1, 1, 1]


def test_a_feed_that_comes_back_is_read_again(visit, url):
    theirs = document("Casino", "http://casino.example/", "Win", etag='"2"')
    *_, last = visit(document(*OURS, "One"), theirs, document(*OURS, "One", "Two", etag='"3"'))
    assert [item["title"] for item in last.items] == ["Two"]
    assert (row_of(url)["problem"], row_of(url)["failures"]) == (None, 0)


def test_without_a_link_or_a_title_nothing_is_compared(visit, url):
    bare = Reply(
        '<rss version="2.0"><channel><title>Other</title><item><title>Two</title>'
        "<link>http://b.example/2</link></item></channel></rss>",
        content_type="application/rss+xml",
    )
    _, second = visit(document(*OURS, "One"), bare)
    assert [item["title"] for item in second.items] == ["Two"]
