"""Decision 34: how much one document may add to the state, and what is said of what it may not."""

import asyncio
import logging

import pytest
from scrapy.utils.asyncgen import as_async_generator

from walsh_scrapy.crawl import outcome
from walsh_scrapy.crawl.outcome import DocumentItems
from walsh_scrapy.items import EntryItem
from walsh_scrapy.spidermiddlewares.firstseen import _in_turns

URL = "https://blog.example/feed"
SEEN = "2026-05-23T00:00:00Z"


def entry(number, published=None, title="x"):
    item = EntryItem(kind="feed", source=URL, title=title, published=published)
    item.key = item.page_key = str(number)
    return item


def items_of(*items):
    found = DocumentItems(URL, SEEN)
    for item in items:
        found.add(item)
    return found


def test_a_document_adds_its_newest_items_as_far_as_they_fit(monkeypatch):
    dates = [f"2026-05-{day}T00:00:00Z" for day in (21, 25, 23)]
    items = [entry(number, date) for number, date in enumerate([*dates, None])]
    records = list(items_of(*items).records(URL, 1.0, None))
    size = len(records[0].item.encode())
    assert {record.key for record in records} == {"0", "1", "2", "3"}
    monkeypatch.setattr(outcome, "MOST_BYTES", size * 2 + 10)
    kept = items_of(*items).records(URL, 1.0, None)
    assert [record.key for record in kept] == ["1", "2"]
    assert all(SEEN in record.item and record.source == URL for record in kept)


@pytest.mark.parametrize(("number", "lines"), [(0, 0), (3, 3), (2_000, 4)])
def test_refused_items_are_logged_up_to_three_and_then_counted(caplog, number, lines):
    found = items_of(entry(1), entry(1), *[entry(2, title="x" * 301)] * (number // 2))
    for _ in range(number - number // 2):
        assert not found.passes({"body": "text"})
    with caplog.at_level(logging.WARNING):
        found.log_rest()
    assert list(found.valid) == ["1"]
    assert len(caplog.messages) == lines
    if lines > 3:
        assert caplog.messages[-1] == f"items of {URL} are left out: … and 1,997 more"


def test_other_work_has_its_turn_between_many_items():
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def pause():
        await asyncio.sleep(0)

    async def run():
        task = asyncio.create_task(others())
        items = [item async for item in _in_turns(as_async_generator(range(1000)), pause)]
        task.cancel()
        return items

    assert asyncio.run(run()) == list(range(1000))
    assert turns >= 3
