"""A crawl tells its own copy of the blocklist from that of another one (R3, decision 14)."""

import asyncio
import json
from contextlib import closing, nullcontext, suppress
from itertools import count, takewhile
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings

from tests.helpers.sites import BLOCKLIST
from walsh_scrapy.crawl.context import Context
from walsh_scrapy.crawl.documents.publishedlist import RETRY_SECONDS, BlocklistCache, PublishedList
from walsh_scrapy.crawl.hosts.queue import OWNED_HOST_TIMEOUT_SECONDS
from walsh_scrapy.exceptions import RequestDeferred, StillDue
from walsh_scrapy.options import Options
from walsh_scrapy.state import State
from walsh_scrapy.testing.crawl import keep_blocklist
from walsh_scrapy.testing.simulation import FakeClock

URL = "http://operator.example/blocklist.json"


@pytest.fixture
def context(tmp_path):
    clock = SimpleNamespace(now=count(1e9).__next__)  # each look takes a second
    options = Options.from_settings(Settings({"WALSH_BLOCKLIST_URL": URL}))
    with closing(State(f"sqlite:///{tmp_path / 'state.sqlite3'}")) as state:
        keep_blocklist(state, URL, json.dumps(BLOCKLIST).encode(), 1.0)
        yield Context(options, state, clock)


@pytest.fixture
def fresh_context(tmp_path):
    clock = FakeClock()
    options = Options.from_settings(Settings({"WALSH_BLOCKLIST_URL": URL}))
    with closing(State(f"sqlite:///{tmp_path / 'fresh.sqlite3'}", clock.now)) as state:
        yield Context(options, state, clock)


@pytest.fixture
def crawls(context):
    """Return the list as two crawls on one state know it; it is due for both."""
    return [BlocklistCache(context) for _ in range(2)]


def test_a_crawl_takes_over_the_list_that_another_one_fetched(crawls):
    ours, theirs = crawls
    ours.keep_unchanged(Response(URL, status=304, request=Request(URL)))
    assert not ours.is_due
    assert theirs.is_due
    assert theirs.has_come()
    assert not theirs.is_due


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (StillDue(0.0, "another worker owns operator.example"), OWNED_HOST_TIMEOUT_SECONDS),
        (RequestDeferred(0.0, "operator.example is on hold"), RETRY_SECONDS),
    ],
)
def test_a_list_that_waited_in_vain_has_not_failed(context, error, seconds):
    crawl = Mock(context=context)
    crawl.fetcher.hold_back_targets.return_value = nullcontext()
    crawl.access.owning.side_effect = error
    published = PublishedList(crawl)
    asyncio.run(published._fetch())
    looks = sum(1 for _ in takewhile(bool, (not published.is_due for _ in range(4000))))
    assert abs(looks - seconds) < 3


@pytest.mark.parametrize(
    ("errors", "is_deferred"),
    [
        ([StillDue(0.0, "another worker owns operator.example")], True),
        ([RequestDeferred(0.0, "operator.example is on hold")], False),
        ([StillDue(0.0, "another worker owns it"), RequestDeferred(0.0, "it is on hold")], False),
    ],
)
def test_without_any_list_its_server_is_asked_first(fresh_context, errors, is_deferred):
    """Only a fetch that failed leaves the list empty (R3), not one that another worker held up."""
    crawl = Mock(context=fresh_context)
    crawl.fetcher.hold_back_targets.return_value = nullcontext()
    crawl.fetcher.fetch_once = lambda _, fetch: fetch()
    crawl.access.owning.side_effect = errors
    crawl.access.make_deferral = lambda reason: StillDue(0.0, reason)
    published = PublishedList(crawl)
    for _ in errors:
        fresh_context.clock.at += OWNED_HOST_TIMEOUT_SECONDS + 1
        with suppress(StillDue):
            asyncio.run(published.prepare_list())
    with pytest.raises(StillDue) if is_deferred else nullcontext():
        asyncio.run(published.prepare(Request("http://a.example/feed")))


def test_a_fetch_that_failed_is_no_copy_of_another_crawl(crawls):
    ours, _ = crawls
    ours.keep_last("it answered 500")
    assert not ours.is_due
    assert ours.has_come(), "it is tried again later"
