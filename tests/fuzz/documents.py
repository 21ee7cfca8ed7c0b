"""Documents of sites and of the operator: each is read or refused by its own error."""

import json
import logging
import re
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from scrapy import Request

from tests.fuzz.target import assert_bounded, assert_sentence
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.feed import parse_feed
from walsh_scrapy.metadata.llmstxt import parse_llms
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist, parse_local, sound_schema
from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.sources.files import UnreadableFile
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.sources.opml import read_opml
from walsh_scrapy.sources.source import SourcesError
from walsh_scrapy.testing.crawl import write_sources

URL = "https://blog.example/a/feed"
TOKEN = "Walsh-Research"
AT = datetime(2026, 11, 21, 3, 8, 56, tzinfo=UTC)
PATHS = ("/", "/robots.txt", "/a/b.xml?c=d/e", "/caf%C3%A9/%2F%7e", "/index.php?id=1&x=%zz")


def robots(body: bytes) -> None:
    """Any bytes are a robots.txt; all of its answers make sense."""
    file = RobotsTxt.parse(body)
    for token in (TOKEN, "Other"):
        rules = file.rules_for(token)
        for path in PATHS:
            verdict = rules.verdict(f"https://blog.example{path}")
            assert (verdict.line is None) == (verdict.rule is None)
            assert verdict.allowed or verdict.rule or verdict.undecided
        opens = rules.opens(AT)
        assert opens >= AT
        assert rules.opens(opens) == opens
        assert rules.interval(AT) is None or rules.interval(AT) > 0
        assert rules.crawl_delay is None or 0 <= rules.crawl_delay < float("inf")
        assert_bounded((rules.comments, rules.warnings), body, 20)


def blocklist(body: bytes) -> None:
    """An adopted list blocks each of its domains, and so it does when it is read again."""
    with suppress(InvalidBlocklist):
        _assert_blocks(parse_local(body, "own.txt"))
    try:
        adopted = Blocklist.parse(body)
    except InvalidBlocklist as error:
        assert_sentence(error, 2000)
        return
    assert Blocklist.of_text(adopted.text()) == adopted
    _assert_blocks(adopted)
    assert_bounded(dict(adopted.entries), body, 20)


def _assert_blocks(found: Blocklist) -> None:
    for domain in found.entries:
        host = f"[{domain}]" if ":" in domain else domain
        assert found.blocks(f"https://{host}/feed")


def schema(body: bytes) -> None:
    """A published schema is used or not; a sound one checks a list without an error of its own."""
    found = sound_schema(body)
    if found is not None:
        with suppress(InvalidBlocklist):
            Blocklist.parse(_LIST, found)


_LIST = b"""{"version": "walsh-research-blocklist/v1", "updated": "2026-05-23T00:00:00Z",
"contact": "j@wal.sh", "policy": "https://wal.sh/bot/", "refresh": "PT6H",
"blocked": [{"domain": "example.com", "added": "2026-05-23", "reason": "email opt-out"}]}"""


def feed(body: bytes) -> None:
    """A feed is read, or refused by one sentence; see `_assert_metadata`."""
    try:
        found = parse_feed(body, url=URL, content_type=None, source=URL)
    except NotAFeed as error:
        assert_sentence(error, 500)
    else:
        _assert_metadata(found, "feed", body)
        assert found.hints.opens(AT.timestamp()) >= AT.timestamp()


def llms(body: bytes) -> None:
    """A page of markdown is read, or refused by one sentence."""
    try:
        found = parse_llms(body, url=URL, content_type="text/markdown", source=URL)
    except NotAFeed as error:
        assert_sentence(error, 500)
    else:
        _assert_metadata(found, "llms", body)


def opml(body: bytes) -> None:
    """Subscriptions are read, or the file refused."""
    with suppress(UnreadableFile):
        assert_bounded([outline.tags for outline in read_opml(body).outlines], body, 300)


def sources(body: bytes) -> None:
    """A file of the operator declares targets that can be requested, or is refused in one line."""
    logger = logging.getLogger("walsh_scrapy.sources")
    logger.setLevel(logging.ERROR)
    try:
        _load(body)
    finally:
        logger.setLevel(logging.NOTSET)


def _load(body: bytes) -> None:
    for ending in (".toml", ".json", ".txt", ".opml"):
        file = _folder() / f"sources{ending}"
        file.write_bytes(body)
        try:
            found = load_sources(file)
        except SourcesError as error:
            assert_sentence(error, 2000)
        else:
            assert found
            assert all(each.url.startswith(("http://", "https://")) for each in found)
            assert all(each.url.isascii() and each.url.isprintable() for each in found)
            assert all(Request(each.url).url == each.url for each in found)
            written = write_sources(_folder() / "again.txt", [each.url for each in found])
            assert [each.url for each in load_sources(written)] == [each.url for each in found]


@cache
def _folder() -> Path:
    _folder.kept = TemporaryDirectory()
    return Path(_folder.kept.name)


def _assert_metadata(found, kind, body):
    """Each entry is an item of text that can be stored, on one line, with a key and a web URL."""
    for entry in found.entries:
        assert len(entry.key) == 64
        assert entry.url is None or re.fullmatch(r"(?i)https?://[^\s/?#]\S*", entry.url)
        for text in (entry.title, entry.section, entry.note, *entry.authors, *entry.tags):
            assert text is None or (text and text == " ".join(text.split()))
            assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", text or "")
        item = EntryItem.of_feed(entry, feed=found, source=URL, kind=kind)
        json.dumps(item.to_dict(), ensure_ascii=False).encode()
        with suppress(InvalidItem) if kind == "feed" else nullcontext():
            check(replace(item, first_seen="2026-05-23T00:00:00Z"))
    if kind == "llms":
        assert len({entry.key for entry in found.entries}) == len(found.entries)
    assert_bounded(found, body, 300)
