"""`scrapy backup`: a copy of the state in a new file, from which a crawl goes on."""

import contextlib
import sqlite3

import pytest

from tests.helpers.sites import feed, site
from walsh_scrapy.state import State


@pytest.fixture
def visited(loopback_web, crawl):
    """A state with one visit, and the web that was visited."""
    web = loopback_web(site("blog.example", feed=feed(etag='"1"')))
    crawl(web, sources=["http://blog.example/feed"])
    return web


def test_a_crawl_from_a_copy_asks_nothing_twice_and_says_what_it_is(
    visited, crawl, on_state, tmp_path
):
    """Nothing is due at first, and a forced visit has the validators of the state it came from."""
    file = tmp_path / "new" / "walsh.sqlite3"
    made = on_state("backup", "-o", file)
    assert (made.returncode, made.stderr) == (0, f"the state written to {file}\n")
    assert [each.name for each in file.parent.iterdir()] == ["walsh.sqlite3"]
    given = {"sources": ["http://blog.example/feed"]}
    given["settings"] = {"WALSH_STATE_URL": f"sqlite:///{file}"}
    again = crawl(visited, **given)
    assert again.log == []
    assert again.stderr.count("is another file than the last crawl opened") == 1
    forced = crawl(visited, **given, arguments={"force": "1"})
    assert [(hit.path, hit.status) for hit in forced.log] == [("/feed", 304)]
    assert "another file" not in forced.stderr


def test_a_file_that_is_there_is_replaced_on_request_and_only_by_a_whole_copy(
    visited, on_state, tmp_path
):
    file = tmp_path / "old.sqlite3"
    file.write_text("old")
    refused = on_state("backup", "-o", file)
    assert refused.returncode == 1
    assert refused.stderr == f"walsh-scrapy: {file} exists already; -O replaces it\n"
    assert file.read_text() == "old"
    assert on_state("backup", "-O", file).returncode == 0
    with contextlib.closing(sqlite3.connect(file)) as copy:
        assert copy.execute("SELECT count(*) FROM sources").fetchone() == (1,)


def test_a_state_on_a_server_is_left_to_its_own_program(on_state, postgresql_url, tmp_path):
    State(postgresql_url).close()
    file = tmp_path / "walsh.sqlite3"
    refused = on_state("backup", "-o", file, settings={"WALSH_STATE_URL": postgresql_url})
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "pg_dump --format=custom" in refused.stderr
    assert not file.exists()
