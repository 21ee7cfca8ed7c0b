"""Exports that are killed at any moment: the former file stays whole, or lines do."""

import csv
import gzip
import io
import json
from contextlib import ExitStack, closing
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from scrapy import Spider
from scrapy.utils.test import get_crawler

from walsh_scrapy.feeds.feedexport import FeedExporter, FileFeedStorage

STORAGE = "walsh_scrapy.feeds.feedexport.FileFeedStorage"
FORMATS = ["jsonl", "json", "csv", "xml"]
LONG = "\u00e9" * 20_000  # more than Python buffers by default


def items(*titles):
    return [{"title": title, "note": LONG} for title in titles]


class Run:
    """A run with one export, which may end or be killed."""

    def __init__(self, path, **options):
        settings = {
            "FEEDS": {str(path): options},
            "FEED_STORAGES": {"": STORAGE, "file": STORAGE},
            "FEED_EXPORT_ENCODING": "utf-8",
        }
        self.crawler = get_crawler(Spider, settings)
        self.exporter = FeedExporter.from_crawler(self.crawler)
        self.spider = SimpleNamespace(name="a", crawler=self.crawler)
        self.exporter.open_spider(self.spider)

    def write(self, *titles):
        for item in items(*titles):
            self.exporter.item_scraped(item, self.spider)
        return self

    def end(self):
        for slot in self.exporter.slots:
            slot.start_exporting()
            slot.finish_exporting()
            slot.storage.store(self.exporter._get_file(slot))

    def close(self):
        for slot in self.exporter.slots:
            slot.storage.give_up(OSError("the test is over"))


@pytest.fixture
def start():
    """Start runs; those that a test leaves as if they were killed are closed at its end."""
    with ExitStack() as stack:
        yield lambda path, **options: stack.enter_context(closing(Run(path, **options)))


def names(folder):
    return {path.name for path in folder.iterdir()}


def read(path, kind):
    text = path.read_text(encoding="utf-8")
    if kind == "csv":
        return [row["title"] for row in csv.DictReader(io.StringIO(text))]
    if kind == "xml":
        return [found.text for found in ET.fromstring(text).iter("title")]
    found = json.loads(text) if kind == "json" else map(json.loads, text.splitlines())
    return [item["title"] for item in found]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_is_replaced_when_the_new_one_is_whole(start, tmp_path, kind):
    path = tmp_path / f"items.{kind}"
    start(path, format=kind, overwrite=True).write("1", "2").end()
    path.chmod(0o640)
    killed = start(path, format=kind, overwrite=True).write("3")
    assert read(path, kind) == ["1", "2"]
    (part,) = names(tmp_path) - {path.name}
    assert part.startswith(f".items.{kind}.")
    killed.end()
    assert read(path, kind) == ["3"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == {path.name}


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_what_is_added_to_a_file_is_whole_lines_at_every_moment(start, tmp_path, kind):
    path = tmp_path / f"items.{kind}"
    run = start(path, format=kind)
    for title in ("1", "2", "3"):
        run.write(title)
        assert read(path, kind)[-1] == title
        assert path.read_bytes()[-1:] == b"\n"


@pytest.mark.parametrize(
    ("kind", "there", "then"),
    [
        ("jsonl", b'{"title": "1"}\n', b""),
        ("jsonl", b'{"title": "1"}', b"\n"),
        ("jsonl", b'{"title": "1"}\n{"ti', b"\n"),
        ("csv", b"title\r\n1\r\n2", b"\n"),
        ("jsonl", b"", b""),
        ("json", b"[\n]", b""),  # such files cannot be joined, whatever is between them
        ("xml", b"<items></items>", b""),
    ],
)
def test_a_last_line_without_end_is_not_joined_to_the_next(start, tmp_path, kind, there, then):
    path = tmp_path / f"items.{kind}"
    path.write_bytes(there)
    start(path, format=kind).write("new")
    whole = path.read_bytes()
    assert whole.startswith(there + then)
    assert whole[len(there + then) : len(there + then) + 1] in (b"{", b"t", b"[", b"<")


def test_a_compressed_export_gets_no_extra_line_end(start, tmp_path):
    path = tmp_path / "items.jsonl.gz"
    gzipped = ["scrapy.extensions.postprocessing.GzipPlugin"]
    for title in ("1", "2"):
        start(path, format="jsonl", postprocessing=gzipped).write(title).end()
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert [json.loads(line)["title"] for line in lines] == ["1", "2"]


def test_an_export_that_is_given_up_leaves_the_former_file(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text("former\n")
    storage = FileFeedStorage(str(path), feed_options={"overwrite": True, "format": "jsonl"})
    storage.open(Spider("a")).write(b"new\n")
    storage.give_up(OSError("full"))
    assert names(tmp_path) == {"items.jsonl"}
    assert path.read_text() == "former\n"


def test_batches_and_file_uris_are_files_of_their_own(start, tmp_path):
    uri = (tmp_path / "a folder").as_uri() + "/%(batch_id)d.jsonl"
    run = start(uri, format="jsonl", overwrite=True, batch_item_count=1)
    closed = []
    run.exporter._schedule_slot_close = lambda slot, _spider: closed.append(slot)
    run.write("1", "2")
    for slot in closed:
        slot.storage.store(slot.file)
    found = {file.name: read(file, "jsonl") for file in (tmp_path / "a folder").iterdir()}
    assert found == {"1.jsonl": ["1"], "2.jsonl": ["2"]}
