"""Visits of sources without a crawl: documents are read, and their entries stored."""

import json
from email.utils import format_datetime
from types import SimpleNamespace

from scrapy import Request
from scrapy.http import Response

from tests.helpers.histories import FEED
from tests.helpers.records import commit
from walsh_scrapy.crawl.ticket import set_visit
from walsh_scrapy.feeds.firstseen import DocumentItems
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.metadata.feed import parse_feed
from walsh_scrapy.feeds.metadata.llmstxt import parse_llms
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcevisit import SourceVisit
from walsh_scrapy.state.records import SourceRecord


class Visits:
    """Visits of sources of one state, each with one document."""

    def __init__(self, state):
        self.repeated = 0  #: of the last document
        self.listed = 0  #: entries in the last document
        self._state = state
        self._sources = set()

    def read(self, text, at, source=FEED, kind="feed"):
        """Read a document at a time, and return the titles of its new entries."""
        request = Request(source)
        set_visit(request, SourceVisit(Source(source), bool))
        context = SimpleNamespace(clock=SimpleNamespace(now=at.timestamp), run=None)
        headers = {"Date": format_datetime(at, usegmt=True)}
        parse = parse_llms if kind == "llms" else parse_feed
        feed = parse(text.encode(), url=source, content_type=None, source=source)
        items = DocumentItems(request, context, Response(source, headers=headers))
        for entry in feed.entries:
            items.add(EntryItem.from_entry(entry, feed=feed, source=source, kind=kind))
        record = SourceRecord(url=source, kind=kind, outcome="fetched", format="rss20")
        records = items.build_records()
        self.repeated, self.listed = items.repeated, len(feed.entries)
        if source not in self._sources:
            commit(self._state, record)
            self._sources.add(source)
        return [json.loads(entry.item)["title"] for entry in commit(self._state, record, records)]
