"""`walsh sources`: the outcome of each source, which are due and why; resume, sync and add."""

import contextlib
import json
import os
from functools import partial

import pytest
from sqlalchemy import create_engine, make_url, text

from tests.helpers.records import commit
from tests.helpers.sites import LIST_URL, feed, paths, site
from walsh_scrapy.state import State
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.testing.crawl import keep_empty_blocklist, write_sources
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site
from walsh_scrapy.tools.offers import FEED_ADVICE
from walsh_scrapy.tools.sourcesfile import UnknownSource, find_sources

A, B = "http://a.example/feed", "http://b.example/feed"


@pytest.fixture
def sources(tmp_path, on_state):
    """Run `walsh sources` on the state that the crawls of this test share."""

    def run(*arguments, sources=None, environment=None, **settings):
        if sources is not None:
            write_sources(tmp_path / "sources.txt", sources)
        words = arguments if arguments[:1] == ("add",) else ("sources", *arguments)
        return on_state(*words, settings=settings, environment=environment)

    return run


@pytest.fixture
def listed(sources):
    """Return what `walsh sources --json` prints, by URL, in its order."""

    def run(*arguments, **options):
        result = sources("--json", *arguments, **options)
        assert result.returncode == 0, result.stderr
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        return {row["url"]: row for row in rows}

    return run


def test_every_source_is_listed_with_its_outcome(loopback_web, crawl, listed):
    web = loopback_web(
        site("blog.example"),
        site("gone.example", feed=Reply(status=410)),
        site("ill.example", feed=Reply(status=404)),
        site("noentry.example", "User-agent: *\nDisallow: /\n"),
    )
    urls = [f"http://{name}.example/feed" for name in ("blog", "gone", "ill", "noentry")]
    crawl(web, sources=urls)
    rows = listed(sources=[*urls, "http://new.example/"]).values()
    assert [(row["problem"], row["outcome"]) for row in rows] == [
        ("gone", "410 Gone"),
        ("failing", "404 Not Found"),
        ("denied", "denied by robots"),
        (None, "not visited yet"),
        (None, "fetched"),
    ]
    assert list(listed("--failing")) == [urls[1], urls[2], urls[3]]
    assert list(listed("--failing", "60d")) == []
    assert list(listed("--stale", "1d")) == [], "their first visits were a moment ago"


def test_due_sources_are_those_of_the_next_run(loopback_web, crawl, listed):
    hosts = ("one", "two", "three")
    pages = {f"p{number}": feed() for number in range(2)}
    web = loopback_web(*(site(f"{host}.example", **pages) for host in hosts))
    before = "http://one.example/feed"
    crawl(web, sources=[before])
    urls = [before, "http://one.example/p0"]
    urls += [f"http://{host}.example/{page}" for host in hosts[1:] for page in pages]
    due = listed("--due", sources=urls)
    result = crawl(web, sources=urls)
    requested = [path for path in paths(result.log) if not path.endswith("robots.txt")]
    assert before not in due
    assert sorted(due) == sorted(f"http://{path}" for path in requested)
    assert listed("--due", sources=urls) == {}


def test_a_changed_file_is_read_into_the_state_ahead(sources):
    urls = [f"http://{name}.example/feed" for name in "abc"]
    first = sources("sync", sources=urls).stdout
    assert "3 sources: 3 new" in first
    second = sources("sync", sources=urls[1:]).stdout
    assert "2 sources: 0 new" in second
    assert "1 removed" in second


def test_sync_always_has_the_warnings_of_the_file(sources):
    urls = ["http://a.example/feed"] * 2
    for _ in range(2):
        assert "declared more than once" in sources("sync", sources=urls).stderr


def test_resume_makes_gone_or_failing_sources_due(loopback_web, crawl, listed, sources):
    web = loopback_web(
        site("gone.example", feed=[Reply(status=410), feed()]),
        site("ill.example", feed=Reply(status=404)),
        site("blog.example"),
    )
    urls = [f"http://{name}.example/feed" for name in ("gone", "ill", "blog")]
    crawl(web, sources=urls)
    assert listed("--due", sources=urls) == {}
    result = sources("resume", *urls)
    assert result.returncode == 0
    assert result.stdout.count("next visit: now") == 2
    assert list(listed("--due")) == urls[:2]
    second = crawl(web, sources=urls)
    assert second.stats["walsh/sources/fetched"] == 1
    assert listed()[urls[1]]["failures"] == 1


def test_a_change_by_the_operator_during_a_visit_is_kept(
    loopback_web, crawl, again, listed, sources
):
    url = "http://ill.example/feed"

    def resumed(_hit):
        assert sources("resume", url, sources=[url]).returncode == 0
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


