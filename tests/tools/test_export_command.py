"""`scrapy export`: what runs exported, whole or not at all, also beside a crawl."""

import csv
import json
import sqlite3
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from tests.helpers.sites import feed, rows_of, site
from walsh_scrapy.items import EntryItem
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.testing.feeds import Post, atom
from walsh_scrapy.testing.web import Reply

POSTS = ["Plain", 'Quoted "x", and; comma', "ü \U0001f600 <b>&amp;</b>", "=1+1", "\u2028 line"]
SOURCES = [
    {"url": "http://blog.example/feed", "name": "Blog & more", "tags": ["a", "b"]},
    {"url": "http://other.example/feed"},
]
FORMATS = ("jsonl", "json", "csv")
ADDED = ("source_name", "source_tags", "source_folder", "backfill", "also_in")
COLUMNS = [field.name for field in fields(EntryItem)]


@pytest.fixture
def export(tmp_path, on_state):
    """Run `scrapy export` on the state that the crawls of this test share."""

    def run(*arguments, **settings):
        file = tmp_path / "sources.json"
        file.write_text(json.dumps(SOURCES))
        given = {"WALSH_SOURCES": file} | settings
        return on_state("export", *arguments, settings=given, encoding=None)

    return run


@pytest.fixture
def web(loopback_web):
    other = atom("Other", [Post("Ä", "http://other.example/ä")], "http://other.example/")
    return loopback_web(
        site("blog.example", feed=feed(posts=POSTS)),
        site("other.example", feed=Reply(other, content_type="application/atom+xml")),
    )


def read(file, ending):
    """The rows of an export, sorted."""
    text = file.read_text("utf-8")
    if ending == "json":
        items = json.loads(text)
    elif ending == "csv":
        items = list(csv.DictReader(text.splitlines(keepends=True)))
    else:
        items = [json.loads(line) for line in text.split("\n")[:-1]]
    return sorted(items, key=lambda item: (item["source"], item["url"]))


@pytest.mark.parametrize(
    "settings",
    [{}, {"FEED_EXPORT_INDENT": 2}, {"FEED_EXPORT_FIELDS": "url,source", "FEED_EXPORT_INDENT": 0}],
)
def test_every_format_is_what_the_run_exported(web, crawl, export, tmp_path, settings):
    runs = {ending: tmp_path / f"run.{ending}" for ending in FORMATS}
    feeds = json.dumps({str(file): {"format": ending} for ending, file in runs.items()})
    crawl(web, sources=SOURCES, settings={"FEEDS": feeds} | settings)
    for ending, run in runs.items():
        file = tmp_path / f"export.{ending}"
        result = export("-o", file, **settings)
        assert result.returncode == 0, result.stderr
        assert result.stderr == f"6 entries written to {file}\n".encode()
        added = () if "FEED_EXPORT_FIELDS" in settings else ADDED
        rows = read(file, ending)
        assert {tuple(row)[-len(ADDED) :] for row in rows} == {added or ("url", "source")}
        ours = [{name: row[name] for name in row if name not in added} for row in rows]
        assert ours == read(run, ending), ending
        if not added:  # to the byte, but for the order of one response's entries
            assert sorted(file.read_bytes()) == sorted(run.read_bytes()), ending
        elif not settings:
            assert [list(row) for row in ours] == [COLUMNS] * 6


def test_several_runs_are_one_record_in_the_order_they_saw_it(loopback_web, crawl, again, export):
    pages = [feed(posts=["One"]), feed(posts=["Two", "Three"], host="next.example")]
    web = loopback_web(site("blog.example", feed=pages))
    sources = ["http://blog.example/feed"]
    crawl(web, sources=sources)
    rows_of(crawl, "UPDATE entries SET first_seen = first_seen - 20")
    between = (datetime.now(UTC) - timedelta(seconds=10)).isoformat(timespec="milliseconds")
    again(web, sources=sources)
    titles = [json.loads(line)["title"] for line in export("-o", "-").stdout.splitlines()]
    assert titles[0] == "One"
    assert sorted(titles[1:]) == ["Three", "Two"]
    assert export("-o", "-").stdout == export("-o", "-").stdout
    new = export("-o", "-", "--no-backfill").stdout.splitlines()
    assert sorted(json.loads(line)["title"] for line in new) == ["Three", "Two"]
    for since, count in ((between, 2), ("P1D", 3), ("2999-01-01", 0), ("2020-01-01", 3)):
        result = export("-o", "-", "--since", since)
        assert len(result.stdout.splitlines()) == count, since
        assert result.stderr.startswith(f"{count} entries written to standard output".encode())


