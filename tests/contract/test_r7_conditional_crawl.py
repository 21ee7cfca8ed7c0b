"""R7 in crawls: validators byte for byte, 304, and every entry once (decisions 17 and 19)."""

import gzip
import json
import time
import zlib
from collections import Counter
from dataclasses import replace
from random import Random, random

import pytest

from tests.helpers.sites import feed, judge, log_lines, rows_of, site, trouble
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.web import Reply, Site, redirect

MODIFIED = "Thu, 01 Jan 2026 12:00:00 GMT"


def sent(hit):
    return hit.header("If-None-Match"), hit.header("If-Modified-Since")


def feeds(result):
    return [hit for hit in result.log if hit.path != "/robots.txt"]


VALIDATORS = {
    "both.example": ('"abc"', MODIFIED),
    "weak.example": ('W/"weak, with a comma"', None),
    "unquoted.example": ("unquoted", None),
    "asctime.example": (None, "Thu Jan  1 12:00:00 2026"),
    "odd.example": ('"caf\xe9"', "yesterday"),
}


def test_validators_are_echoed_exactly_and_304_is_no_new_data(direct_web, crawl, again):
    web = direct_web(
        *(
            site(host, feed=feed(host=host, etag=etag, last_modified=modified))
            for host, (etag, modified) in VALIDATORS.items()
        )
    )
    sources = [f"http://{host}/feed" for host in VALIDATORS]
    counted = trouble("CountedTransactions")
    first = crawl(web, sources=sources, settings=counted)
    rows_of(crawl, "UPDATE hosts SET request_ended_at = request_ended_at - 60")
    second = again(web, sources=sources, settings=counted)
    assert {hit.host: sent(hit) for hit in feeds(first)} == dict.fromkeys(VALIDATORS, (None, None))
    assert {hit.host: sent(hit) for hit in feeds(second)} == VALIDATORS
    assert [hit.status for hit in feeds(second)] == [304] * len(VALIDATORS)
    assert Counter(item["source"] for item in first.items) == dict.fromkeys(sources, 2)
    assert second.items == []
    assert second.stats["walsh/sources/unchanged"] == len(VALIDATORS)
    made = [run.stats["transactions"] for run in (first, second)]
    assert made == [4 * len(VALIDATORS) + 3, 3 * len(VALIDATORS) + 3], "and what is done once"
    judge(first, conditional=True)


def test_validators_belong_to_one_url_and_do_not_travel(simulated):
    moved = redirect("http://new.example/feed", 302)
    _, second, third = simulated(
        site("old.example", feed=[feed(etag='"old"'), moved, moved]),
        site("new.example", feed=feed(etag='"new"')),
        sources=["http://old.example/feed"],
        starts=[0.0, DAY + 60.0, 2 * DAY + 120.0],
    )
    assert [(hit.host, sent(hit)[0]) for hit in feeds(second)] == [
        ("old.example", '"old"'),
        ("new.example", None),
    ]
    assert [(hit.host, sent(hit)[0], hit.status) for hit in feeds(third)] == [
        ("old.example", None, 302),
        ("new.example", '"new"', 304),
    ]


def test_an_unrequested_304_and_empty_validators_are_ignored(simulated):
    first, second = simulated(
        site("odd.example", feed=Reply(status=304)),
        site("empty.example", feed=feed(headers={"ETag": "", "Last-Modified": ""})),
        sources=["http://odd.example/feed", "http://empty.example/feed"],
        starts=[0.0, 2 * DAY],
        arguments={"force": "1"},
    )
    assert first.stats["walsh/sources/failed"] == 1
    assert {sent(hit) for hit in feeds(second)} == {(None, None)}


COUNT = 600
CODINGS = {"gzip": ("gzip", gzip.compress), "zlib": ("deflate", zlib.compress)}


