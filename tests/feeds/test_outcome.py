"""What came of a visit: its record, and what of its document is kept (decision 34)."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.asyncgen import as_async_generator
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.web._newclient import ParseError, ResponseNeverReceived

from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.ticket import (
    set_visit,
)
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.feeds import firstseen
from walsh_scrapy.feeds.firstseen import DocumentItems, _yield_in_turns
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.metadata.entries import Feed, NotAFeed
from walsh_scrapy.feeds.outcome import Deferral, Outcomes, Result, after_deferral, record_after
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcevisit import Lifetime, SourceVisit
from walsh_scrapy.feeds.stores.entrywriter import Written
from walsh_scrapy.policy.entrykeys import EntryKeys
from walsh_scrapy.state.engine import RefusedValues
from walsh_scrapy.state.records import SourceRecord

URL = "https://blog.example/feed"
SEEN, NOW = "2026-05-23T00:00:00Z", 1_779_494_400.0


def entry(number, published=None, title="x"):
    item = EntryItem(kind="feed", source=URL, title=title, published=published)
    item.keys = EntryKeys(str(number))
    return item


def items_of(*items):
    request, clock = Request(URL), SimpleNamespace(now=lambda: NOW)
    set_visit(request, SourceVisit(Source(URL), bool))
    found = DocumentItems(request, SimpleNamespace(clock=clock, run=None))
    for item in items:
        found.add(item)
    return found


def test_a_document_adds_its_newest_items_as_far_as_they_fit(monkeypatch):
    dates = [f"2026-05-{day}T00:00:00Z" for day in (21, 25, 23)]
    items = [entry(number, date) for number, date in enumerate([*dates, None])]
    records = items_of(*items).build_records()
    size = len(records[0].item.encode())
    assert {record.keys.page for record in records} == {"0", "1", "2", "3"}
    monkeypatch.setattr(firstseen, "MAX_STORED_BYTES", size * 2 + 10)
    kept = items_of(*items).build_records()
    assert [record.keys.page for record in kept] == ["1", "2"]
    assert all(SEEN in record.item and record.source == URL for record in kept)


def test_no_record_is_made_beyond_the_bytes_of_a_document(monkeypatch):
    """Names that all entries share would make any number of bytes."""
    encoded = []
    encode = firstseen._as_json
    monkeypatch.setattr(firstseen, "_as_json", lambda item: encoded.append(item) or encode(item))
    monkeypatch.setattr(firstseen, "MAX_STORED_BYTES", 1)
    assert items_of(*map(entry, range(9))).build_records() == []
    assert len(encoded) == 1


@pytest.mark.parametrize(("number", "lines"), [(0, 0), (3, 3), (2_000, 4)])
def test_refused_items_are_logged_up_to_three_and_then_counted(caplog, number, lines):
    found = items_of(entry(1), entry(1), *[entry(2, title="x" * 301)] * (number // 2))
    for _ in range(number - number // 2):
        assert not found.accept({"body": "text"})
    with caplog.at_level(logging.WARNING):
        found.log_rest()
    assert [record.keys.page for record in found.build_records()] == ["1"]
    assert len(caplog.messages) == lines
    if lines > 3:
        assert "1997 more items" in caplog.messages[-1]


def test_other_work_has_its_turn_between_many_items():
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def run():
        task = asyncio.create_task(others())
        items = [item async for item in _yield_in_turns(as_async_generator(range(1000)))]
        task.cancel()
        return items

    assert asyncio.run(run()) == list(range(1000))
    assert turns >= 3


@pytest.mark.parametrize(("since", "then"), [(None, 90.0), (5.0, 5.0), (1e6, 90.0)])
def test_a_wrong_clock_does_not_change_the_begin_of_refusals(since, then):
    known = SourceRecord(url=URL, kind="feed", refused_since=since)
    record = after_deferral(known, Deferral("refused", 503, "it answers 503"), 90.0)
    assert (record.outcome, record.status, record.refused_since) == ("refused", 503, then)


def outcome_of(known=None, visit=None, **result):
    request = Request(URL)
    set_visit(request, visit or SourceVisit(Source(URL), bool))
    before = SourceRecord(url=URL, kind="feed", failures=2, etag=b"x", validator_url=URL)
    return record_after(known or before, request, Result(**result), 90.0)


def test_each_result_counts_failures_and_keeps_validators_or_not():
    response = Response(URL, headers={"ETag": '"2"'})
    feed = Feed(title=None, language=None, entries=(), ttl=60.0, skip_hours=frozenset({3, 1}))
    for result, failures, etag in (
        (
            {"outcome": "fetched", "response": response, "document_url": URL, "feed": feed},
            0,
            b'"2"',
        ),
        (
            {
                "outcome": "fetched",
                "response": response,
                "document_url": URL,
                "feed": feed,
                "is_complete": False,
            },
            *(0, None),
        ),
        ({"outcome": "unchanged", "response": response, "document_url": URL}, 0, b'"2"'),
        ({"outcome": "unchanged", "response": Response(URL), "document_url": URL}, 0, b"x"),
        ({"outcome": "unchanged", "document_url": URL, "is_shared": True}, 0, None),
        ({"outcome": "failed", "response": Response(URL, 500)}, 3, b"x"),
        ({"outcome": "gone", "response": Response(URL, 410)}, 3, b"x"),
        ({"outcome": "denied by robots"}, 2, b"x"),
    ):
        record = outcome_of(**result)
        assert (record.failures, record.etag) == (failures, etag), result
    record = outcome_of(outcome="fetched", response=response, document_url=URL, feed=feed)
    assert (record.feed_interval, record.skip_hours) == (3600.0, "1,3")
    refused = outcome_of(outcome="failed", response=Response(URL, 503))
    assert (refused.outcome, refused.failures, refused.status) == ("refused", 3, 503)


def test_a_lifetime_counts_from_where_the_next_visit_begins():
    lifetimes = (Lifetime("http://old.example/", 900.0), Lifetime(URL, 200.0))
    visit = SourceVisit(Source(URL), bool, lifetimes=lifetimes)
    assert visit.fresh_until("http://old.example/", 90.0) == 900.0
    assert visit.fresh_until(URL, 90.0) == 200.0
    assert visit.fresh_until("http://else.example/", 90.0) == 900.0
    assert SourceVisit(Source(URL), bool).fresh_until(URL, 90.0) == 90.0


# Why a request failed is one sentence: which host, and what went wrong.

FEED_URL = "http://blog.example/feed"


def downloaded(*reasons):
    """An error as Scrapy's own handler raises it, with what Twisted found on the way."""
    cause = ResponseNeverReceived([Failure(reason) for reason in reasons])
    error = DownloadFailedError(str(cause))
    error.__cause__ = cause
    return error


