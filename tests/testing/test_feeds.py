"""The feed builders and the fake clock."""

import io
import json
from datetime import UTC, datetime, timedelta

import feedparser
import pytest

from walsh_scrapy.testing.clock import FakeClock
from walsh_scrapy.testing.feeds import Post, atom, json_feed, rss

LINK = "http://a.example/"
POSTS = ["One", Post("<Two> & 'more'", "http://a.example/2?a=1&b=2", "tag:2"), Post("Bare", None)]


@pytest.mark.parametrize(("build", "version"), [(rss, "rss20"), (atom, "atom10")])
def test_xml_feeds_parse(build, version):
    parsed = feedparser.parse(io.BytesIO(build("A & B", POSTS, LINK).encode()))
    assert (parsed.bozo, parsed.version, parsed.feed.title) == (False, version, "A & B")
    one, two, bare = parsed.entries
    assert (one.title, one.link, one.id) == ("One", "http://a.example/1", "http://a.example/1")
    assert (two.link, two.id) == ("http://a.example/2?a=1&b=2", "tag:2")
    assert one.published_parsed[:5] == (2026, 1, 1, 12, 0)
    assert "link" not in bare


def test_json_feed():
    feed = json.loads(json_feed("A", [*POSTS, Post("Undated", published=None)], LINK))
    assert feed["version"] == "https://jsonfeed.org/version/1.1"
    assert [item.get("id") for item in feed["items"]] == [f"{LINK}1", "tag:2", None, None]
    assert feed["items"][0]["date_published"] == "2026-01-01T12:00:00+00:00"
    assert feed["items"][3] == {"title": "Undated"}


def test_the_clock_moves_only_by_advance(fake_clock):
    assert fake_clock.now() == fake_clock.now()
    assert fake_clock.datetime() == datetime(2026, 1, 1, tzinfo=UTC)
    assert fake_clock.advance(1.5) == fake_clock.now()
    fake_clock.advance(timedelta(days=1))
    assert fake_clock.datetime() == datetime(2026, 1, 2, 0, 0, 1, 500_000, tzinfo=UTC)
    with pytest.raises(ValueError, match="does not go back"):
        fake_clock.advance(-1)


def test_the_clock_starts_at_the_given_time():
    start = datetime(2030, 1, 1, tzinfo=UTC)
    assert FakeClock(start).now() == start.timestamp() == FakeClock(start.timestamp()).now()