def test_validators_of_markdown_that_was_cut_off_are_not_kept(direct_web, again):
    """Otherwise a 304 would hide the missing entries until the ETag changes."""
    # More than a block of any coding.
    names = [" ".join(map(str, (n, *(random() for _ in range(7))))) for n in range(COUNT)]
    links = (f"- [{name}](http://x.example/{name.replace(' ', '/')})" for name in names)
    document = "\n".join(("# B", *links))

    def answers(coding, compress):
        packed = compress(document.encode())
        more = {
            "content_type": "text/markdown",
            "etag": '"1"',
            "headers": {"Content-Encoding": coding},
        }
        return [Reply(packed[: len(packed) * 4 // 5], **more), Reply(packed, **more)]

    pages = {name: answers(*coding) for name, coding in CODINGS.items()}
    web = direct_web(*(site(f"{name}.example", feed=page) for name, page in pages.items()))
    sources = [{"url": f"http://{name}.example/feed", "kind": "llms"} for name in pages]
    first, second, third = (again(web, "llms", sources=sources) for _ in range(3))
    accepted = {hit.header("Accept-Encoding") for hit in feeds(first)}
    assert accepted == {"gzip, deflate"}, "it is asked for"
    assert (
        first.stats["walsh/sources/fetched"] == second.stats["walsh/sources/fetched"] == len(pages)
    )
    assert {sent(hit)[0] for hit in feeds(second)} == {None}
    assert third.stats["walsh/sources/unchanged"] == len(pages)
    assert 0 < len(first.items) < COUNT
    assert len(first.items) + len(second.items) == COUNT
    for name in pages:
        (line,) = log_lines(first, f"http://{name}.example/feed", "cut off")
        assert line.count(f"{name}.example") == 1
    assert "cut off" not in second.stderr


def test_killed_at_any_moment_no_entry_is_lost_or_repeated(direct_web, crawl):
    """The state decides: an entry that a killed run has exported is never new again."""
    seeded = Random(16)
    hosts = [f"h{number}.example" for number in range(6)]
    web = direct_web(
        *(
            site(host, feed=Reply(rss(host, ["1", "2"], f"http://{host}/"), etag='"1"'))
            for host in hosts
        )
    )
    options = {
        "sources": [f"http://{host}/feed" for host in hosts],
        # Each run adds to one file, which the state outlives.
        "settings": {
            "DOWNLOAD_TIMEOUT": 5,
            "FEEDS": json.dumps({str(crawl.folder / "all.jsonl"): {"format": "jsonl"}}),
        },
    }
    for _ in range(5):
        killed = crawl(web, **options, kill_when=lambda log: log and seeded.random() < 0.15)
        assert killed.exit_code in (-9, 0)
        # As if the time of its request and its own were over (see test_r4_pacing_crawl.py).
        soon = [time.time() + 1.0]
        rows_of(
            crawl, "UPDATE hosts SET owner = '', in_flight_until = min(in_flight_until, ?)", soon
        )
    last = crawl(web, **options)
    assert last.exit_code == 0
    judge(web)
    assert rows_of(crawl, "PRAGMA integrity_check") == [("ok",)]
    assert rows_of(crawl, "SELECT count(*) FROM entries") == [(12,)]
    forced = crawl(web, **options, arguments={"force": "1"})
    assert {hit.status for hit in feeds(forced)} == {304}
    exported = (crawl.folder / "all.jsonl").read_text().splitlines()
    links = [json.loads(line)["url"] for line in exported]
    assert len(links) == len(set(links)), "no line is half, and no entry is there twice"


@pytest.mark.parametrize(
    ("pack", "headers"),
    [(bytes, {"Content-Encoding": "gzip"}), (gzip.compress, {})],
    ids=["announced and plain", "gzip and not announced"],
)
def test_the_first_bytes_decide_whether_a_document_is_packed(simulated, pack, headers):
    page = feed()
    reply = replace(page, body=pack(page.content()), headers=headers)
    rules = Reply(pack(b"User-agent: *\nDisallow: /private\n"), headers=headers)
    (result,) = simulated(
        Site("a.example", rules, {"/feed": reply, "/private": reply}),
        sources=[f"http://a.example/{path}" for path in ("feed", "private")],
    )
    assert result.stats["walsh/sources/fetched"] == 1
    assert result.stats["walsh/sources/denied/robots"] == 1
