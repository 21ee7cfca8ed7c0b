"""Our own trouble ends the run in order: one line, exit status 1, nothing lost (decision 29)."""

import json
import os

import pytest

from tests.helpers.sites import critical_line, feed, rows_of, site, trouble
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.testing.feeds import Post


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "xml"])
@pytest.mark.parametrize("posts", [2, 400])
def test_an_export_on_a_full_disk_ends_the_run_with_one_line(
    loopback_web, crawl, tmp_path, suffix, posts
):
    """A short export fails when it is closed, a long one before."""
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(posts)])))
    whole = tmp_path / "whole.jsonl"
    exports = {"/dev/full": {"format": suffix}, str(whole): {"format": "jsonl"}}
    result = crawl(
        web, sources=["http://blog.example/feed"], settings={"FEEDS": json.dumps(exports)}
    )
    line = critical_line(result)
    assert "the export /dev/full cannot be written: No space left on device" in line
    assert f"Stored jsonl feed ({posts} items) in: {whole}" in result.stderr
    assert "items) in: /dev/full" not in result.stderr
    assert len(whole.read_text().splitlines()) == posts
    assert rows_of(crawl, "SELECT count(*) FROM entries") == [(posts,)]
    assert result.stats["walsh/sources/fetched"] == 1


def test_what_a_full_disk_keeps_from_being_visited_is_still_due(loopback_web, crawl):
    many = [str(number) for number in range(400)]
    slow = "User-agent: *\nCrawl-delay: 3\n"
    web = loopback_web(
        site("big.example", feed=feed(posts=many)),
        site("late.example", slow, feed=feed(host="late.example")),
    )
    urls = ["http://big.example/feed", "http://late.example/feed"]
    full = {"FEEDS": json.dumps({"/dev/full": {"format": "csv"}})}
    result = crawl(web, sources=urls, settings=full)
    assert result.exit_code == 1
    assert result.stats["finish_reason"] == "export_failed"
    assert "failed" not in str(rows_of(crawl, "SELECT outcome FROM sources"))
    second = crawl(web, sources=urls)
    assert second.exit_code == 0
    assert rows_of(crawl, "SELECT DISTINCT source FROM entries ORDER BY 1") == [
        (url,) for url in urls
    ]


def test_a_file_that_may_not_grow_is_as_a_full_disk(loopback_web, crawl):
    posts = [Post(f"{number} {'x' * 500}") for number in range(1000)]
    web = loopback_web(site("blog.example", feed=feed(posts=posts)))
    result = crawl(web, sources=["http://blog.example/feed"], settings=trouble("SmallFiles"))
    line = critical_line(result)
    assert "File too large" in line or "disk I/O error" in line
    assert [each for each in result.folder.iterdir() if each.suffix == ".part"] == []


def test_a_state_on_a_full_disk_ends_the_run_with_one_line(loopback_web, crawl):
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(1000)])))
    result = crawl(web, sources=["http://blog.example/feed"], settings=trouble("FullState"))
    assert "database or disk is full; check the free space" in critical_line(result)
    assert result.stats["finish_reason"] == "state_failed"
    assert rows_of(crawl, "SELECT * FROM sources") == []
    second = crawl(web, sources=["http://blog.example/feed"])
    assert second.exit_code == 0
    assert len(second.items) == 1000, "no entry of the first run was committed"


@pytest.mark.parametrize("posts", [0, 2])
def test_an_export_that_cannot_be_opened_ends_the_run_with_1(loopback_web, crawl, tmp_path, posts):
    (tmp_path / "file").touch()
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(posts)])))
    exports = {str(tmp_path / "file" / "items.jsonl"): {"format": "jsonl"}}
    result = crawl(
        web, sources=["http://blog.example/feed"], settings={"FEEDS": json.dumps(exports)}
    )
    assert "items.jsonl cannot be written: " in critical_line(result)
    assert rows_of(crawl, "SELECT count(*) FROM entries") == [(posts,)]


def test_a_reader_that_closes_its_pipe_ends_the_run_with_1(run_scrapy, loopback_web, tmp_path):
    web = loopback_web(site("blog.example", feed=feed(posts=[str(n) for n in range(4000)])))
    (tmp_path / "sources.txt").write_text("http://blog.example/feed\n")
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    keep_empty_blocklist(state)
    reader, writer = os.pipe()
    os.close(reader)
    ended = run_scrapy(
        "crawl", "feeds", "-O", "-:jsonlines", "-s", f"WALSH_STATE_URL={state}",
        "-a", f"sources={tmp_path / 'sources.txt'}",
        environment=dict(web.environment), stdout=writer,
    )  # fmt: skip
    os.close(writer)
    assert ended.returncode == 1, ended.stderr
    assert "Broken pipe" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_log_on_a_full_disk_ends_the_run_with_one_line(direct_web, crawl):
    hosts = [f"h{number}.example" for number in range(3)]
    web = direct_web(*map(site, hosts))
    urls = [f"http://{host}/feed" for host in hosts]
    result = crawl(web, sources=urls, settings=trouble("FullLog") | {"LOG_LEVEL": "DEBUG"})
    assert result.exit_code == 1
    assert len(result.log) < 2 * len(hosts)
    told = result.stderr.partition(r"they say \x1b[2J" + "\n")[2]
    (line,) = told.splitlines()
    assert "walsh-scrapy: the log on standard error cannot be written: No space left" in line
    assert "free some space; the run ends, and what is due stays due" in line
    recorded = rows_of(crawl, "SELECT url, outcome FROM sources")
    assert {outcome for _, outcome in recorded} <= {"fetched"}
    assert rows_of(crawl, "SELECT count(*) FROM entries") == [(len(result.items),)]


def test_a_command_whose_output_is_on_a_full_disk_says_so_in_one_line(run_scrapy, tmp_path):
    (tmp_path / "sources.txt").write_text("http://blog.example/feed\n")
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - no file to be made
        ended = run_scrapy(
            "sources", "-s", f"WALSH_SOURCES={tmp_path / 'sources.txt'}",
            "-s", f"WALSH_STATE_URL=sqlite:///{tmp_path / 'state'}", stdout=full.fileno(),
        )  # fmt: skip
    assert ended.returncode == 1
    told = "walsh-scrapy: the output cannot be written: No space left on device\n"
    assert ended.stderr == told
