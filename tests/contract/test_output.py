"""The output of a run: exports in every format, the summary, and the exit status."""

import csv
import json
from dataclasses import fields
from xml.etree import ElementTree as ET

from tests.helpers.sites import feed, site
from walsh_scrapy.items import EntryItem
from walsh_scrapy.testing.feeds import Post, json_feed
from walsh_scrapy.testing.web import Reply

COLUMNS = [field.name for field in fields(EntryItem)]


def test_every_export_has_the_same_columns(loopback_web, crawl, tmp_path):
    web = loopback_web(site("blog.example"))
    files = {suffix: tmp_path / f"items.{suffix}" for suffix in ("json", "jsonl", "csv", "xml")}
    exports = json.dumps({str(path): {"format": suffix} for suffix, path in files.items()})
    crawl(web, sources=["http://blog.example/feed"], settings={"FEEDS": exports})
    read = {
        "json": json.loads(files["json"].read_text()),
        "jsonl": [json.loads(line) for line in files["jsonl"].read_text().splitlines()],
        "csv": list(csv.DictReader(files["csv"].read_text().splitlines())),
        "xml": [
            {field.tag: field.text for field in item} for item in ET.parse(files["xml"]).getroot()
        ],
    }
    for suffix, items in read.items():
        assert [list(item) for item in items] == [COLUMNS, COLUMNS], suffix
        assert [item["url"] for item in items] == ["http://blog.example/1", "http://blog.example/2"]
    assert read["json"] == read["jsonl"]
    first = read["json"][0]
    assert first["kind"] == "feed"
    assert first["published"] == "2026-01-01T12:00:00Z"
    assert first["first_seen"].endswith("Z")
    assert first["section"] is None


def test_a_failed_feed_does_not_affect_the_others_or_the_exit_status(loopback_web, crawl):
    bomb = (
        '<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
        "<rss version='2.0'><channel><title>&b;</title></channel></rss>"
    )
    web = loopback_web(
        site("gone.example", feed=Reply(status=410)),
        site("broken.example", feed=Reply("<rss><channel><item>", content_type="text/xml")),
        site("bomb.example", feed=Reply(bomb, content_type="text/xml")),
        site("json.example", feed=Reply(json_feed("J", ["1"], "http://json.example/"))),
        site("blog.example"),
    )
    hosts = ("gone", "broken", "bomb", "json", "blog", "nowhere")
    result = crawl(
        web,
        sources=[f"http://{host}.example/feed" for host in hosts],
        settings={"RETRY_TIMES": 0, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.5},
    )
    assert result.exit_code == 0
    assert "Traceback" not in result.stderr
    assert {item["source_title"] for item in result.items} >= {"J", "Feed"}
    outcomes = ("fetched", "failed", "gone")
    ended = [result.stats.get(f"walsh/sources/{outcome}", 0) for outcome in outcomes]
    assert sum(ended) == len(hosts)
    assert "http://gone.example/feed is gone (410) and not asked for again" in result.stderr


def test_an_entry_that_breaks_the_schema_is_left_out_alone(loopback_web, crawl):
    web = loopback_web(
        site("blog.example", feed=feed(posts=[Post("Long", id="x" * 5000), "Short"]))
    )
    result = crawl(web, sources=["http://blog.example/feed"])
    assert [item["title"] for item in result.items] == ["Short"]
    assert "an item is left out: " in result.stderr
