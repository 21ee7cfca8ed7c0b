"""`walsh add FILE`: the sources of a file are merged into the sources file, without a request."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.sites import paths, site
from walsh_scrapy.feeds.sources.loading import MAX_DELAY, load_sources
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.tools.call import Call
from walsh_scrapy.tools.sourcesfile import SourcesFile

OPML = """<opml version="2.0" xmlns:walsh="tag:wal.sh,2026:opml"><body>
<outline text="News"><outline text="Daily">
  <outline text="A &quot;x&quot;" xmlUrl="https://a.example/feed" htmlUrl="https://a.example/"
    category="local" walsh:every="P7D" walsh:delay="PT10S"/>
</outline></outline>
<outline text="Docs" type="llms" xmlUrl="https://docs.example/"/>
<outline text="Again" xmlUrl="https://A.example/feed/"/>
<outline text="Known" xmlUrl="https://known.example/feed"/>
<outline text="Dead" type="rss"/>
</body></opml>"""
KNOWN = '# ours\n[[source]]\nurl = "https://known.example/feed" # first\n'
A = Source(
    "https://a.example/feed",
    name='A "x"',
    tags=("News", "Daily", "local"),
    every=timedelta(days=7),
    delay=timedelta(seconds=10),
)
DOCS = Source("https://docs.example/", kind="llms", name="Docs")


@pytest.fixture
def add(called, tmp_path, monkeypatch):
    """Return a function that calls `walsh add` on a sources file; a request would be an error."""
    monkeypatch.setattr(Call, "crawl", lambda *_, **__: pytest.fail("it crawls"))
    (tmp_path / "sources.toml").write_text(KNOWN)
    (tmp_path / "subs.opml").write_text(OPML)
    return lambda *words: called("add", *words)


def test_an_import_says_what_is_new_known_repeated_and_left_out(add):
    status, out, error = add("subs.opml")
    assert (status, error) == (0, "")
    *lines, left_out, counts = out.splitlines()
    assert lines == [
        "added https://a.example/feed to sources.toml",
        "added https://docs.example/ (kind 'llms') to sources.toml",
        "https://known.example/feed is already in sources.toml",
        "subs.opml: outline 5 ('Again') repeats https://a.example/feed",
    ]
    assert left_out.startswith("subs.opml: left out outline 7 ('Dead'): the URL is missing")
    assert counts == "2 sources added, 1 already in sources.toml, 1 repeated, 1 left out"


def test_an_import_keeps_the_file_and_what_toml_can_say(add, tmp_path):
    add("subs.opml")
    file = tmp_path / "sources.toml"
    assert file.read_text().startswith(KNOWN)
    assert load_sources(file)[1:] == (A, DOCS)


def test_a_second_import_writes_nothing(add, tmp_path):
    add("subs.opml")
    before = (tmp_path / "sources.toml").stat()
    status, out, _ = add("subs.opml")
    assert (status, out.splitlines()[-1].partition(",")[0]) == (0, "0 sources added")
    assert (tmp_path / "sources.toml").stat() == before


def test_several_files_are_one_import(add, tmp_path):
    (tmp_path / "more.txt").write_text("https://a.example/feed\nhttps://new.example/feed\n")
    (tmp_path / "more.toml").write_text('[defaults.x]\nevery = "P2D"\n[[source]]\n'
        'url = "https://tagged.example/"\ntags = ["x"]\n')  # fmt: skip
    status, out, _ = add("subs.opml", "more.txt", "more.toml")
    assert status == 0
    assert "more.txt: line 1 repeats https://a.example/feed" in out
    urls = {source.url: source for source in load_sources(tmp_path / "sources.toml")}
    assert len(urls) == 5
    assert urls["https://tagged.example/"].every == timedelta(days=2)


def test_an_imported_source_gets_the_defaults_of_the_file(add, tmp_path):
    file = tmp_path / "sources.toml"
    file.write_text(KNOWN + '[defaults.News]\nevery = "P30D"\n[defaults.x]\ndelay = 5\n')
    (tmp_path / "more.toml").write_text('[[source]]\nurl = "https://x.example/"\ntags = ["x"]\n')
    assert add("subs.opml", "more.toml")[0] == 0
    _, a, _, x = load_sources(file)
    assert a == A, "its own value counts"
    assert x.delay == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("bad.txt", "https://a.example/\nftp://b.example/\n", "bad.txt: line 2"),
        ("bad.toml", "[[source]\n", "bad.toml: this is not TOML"),
        ("bad.opml", "<rss/>", "not OPML"),
        ("empty.opml", "<opml/>", "no source"),
        ("feeds.csv", "https://a.example/", "extension"),
    ],
)
def test_a_file_that_is_refused_changes_nothing(add, tmp_path, name, body, words):
    (tmp_path / name).write_text(body)
    status, out, error = add("subs.opml", name)
    (line,) = error.splitlines()
    assert (status, out) == (1, "")
    assert words in line
    assert (tmp_path / "sources.toml").read_text() == KNOWN


def test_a_list_of_urls_refuses_what_it_cannot_keep(add, tmp_path):
    """It has no place for `every` and `delay`, so sources would be visited too often."""
    (tmp_path / "subs.opml").write_text(OPML.replace(' type="llms"', ""))
    status, _, error = add("subs.opml", "--sources", "list.txt")
    assert status == 1
    assert "use a .toml file" in error
    assert not (tmp_path / "list.txt").exists()


def test_an_incomplete_file_is_imported_with_a_warning(add, tmp_path):
    (tmp_path / "subs.opml").write_text(OPML.partition('<outline text="Again"')[0])
    status, out, error = add("subs.opml")
    assert status == 0
    assert "2 sources added" in out
    assert "</opml>" in error


def test_eight_hundred_feeds_are_written_at_once(add, tmp_path, monkeypatch):
    outlines = "".join(f'<outline xmlUrl="https://{n}.example/feed"/>' for n in range(800))
    (tmp_path / "subs.opml").write_text(f"<opml><body>{outlines}</body></opml>")
    written = []
    original = SourcesFile._append
    monkeypatch.setattr(
        SourcesFile, "_append", lambda file, new: written.append(len(new)) or original(file, new)
    )
    assert add("subs.opml")[0] == 0
    assert written == [800]
    assert len(load_sources(tmp_path / "sources.toml")) == 801


def test_files_and_urls_are_added_by_one_call(loopback_web, on_state, tmp_path):
    web = loopback_web(site("blog.example"))
    (tmp_path / "subs.txt").write_text("http://listed.example/feed\n")
    keep_empty_blocklist(f"sqlite:///{tmp_path / 'crawl' / 'walsh.sqlite3'}")
    done = on_state(
        *("add", tmp_path / "subs.txt", "http://blog.example/feed", "http://listed.example/feed"),
        environment=web.environment,
        settings={"WALSH_BLOCKLIST_SCHEMA_URL": ""},
    )
    assert done.returncode == 0, done.stderr
    assert paths(web.log) == ["blog.example/robots.txt", "blog.example/feed"]
    urls = [source.url for source in load_sources(tmp_path / "sources.txt")]
    assert urls == ["http://listed.example/feed", "http://blog.example/feed"]
    assert "http://listed.example/feed is already in" in done.stdout


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LENGTHS = st.timedeltas(timedelta(microseconds=1), MAX_DELAY)
SOURCES = st.builds(
    Source,
    url=st.sampled_from(["https://a.example/", "https://b.example/x?y=%22"]),
    kind=st.sampled_from(["feed", "llms"]),
    name=st.none() | TEXT.filter(bool),
    tags=st.lists(TEXT, unique=True, max_size=4).map(tuple),
    every=st.none() | LENGTHS,
    delay=st.none() | LENGTHS,
    page=st.none() | st.just("https://a.example/"),
)


@given(SOURCES)
def test_any_source_is_read_back_as_it_was_added(tmp_path_factory, source):
    file = tmp_path_factory.mktemp("any") / "sources.toml"
    assert len(list(SourcesFile(str(file)).add([source]))) == 1
    assert load_sources(file) == (replace(source, page=None),)
