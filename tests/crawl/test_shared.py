"""Copies of documents that the crawls of a process share."""

import asyncio

import pytest

from walsh_scrapy.crawl import shared
from walsh_scrapy.crawl.shared import SharedDocuments


@pytest.fixture
def documents():
    return SharedDocuments(len)


def test_the_last_copy_is_found(documents):
    documents.keep("a", b"old")
    documents.keep("a", b"new")
    assert (documents.find("a"), documents.find("b")) == (b"new", None)


def test_the_oldest_copies_are_dropped_beyond_the_limit(documents, monkeypatch):
    monkeypatch.setattr(shared, "MAX_BYTES", 10)
    for name in ("a", "b", "a", "c"):
        documents.keep(name, b"1234")
    assert [documents.find(name) for name in ("a", "b", "c")] == [b"1234", None, b"1234"]


def test_one_crawl_fetches_while_others_wait(documents):
    order = []

    async def fetch(name):
        async with documents.fetching("key", lambda: None):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    async def both():
        await asyncio.gather(fetch("first"), fetch("second"))

    asyncio.run(both())
    assert order == ["first begins", "first ends", "second begins", "second ends"]


def test_a_wait_ends_with_the_crawl(documents, monkeypatch):
    monkeypatch.setattr(shared, "RECHECK_SECONDS", 0.001)

    def check():
        raise InterruptedError

    async def run():
        async with documents.fetching("key", check):
            with pytest.raises(InterruptedError):
                async with documents.fetching("key", check):
                    pass

    asyncio.run(run())