def test_what_is_exported_can_be_chosen(web, crawl, export, tmp_path):
    crawl(web, sources=SOURCES)

    def sources(*arguments):
        result = export("-o", "-", "--format", "json", *arguments)
        assert result.returncode == 0, result.stderr
        return {item["source"] for item in json.loads(result.stdout)}

    blog, other = (source["url"] for source in SOURCES)
    assert sources("--source", other) == {other}
    assert sources("--source", "HTTP://Other.example:80/feed", "--source", blog) == {blog, other}
    assert sources("--no-backfill") == set()
    new = tmp_path / "new.txt"
    new.write_text("http://new.example/feed")
    never_visited = ("--sources", new, "--source", "http://new.example/feed/")
    assert sources(*never_visited) == set()
    assert sources(*never_visited, "--source", blog) == {blog}


def test_the_sources_are_exported_as_opml_and_read_back(web, crawl, export, tmp_path):
    crawl(web, sources=SOURCES)
    file = tmp_path / "sources.opml"
    result = export("-o", file)
    assert (result.returncode, result.stdout) == (0, b"")
    assert result.stderr == f"2 sources written to {file}\n".encode()
    blog, other = load_sources(file)
    assert (blog.url, blog.name, blog.tags) == (
        "http://blog.example/feed",
        "Blog & more",
        ("a", "b"),
    )
    assert (other.url, other.name, other.tags) == ("http://other.example/feed", "Other", ())
    root = ET.fromstring(file.read_text("utf-8"))
    assert (root.tag, root.get("version")) == ("opml", "2.0")
    one = export("-o", "-", "--format", "opml", "--source", other.url)
    assert one.stdout.count(b"<outline") == 1


def test_opml_needs_no_state_and_makes_none(export, tmp_path):
    file = tmp_path / "sources.opml"
    assert export("-o", file).returncode == 0
    assert [source.url for source in load_sources(file)] == [source["url"] for source in SOURCES]
    assert not (tmp_path / "crawl").exists()


def test_an_existing_file_is_replaced_only_on_request_and_only_whole(web, crawl, export, tmp_path):
    crawl(web, sources=SOURCES)
    file = tmp_path / "old.jsonl"
    file.write_text("old")
    file.chmod(0o600)
    refused = export("-o", file)
    assert refused.returncode == 1
    assert refused.stderr == f"walsh-scrapy: {file} exists already; -O replaces it\n".encode()
    assert file.read_text() == "old"
    state = tmp_path / "crawl" / "walsh.sqlite3"
    with sqlite3.connect(state) as database:
        database.execute("UPDATE entries SET item = 'broken' WHERE source LIKE '%other%'")
    database.close()
    broken = export("-O", file)
    assert broken.returncode == 1
    assert b"in the state cannot be read" in broken.stderr
    assert len(broken.stderr.splitlines()) == 1
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []
    assert export("-O", file, "--source", SOURCES[0]["url"]).returncode == 0
    assert len(read(file, "jsonl")) == 5
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_is_made_and_a_link_followed_as_by_a_run(web, crawl, export, tmp_path):
    crawl(web, sources=SOURCES)
    assert export("-o", tmp_path / "new" / "folder" / "a.csv").returncode == 0
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "new" / "folder" / "a.csv")
    assert export("-O", link).returncode == 0
    assert link.is_symlink()
    assert export("-o", "/dev/null", "--format", "csv").returncode == 0


def test_a_place_that_takes_no_file_is_one_line(export, tmp_path):
    nowhere = export("-o", "/proc/nowhere/a.opml")
    assert nowhere.returncode == 1
    assert b"/proc/nowhere/a.opml cannot be written" in nowhere.stderr
    assert export("-O", tmp_path, "--format", "opml").returncode == 1