def test_add_requests_a_url_and_declares_its_feed(loopback_web, on_state, tmp_path):
    link = '<link rel="alternate" type="application/rss+xml" href="/{}.xml">'
    page = Reply(link.format("posts") + link.format("comments"), content_type="text/html")
    feeds = {"/posts.xml": feed("Posts"), "/comments.xml": feed("Re: Posts", ["Re: One"])}
    web = loopback_web(
        site("blog.example"),
        Site("page.example", "", {"/": page, **feeds}),
        Site("none.example", "", {"/": Reply("", content_type="text/html")}),
    )
    known, blog = "http://known.example/", "http://blog.example/feed"
    file = tmp_path / "sources.txt"
    write_sources(file, ["# ours", known])
    keep_empty_blocklist(f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}")
    done = on_state(
        *("add", "http://known.example", blog, "http://page.example/", "http://none.example/"),
        environment=web.environment,
        settings={"WALSH_BLOCKLIST_SCHEMA_URL": ""},
    )
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{known} is already in {file}",
        f"added {blog} to {file}",
        f"added http://page.example/posts.xml to {file}",
    ]
    assert "http://none.example/: " in done.stderr
    assert FEED_ADVICE in done.stderr
    requested = [path.partition("/")[2] for path in paths(web.log) if path.startswith("page.")]
    assert requested == ["robots.txt", "", "posts.xml", "comments.xml"]
    assert file.read_text() == f"# ours\n{known}\n{blog}\nhttp://page.example/posts.xml\n"
    assert_polite(web.log, crawl_delays=web.crawl_delays, blocked=(), robots_exempt=[LIST_URL])
    urls = [json.loads(line)["url"] for line in on_state("sources", "--json").stdout.splitlines()]
    assert sorted(urls) == sorted([known, blog, "http://page.example/posts.xml"])


def test_the_list_is_printed_during_a_crawl(loopback_web, crawl, sources):
    web = loopback_web(site("blog.example", feed=feed(delay=600.0)))  # longer than we look
    url = "http://blog.example/feed"
    running = crawl.start(web, sources=[url], settings={"DOWNLOAD_TIMEOUT": 60})
    assert web.wait_for(lambda log: any(hit.path == "/feed" for hit in log), 300.0)
    facts = sources(url, sources=[url]).stdout
    assert running.running
    assert "in flight" in facts


# The state and the sources file, without a crawl.


@pytest.fixture
def declare(tmp_path):
    """Return a function that writes the sources file, and one that runs a command on a state."""
    return lambda *urls: (tmp_path / "sources.txt").write_text("".join(f"{url}\n" for url in urls))


@pytest.fixture
def state_url(tmp_path):
    return f"sqlite:///{tmp_path / 'state' / 'walsh.sqlite3'}"


@pytest.fixture
def walsh(called, state_url):
    return partial(called, WALSH_STATE_URL=state_url, WALSH_SOURCES="sources.txt")


def failing(url=A):
    """A source that failed nine times."""
    failed = {"outcome": "failed", "status": 404, "failures": 9, "failing_since": 1.0}
    return SourceRecord(url=url, kind="feed", visited_at=2.0, **failed)


def test_without_a_state_the_file_is_listed_and_none_is_made(walsh, declare, tmp_path):
    declare(A, B)
    status, out, error = walsh("sources")
    assert (status, error) == (0, "")
    assert [line.split("\t")[1:] for line in out.splitlines()[1:]] == [
        ["now", "", "0", "not visited yet", url] for url in (A, B)
    ]
    assert walsh("sources", "resume", A)[0] == 0
    assert not (tmp_path / "state").exists()


def test_a_source_just_declared_is_listed_before_any_crawl(walsh, declare, state_url):
    declare(A)
    with contextlib.closing(State(state_url)) as state:
        commit(state, failing())
    declare(A, B)
    lines = walsh("sources")[1].splitlines()
    assert [line.split("\t")[5] for line in lines] == ["url", A, B]


def test_a_source_that_is_declared_no_more_is_listed_with_all(walsh, declare, state_url):
    declare(B)
    with contextlib.closing(State(state_url)) as state:
        commit(state, failing())
    assert A not in walsh("sources")[1]
    rows = [json.loads(line) for line in walsh("sources", "--all", "--json")[1].splitlines()]
    assert [(row["url"], row["is_declared"]) for row in rows] == [(B, True), (A, False)]


def test_sources_that_fail_for_long_are_chosen(walsh, declare, state_url):
    declare(A, B)
    with contextlib.closing(State(state_url)) as state:
        commit(state, failing())
    rows = [
        json.loads(line)
        for line in walsh("sources", "--failing", "60d", "--json")[1].split("\n")
        if line
    ]
    assert [row["url"] for row in rows] == [A]


