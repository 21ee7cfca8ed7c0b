"""R3: a published schema may be a weapon: it is given up, and the bundled one alone counts."""

import asyncio
import json
import math
import time
from types import SimpleNamespace

import pytest

from tests.helpers.sites import BLOCKLIST
from walsh_scrapy.crawl import isolated
from walsh_scrapy.crawl.childprocess import TooCostly
from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.documents.publishedlist import MAX_INLINE_BYTES, read_list
from walsh_scrapy.crawl.isolated import CostLimits, Reader
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist, check_schema

URL = "http://operator.example/schema.json"


def test_the_event_loop_goes_on_while_a_long_list_is_read(monkeypatch):
    """The list is read when the loop has had a turn."""
    has_turned = asyncio.Event()
    parse = Blocklist.parse

    def parse_in_thread(body):
        loop.call_soon_threadsafe(has_turned.set)
        asyncio.run_coroutine_threadsafe(has_turned.wait(), loop).result(60)
        return parse(body)

    async def run():
        nonlocal loop
        loop = asyncio.get_running_loop()
        return await read_list(body)

    loop = None
    body = json.dumps(BLOCKLIST).encode() + b" " * MAX_INLINE_BYTES
    monkeypatch.setattr(Blocklist, "parse", parse_in_thread)
    assert asyncio.run(run()) == parse(body)


DOCUMENT = {
    "contract": "walsh-research-blocklist/v1",
    "refresh": "PT6H",
    "operator": "a" * 40 + "!",
    "blocked": [{"domain": "optedout.example"}],
}
PATTERN = {"properties": {"operator": {"pattern": "^([a-zA-Z ]+)+$"}}}
TREE = {"$ref": "#/$defs/n0", "$defs": {"n30": {}}}
TREE["$defs"] |= {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(30)}


async def check(schema):
    reader = Reader(SimpleNamespace(is_closing=False), SystemClock(time.time))
    try:
        document = json.dumps(DOCUMENT).encode()
        await reader.call(URL, check_schema, document, json.dumps(schema).encode())
    finally:
        reader.close()


@pytest.mark.parametrize("schema", [PATTERN, TREE], ids=["pattern", "tree of $ref"])
def test_a_check_that_would_take_for_ever_is_given_up(monkeypatch, schema):
    """Only processor time counts: the process gets as little of the machine as others leave."""
    monkeypatch.setattr(isolated, "WALL_TIME_FACTOR", math.inf)
    monkeypatch.setattr(isolated, "LIMITS", CostLimits(seconds=1, memory=200 * 2**20))
    with pytest.raises(TooCostly, match="longer than 1 s"):
        asyncio.run(check(schema))


def test_a_sound_schema_is_obeyed():
    asyncio.run(check({"required": ["refresh"]}))
    with pytest.raises(InvalidBlocklist, match="'signature'"):
        asyncio.run(check({"required": ["signature"]}))


def test_a_schema_that_is_not_sound_is_ignored():
    asyncio.run(check({"type": 7}))