def answered(status, **headers):
    return HttpError(Response(FEED_URL, status, headers))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (answered(404), "blog.example answered 404"),
        (answered(304, Location="/x"), "blog.example answered 304"),
        (answered(301), "blog.example answered 301 without a Location"),
        (
            answered(300, Location="/a"),
            "blog.example answered 300, which is not followed; its Location is http://blog.example/a",
        ),
        (
            HttpError(
                Response(FEED_URL, 406, request=Request(FEED_URL, headers={"Accept": "a/b"}))
            ),
            "blog.example answered 406 to Accept: 'a/b'",
        ),
        (
            answered(302, Location=b"http://[\x1b\xe9"),
            r"blog.example answered 302 with a Location that cannot be requested: 'http://[\x1b\xe9'",
        ),
        (DownloadConnectionRefusedError("111"), "blog.example refused the connection"),
        (CannotResolveHostError("no results"), "the DNS has no address for blog.example"),
        (DownloadTimeoutError("it took 30 s.\nmore"), "blog.example timed out: it took 30 s. more"),
        (
            DownloadCancelledError("more than 15 MiB"),
            "the response from blog.example is too large: more than 15 MiB",
        ),
        (ResponseDataLossError(), "the response from blog.example ended before it was complete"),
        (
            downloaded(ConnectionDone()),
            "no response from blog.example: Connection was closed cleanly",
        ),
        (downloaded(ParseError("no", b"x")), "no response from blog.example: ('no', b'x')"),
        (BadAnswer(Response(FEED_URL), "redirected in a loop"), "redirected in a loop"),
        (IgnoreRequest("its body is too large."), "its body is too large."),
        (IgnoreRequest(), "IgnoreRequest"),
        (NotAFeed("Not a feed but an image."), "Not a feed but an image."),
        (ValueError("a\n b"), "ValueError: a b"),
        (ValueError(), "ValueError"),
        (None, "NoneType"),
    ],
)
def test_every_failure_is_described_in_a_sentence(error, reason):
    assert reason_of(error, FEED_URL) == reason


def test_quotes_are_cut_to_a_length():
    assert len(reason_of(answered(301, Location="ftp://" + "x" * 9000), FEED_URL)) < 400
    assert len(reason_of(ValueError("x" * 9000), FEED_URL)) < 400


def test_a_refused_document_fails_a_visit_that_goes_on(monkeypatch):
    ends, results = [], []

    def refuse(*_):
        raise RefusedValues("too long")

    def commit_end(_outcomes, _request, result):
        results.append(result)
        return Written()

    monkeypatch.setattr(Outcomes, "_commit", refuse)
    monkeypatch.setattr(Outcomes, "_find_record", lambda *_: None)
    monkeypatch.setattr(Outcomes, "_commit_end", commit_end)
    engine = SimpleNamespace(end=lambda reason, line: ends.append((reason, line)))
    crawl = SimpleNamespace(stats=None, context=SimpleNamespace(clock=None), engine=engine)
    outcomes = Outcomes(crawl, SimpleNamespace(problems=None, visits=None))
    request = Request(URL)
    set_visit(request, SourceVisit(Source(URL), bool))
    assert outcomes.record_entries(request, ()) == Written()
    assert outcomes._end_visit(request, Result("fetched")) == Written()
    ((reason, line),) = ends
    assert [result.outcome for result in results] == ["failed"]
    assert reason == "state_failed"
    assert URL in line
