"""The feed builders."""

import io
import json

import feedparser
import pytest

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