@pytest.mark.parametrize(
    ("option", "sentence"), [("--failing", "is failing"), ("--stale=1d", "newer entry")]
)
def test_message_for_an_empty_list_names_the_filter(walsh, declare, option, sentence):
    declare(A)
    status, _, err = walsh("sources", option)
    assert status == 0
    assert sentence in err


def test_all_facts_of_a_source_are_in_groups(walsh, declare, state_url):
    declare(A)
    with contextlib.closing(State(state_url)) as state:
        commit(state, failing())
    status, out, _ = walsh("sources", "HTTP://A.example:80/feed/")
    headings = [line for line in out.splitlines() if not line.startswith(" ")]
    assert status == 0
    assert headings == ["Source", "Schedule", "Last visit", "Host"]
    facts = dict(line.split(maxsplit=1) for line in out.splitlines() if line.startswith(" "))
    assert facts["outcome"] == "404 Not Found"
    assert f"discover {A}" in facts["advice"]


def test_the_facts_of_a_source_are_an_object(walsh, declare):
    declare(A, B)
    rows = [json.loads(line) for line in walsh("sources", B, A, "--json")[1].splitlines()]
    assert [(row["url"], row["is_due"]) for row in rows] == [(B, True), (A, True)]


def test_a_url_of_no_source_is_an_error_with_the_nearest(walsh, declare):
    declare(A)
    for words in (["http://a.example/fed"], ["resume", "http://a.example/fed"]):
        status, out, error = walsh("sources", *words)
        assert (status, out) == (1, "")
        assert f"did you mean {A}?" in error


@pytest.mark.parametrize("words", [["resume", A, "--due"], ["resume", A, "--json"]])
def test_an_option_of_the_list_is_not_one_of_an_action(walsh, declare, words):
    declare(A)
    assert walsh("sources", *words)[:2] == (2, "")


def test_a_file_that_cannot_be_read_is_an_error(walsh):
    status, out, error = walsh("sources")
    assert (status, out) == (1, "")
    assert "sources.txt" in error


def test_a_url_means_itself_or_another_spelling_or_nothing():
    known = [A, f"{A}/", "http://b.example/x"]
    assert find_sources(A, known) == known[:1]
    assert find_sources("HTTP://B.example:80/x#top", known) == known[2:]
    assert find_sources("http://A.example/feed", known) == known[:2]
    with pytest.raises(UnknownSource, match=r"did you mean http://b\.example/x\?"):
        find_sources("http://b.example/y", known)
    with pytest.raises(UnknownSource, match="sources --all"):
        find_sources("\x1b", known)


# A state that may only be read.


def only_read(walsh, declare):
    """What the list says of the last crawl, before and after a change of the file."""
    before = walsh("sources")
    declare(A, B)
    return before, walsh("sources")


def check_only_read(before, after):
    status, out, error = before
    assert (status, error) == (0, "")
    assert out.splitlines()[1].endswith(A)
    status, out, error = after
    assert status == 0
    assert B not in out
    assert error.count("\n") == 1
    assert "sources.txt has changed" in error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_may_only_be_read_is_listed(walsh, declare, tmp_path):
    declare(A)
    walsh("sources", "sync")
    folder = tmp_path / "state"
    (folder / "walsh.sqlite3").chmod(0o400)
    folder.chmod(0o500)
    try:
        check_only_read(*only_read(walsh, declare))
    finally:
        folder.chmod(0o700)


@pytest.mark.postgresql
def test_a_role_that_may_only_read_gets_the_list(called, declare, postgresql_url, tmp_path):
    """The list of its file, although another one was read last."""
    declare(A)
    write_sources(tmp_path / "other.txt", [B])
    owner = partial(called, WALSH_STATE_URL=postgresql_url, WALSH_SOURCES="sources.txt")
    for file in ("sources.txt", "other.txt"):
        assert owner("sources", "sync", "--sources", file)[0] == 0
    engine = create_engine(make_url(postgresql_url), isolation_level="AUTOCOMMIT")
    role = f"reader_{make_url(postgresql_url).database}"
    with engine.connect() as connection:
        connection.execute(text(f'CREATE ROLE "{role}" LOGIN'))
        try:
            connection.execute(text(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{role}"'))
            url = make_url(postgresql_url).set(username=role)
            reader = partial(called, WALSH_STATE_URL=str(url), WALSH_SOURCES="sources.txt")
            check_only_read(*only_read(reader, declare))
            status, out, error = reader("status", "--since-last", "cron")
            assert (status, out) == (3, "")
            assert "needs a role that may write" in error
        finally:
            connection.execute(text(f'DROP OWNED BY "{role}"'))
            connection.execute(text(f'DROP ROLE "{role}"'))
    engine.dispose()
